// The index of a segment whose entries have their places.
#include <algorithm>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/stable_sort.h"
#include "store/writer/segment_builder_impl.h"

namespace tdbg::store {

void SegmentBuilder::LayIndex(std::string_view meta, const TensorTable& tensors, uint64_t begin) {
  Content& c = *content_;
  // An index says of which step a row is by its commit. Whoever records otherwise is read without one.
  for (size_t i = 0; i < c.commits.size(); ++i) {
    const Content::Ends from = i == 0 ? Content::Ends() : c.ends[i - 1];
    const auto other = [&](const auto& record) { return record.step != c.commits[i].global_step; };
    const auto any_other = [&](const auto& list, size_t first, size_t last) {
      return std::any_of(list.begin() + static_cast<ptrdiff_t>(first),
                         list.begin() + static_cast<ptrdiff_t>(last), other);
    };
    if (any_other(c.summaries, from.summaries, c.ends[i].summaries) ||
        any_other(c.scalars, from.scalars, c.ends[i].scalars) ||
        any_other(c.raws, from.raws, c.ends[i].raws)) {
      return;
    }
  }
  format::SegmentIndexWriter index;
  std::vector<const Piece*> raws;
  for (const Piece& p : c.pieces) {
    if (p.is_raw) {
      raws.push_back(&p);
    } else {
      index.AddColumn(p.entry.key, p.dtype, p.entry.begin, p.bytes.size(), p.hash);
    }
  }
  base::StableSort(&raws, [](const Piece* a, const Piece* b) { return a->commit < b->commit; });
  // Every row begins with whose it is: tensor, sub, point.
  const auto append = [&](const std::byte* row) {
    c.index_rows.push_back({base::Load<uint32_t>(row), base::Load<uint16_t>(row + 4),
                            base::Load<uint16_t>(row + 6), format::kNoForm});
  };
  static_assert(offsetof(format::SummaryRow, point) == 6 && offsetof(format::ScalarRow, point) == 6 &&
                offsetof(format::RawHeader, point) == 6);
  size_t raw = 0;
  for (size_t i = 0; i < c.commits.size(); ++i) {
    const Content::Ends from = i == 0 ? Content::Ends() : c.ends[i - 1];
    format::IndexCommit commit;
    c.index_rows.clear();
    for (size_t r = from.summaries; r < c.ends[i].summaries; ++r) {
      const format::SummariesView& view = c.summaries[r].view;
      for (uint32_t row = 0; row < view.row_count; ++row) {
        append(view.rows.data() + row * sizeof(format::SummaryRow));
      }
    }
    commit.summaries = index.Layout(c.index_rows);
    c.index_rows.clear();
    for (size_t r = from.scalars; r < c.ends[i].scalars; ++r) {
      for (size_t row = 0; row < c.scalars[r].count(); ++row) {
        append(c.scalars[r].rows.data() + row * sizeof(format::ScalarRow));
      }
    }
    commit.scalars = index.Layout(c.index_rows);
    c.index_rows.clear();
    for (; raw < raws.size() && raws[raw]->commit == i; ++raw) {
      const Piece& p = *raws[raw];
      append(reinterpret_cast<const std::byte*>(&p.raw));
      c.index_rows.back().form =
          index.Form(static_cast<DType>(p.raw.dtype),
                     {p.raw.shape, p.raw.shape + std::min<int>(p.raw.rank, format::kMaxRank)});
      index.AddRaw({p.entry.begin, p.hash});
    }
    commit.raws = index.Layout(c.index_rows);
    index.AddCommit(commit);
  }
  index.SetFirstDefinition(sealed_definitions_);
  for (format::TensorId id = sealed_definitions_; id < tensors.size(); ++id) {
    if (const std::string_view json = tensors.JsonOf(id); !json.empty()) index.AddDefinition(json);
  }
  index.SetMeta(meta);
  c.index = index.Encode(begin);
  Piece& p = c.pieces.emplace_back();
  p.entry.key = format::kIndexKey;
  p.entry.dtype = "U8";
  p.entry.shape = {static_cast<int64_t>(c.index.size())};
  p.entry.begin = begin;
  p.entry.end = begin + c.index.size();
  p.bytes = std::as_bytes(std::span(c.index));
  p.hash = base::Hash64(p.bytes);
}

}  // namespace tdbg::store
