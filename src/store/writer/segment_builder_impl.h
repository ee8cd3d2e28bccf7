// What a SegmentBuilder holds. For segment_builder.cc and segment_index.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/journal.h"
#include "format/records.h"
#include "format/segment.h"
#include "format/segment_index.h"
#include "store/writer/segment_builder.h"

namespace tdbg::store {

// One entry of the file: where its bytes are now, and how it is declared.
struct SegmentBuilder::Piece {
  format::SegmentEntry entry;
  DType dtype = DType::kInvalid;  ///< a column's
  uint64_t item_bytes = 1;
  std::span<const std::byte> bytes;
  uint64_t hash = 0;
  // Raw tensors only.
  bool is_raw = false;
  format::RawHeader raw;
  uint32_t commit = 0;
  int64_t step = 0;
};

struct SegmentBuilder::Content {
  struct Summaries {
    int64_t step = 0;
    format::SummariesView view;
  };
  struct Scalars {
    int64_t step = 0;
    std::span<const std::byte> rows;
    size_t count() const { return rows.size() / sizeof(format::ScalarRow); }
  };
  struct Raw {
    int64_t step = 0;
    format::RawHeader header;
    std::span<const std::byte> data;
    uint64_t hash = 0;
    uint32_t commit = 0;
  };
  std::vector<format::Commit> commits;
  std::vector<Summaries> summaries;
  std::vector<Scalars> scalars;
  std::vector<Raw> raws;
  std::vector<std::string_view> contexts, acks;
  std::string_view end;
  // How much of the lists above each commit closes.
  struct Ends {
    size_t summaries = 0, scalars = 0, raws = 0;
    uint64_t summary_rows = 0, scalar_rows = 0, histogram_bytes = 0;
  };
  std::vector<Ends> ends;
  uint64_t summary_rows = 0, scalar_rows = 0, histogram_bytes = 0;
  uint64_t first_sequence = 0;
  uint64_t last_sequence = 0;
  uint64_t damaged_records = 0, damaged_bytes = 0;  ///< since the last commit

  std::vector<std::vector<std::byte>> copies;  // of records; their memory stays where it is
  size_t copied = 0;                           // of the last one

  std::vector<std::byte> columns;  // all of them, each at a multiple of 8
  std::vector<Piece> pieces;
  std::vector<std::byte> stage;
  std::string index;
  std::vector<format::IndexRow> index_rows;

  void Clear() {
    commits.clear();
    ends.clear();
    summaries.clear();
    scalars.clear();
    raws.clear();
    contexts.clear();
    acks.clear();
    end = {};
    summary_rows = scalar_rows = histogram_bytes = first_sequence = last_sequence = 0;
    damaged_records = damaged_bytes = 0;
    pieces.clear();
    copies.clear();
  }
  /// A record's payload where nobody else can write: what is checked there stays as it was.
  std::span<const std::byte> Copy(std::span<const std::byte> payload) {
    constexpr size_t kCopiesBytes = 1 << 20;
    if (copies.empty() || copies.back().size() - copied < payload.size()) {
      copies.emplace_back(std::max(kCopiesBytes, payload.size()));
      copied = 0;
    }
    const std::span<std::byte> to = std::span(copies.back()).subspan(copied, payload.size());
    std::copy(payload.begin(), payload.end(), to.begin());
    copied += to.size();
    return to;
  }
  void Close(const format::Commit& commit) {
    commits.push_back(commit);
    ends.push_back(
        {summaries.size(), scalars.size(), raws.size(), summary_rows, scalar_rows, histogram_bytes});
  }
  Ends LastEnds() const { return ends.empty() ? Ends() : ends.back(); }
  /// Drops what the open step holds of other ones, whose commits were lost, and returns which these are.
  std::set<int64_t> DropForeign(int64_t step) {
    const Ends last = LastEnds();
    std::set<int64_t> foreign;
    const auto drop = [&](auto* records, size_t begin) {
      const auto is_foreign = [&](const auto& record) {
        return record.step != step && (foreign.insert(record.step), true);
      };
      const auto from = records->begin() + static_cast<ptrdiff_t>(begin);
      records->erase(std::remove_if(from, records->end(), is_foreign), records->end());
    };
    drop(&summaries, last.summaries);
    drop(&scalars, last.scalars);
    drop(&raws, last.raws);
    summary_rows = last.summary_rows;
    histogram_bytes = last.histogram_bytes;
    scalar_rows = last.scalar_rows;
    for (size_t i = last.summaries; i < summaries.size(); ++i) {
      summary_rows += summaries[i].view.row_count;
      histogram_bytes += summaries[i].view.histograms.size();
    }
    for (size_t i = last.scalars; i < scalars.size(); ++i) scalar_rows += scalars[i].count();
    return foreign;
  }
  /// What damage left without a commit is nobody's step.
  void DropWhatIsOpen() {
    const Ends last = LastEnds();
    summaries.resize(last.summaries);
    scalars.resize(last.scalars);
    raws.resize(last.raws);
    summary_rows = last.summary_rows;
    scalar_rows = last.scalar_rows;
    histogram_bytes = last.histogram_bytes;
  }
};

}  // namespace tdbg::store
