#include "store/compactor/thinner.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/hash.h"
#include "base/stable_sort.h"
#include "format/columns.h"
#include "format/json_fields.h"
#include "format/level.h"
#include "format/segment.h"
#include "format/segment_index.h"
#include "format/version.h"

namespace tdbg::store {
namespace {

using format::Json;

struct Entry {
  format::SegmentEntry entry;
  std::span<const std::byte> old;  // its bytes in the file
  std::string bytes;               // what it becomes
  size_t item_bytes = 1;
  bool is_raw = false, dropped = false;
};

size_t ItemBytesOf(const format::SegmentEntry& entry) {
  const std::string& name = entry.dtype;
  if (name == "F64" || name == "I64" || name == "U64") return 8;
  if (name == "F32" || name == "I32" || name == "U32") return 4;
  if (name == "F16" || name == "BF16" || name == "I16" || name == "U16") return 2;
  return 1;
}

class Thinner {
 public:
  explicit Thinner(std::span<const std::byte> file) : file_(file) {}

  Status Read() {
    TDBG_ASSIGN_OR_RETURN(header_, format::DecodeSegmentHeader(file_, file_.size()));
    if (!header_.hash_ok) return DataLoss("segment header: hash");
    TDBG_ASSIGN_OR_RETURN(
        meta_, format::ParseJsonObject(header_.tdbg_json, "segment metadata", format::kMaxMetadataDepth));
    for (const format::SegmentEntry& entry : header_.entries) {
      Entry one;
      one.entry = entry;
      one.old = file_.subspan(header_.data_offset + entry.begin, entry.end - entry.begin);
      one.item_bytes = ItemBytesOf(entry);
      one.is_raw = entry.key.find('@') != std::string::npos;
      by_key_[entry.key] = entries_.size();
      entries_.push_back(std::move(one));
    }
    return OkStatus();
  }

  /// Whether a step has something that may be dropped. Looks at the table of steps alone: of a run that is
  /// kept within its budget for days, most segments were thinned long ago.
  Result<bool> HasWhatMayGo(const std::function<bool(int64_t)>& keeps_step) const {
    TDBG_ASSIGN_OR_RETURN(const auto steps, Column<int64_t>("step/global"));
    TDBG_ASSIGN_OR_RETURN(const auto flags, Column<uint32_t>("step/flags"));
    TDBG_ASSIGN_OR_RETURN(const auto summary_rows, Column<uint32_t>("step/summary_rows"));
    TDBG_ASSIGN_OR_RETURN(const auto raw_tensors, Column<uint32_t>("step/raw_tensors"));
    if (flags.size() != steps.size() || summary_rows.size() != steps.size() ||
        raw_tensors.size() != steps.size())
      return DataLoss("step/: columns of different lengths");
    for (size_t i = 0; i < steps.size(); ++i) {
      if ((flags[i] & (format::kCommitOutside | format::kCommitThinned)) == 0 &&
          (summary_rows[i] | raw_tensors[i]) != 0 && !keeps_step(steps[i]))
        return true;
    }
    return false;
  }

  Status Verify() {
    const auto checksums = meta_.find("checksums");
    if (checksums == meta_.end() || !checksums->is_object()) return DataLoss("no checksums");
    for (const Entry& one : entries_) {
      const std::string& key = one.entry.key;
      if (key == format::kIndexKey) continue;  // it has hashes of its own
      const auto said = checksums->find(key);
      uint64_t hash = 0;
      if (said == checksums->end() || !said->is_string() ||
          !base::ParseHex64(said->get_ref<const std::string&>(), &hash) || base::Hash64(one.old) != hash) {
        return DataLoss(key + ": checksum");
      }
    }
    if (by_key_.contains(format::kIndexKey)) {
      TDBG_ASSIGN_OR_RETURN(index_, format::DecodeSegmentIndex(file_));
      for (uint64_t row = 0; row < index_->raws.size(); ++row) {
        if (!index_->Intact(row)) return DataLoss("index: raw table");
      }
    }
    return OkStatus();
  }

  Result<Thinned> Thin(const std::function<bool(int64_t)>& keeps_step,
                       const std::function<bool(const format::TensorDef&)>& keeps_row) {
    Thinned out;
    TDBG_ASSIGN_OR_RETURN(const std::set<uint32_t> kept_tensors, TensorsThatStay(keeps_row));
    TDBG_ASSIGN_OR_RETURN(const auto steps, Column<int64_t>("step/global"));
    TDBG_ASSIGN_OR_RETURN(auto flags, Column<uint32_t>("step/flags"));
    TDBG_ASSIGN_OR_RETURN(auto shed, Column<uint32_t>("step/shed"));
    TDBG_ASSIGN_OR_RETURN(auto summary_rows, Column<uint32_t>("step/summary_rows"));
    TDBG_ASSIGN_OR_RETURN(auto raw_tensors, Column<uint32_t>("step/raw_tensors"));
    TDBG_ASSIGN_OR_RETURN(const auto tensors, Column<uint32_t>("summary/tensor"));
    TDBG_ASSIGN_OR_RETURN(const auto subs, Column<uint16_t>("summary/sub"));
    TDBG_ASSIGN_OR_RETURN(const auto points, Column<uint16_t>("summary/point"));
    const size_t commits = steps.size();
    if (flags.size() != commits || shed.size() != commits || summary_rows.size() != commits ||
        raw_tensors.size() != commits || subs.size() != tensors.size() || points.size() != tensors.size()) {
      return DataLoss("step/: columns of different lengths");
    }
    std::vector<bool> kept_commit(commits);
    for (size_t i = 0; i < commits; ++i)
      kept_commit[i] = (flags[i] & format::kCommitOutside) != 0 || keeps_step(steps[i]);
    std::vector<bool> kept_row(tensors.size());
    std::vector<std::vector<uint32_t>> rows_of(commits);
    std::vector<uint32_t> dropped(commits);
    size_t row = 0;
    for (size_t i = 0; i < commits; ++i) {
      for (uint32_t n = 0; n < summary_rows[i]; ++n, ++row) {
        if (row >= tensors.size()) return DataLoss("step/summary_rows: more than there are");
        kept_row[row] = kept_commit[i] || kept_tensors.contains(tensors[row]);
        if (kept_row[row]) {
          rows_of[i].push_back(static_cast<uint32_t>(row));
        } else {
          ++dropped[i];
          ++out.rows;
        }
      }
    }
    if (row != tensors.size()) return DataLoss("step/summary_rows: fewer than there are");

    const auto raws = meta_.find("raw");
    for (Entry& entry : entries_) {
      if (!entry.is_raw) continue;
      int64_t commit = -1;
      if (raws == meta_.end() || !raws->is_object() || !raws->contains(entry.entry.key) ||
          !format::GetField((*raws)[entry.entry.key], "commit", &commit) || commit < 0 ||
          commit >= static_cast<int64_t>(commits)) {
        return DataLoss(entry.entry.key + ": of no step");
      }
      const auto i = static_cast<size_t>(commit);
      entry.dropped = !kept_commit[i];
      if (!entry.dropped) continue;
      ++dropped[i];
      ++out.raws;
      raw_tensors[i] -= raw_tensors[i] != 0;
    }
    if (out.rows + out.raws == 0) return out;
    for (size_t i = 0; i < commits; ++i) {
      if (dropped[i] == 0) continue;
      ++out.steps;
      flags[i] |= format::kCommitThinned;
      shed[i] += dropped[i];
      summary_rows[i] = static_cast<uint32_t>(rows_of[i].size());
    }
    Put("step/flags", flags);
    Put("step/shed", shed);
    Put("step/summary_rows", summary_rows);
    Put("step/raw_tensors", raw_tensors);
    TDBG_RETURN_IF_ERROR(FilterSummaries(kept_row));
    out.file = Encode(rows_of, kept_commit, tensors, subs, points);
    return out;
  }

 private:
  Result<std::set<uint32_t>> TensorsThatStay(
      const std::function<bool(const format::TensorDef&)>& keeps_row) const {
    std::set<uint32_t> out;
    const auto tensors = meta_.find("tensors");
    if (tensors == meta_.end() || !tensors->is_array()) return DataLoss("no tensor definitions");
    for (const Json& one : *tensors) {
      TDBG_ASSIGN_OR_RETURN(const format::TensorDef def, format::TensorDef::FromJson(format::DumpJson(one)));
      if (keeps_row(def)) out.insert(def.id);
    }
    return out;
  }
  template <typename T>
  Result<std::vector<T>> Column(std::string_view key) const {
    const auto at = by_key_.find(key);
    if (at == by_key_.end()) return DataLoss(std::string(key) + ": missing");
    const std::span<const std::byte> bytes = entries_[at->second].old;
    if (bytes.size() % sizeof(T) != 0 || entries_[at->second].item_bytes != sizeof(T))
      return DataLoss(std::string(key) + ": type or length");
    std::vector<T> out(bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  template <typename T>
  void Put(std::string_view key, const std::vector<T>& items) {
    Entry& entry = entries_[by_key_.find(key)->second];
    entry.bytes.assign(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T));
    entry.old = std::as_bytes(std::span(entry.bytes));
  }

  Status FilterSummaries(const std::vector<bool>& kept) {
    TDBG_ASSIGN_OR_RETURN(const auto offsets, Column<uint64_t>("summary/histogram_offset"));
    TDBG_ASSIGN_OR_RETURN(const auto lengths, Column<uint32_t>("summary/histogram_bytes"));
    TDBG_ASSIGN_OR_RETURN(const auto histograms, Column<uint8_t>(format::kHistogramsKey));
    if (offsets.size() != kept.size() || lengths.size() != kept.size())
      return DataLoss("summary/: columns of different lengths");
    std::vector<uint8_t> kept_histograms;
    std::vector<uint64_t> moved = offsets;
    for (size_t row = 0; row < kept.size(); ++row) {
      if (!kept[row] || lengths[row] == 0) continue;
      if (offsets[row] > histograms.size() || lengths[row] > histograms.size() - offsets[row])
        return DataLoss("a histogram lies outside its column");
      moved[row] = kept_histograms.size();
      const auto from = histograms.begin() + static_cast<ptrdiff_t>(offsets[row]);
      kept_histograms.insert(kept_histograms.end(), from, from + lengths[row]);
    }
    Put("summary/histogram_offset", moved);
    Put(format::kHistogramsKey, kept_histograms);
    const size_t rows = kept.size();
    for (Entry& entry : entries_) {
      if (!entry.entry.key.starts_with("summary/") || entry.entry.key == format::kHistogramsKey) continue;
      // Of a segment that holds nothing but raw values they are empty.
      if (entry.old.size() != rows * entry.item_bytes) return DataLoss(entry.entry.key + ": length");
      std::string filtered;
      for (size_t row = 0; row < rows; ++row) {
        if (kept[row])
          filtered.append(reinterpret_cast<const char*>(entry.old.data()) + row * entry.item_bytes,
                          entry.item_bytes);
      }
      entry.bytes = std::move(filtered);
      entry.old = std::as_bytes(std::span(entry.bytes));
    }
    return OkStatus();
  }

  std::string Encode(const std::vector<std::vector<uint32_t>>& rows_of, const std::vector<bool>& kept_commit,
                     const std::vector<uint32_t>& tensors, const std::vector<uint16_t>& subs,
                     const std::vector<uint16_t>& points) {
    std::map<uint64_t, const Entry*> raw_by_old_begin;
    std::vector<Entry*> kept;
    for (Entry& entry : entries_) {
      // A value without elements lies where the next one does, and anywhere would do for it.
      if (entry.is_raw && !entry.old.empty()) raw_by_old_begin[entry.entry.begin] = &entry;
      if (!entry.dropped && entry.entry.key != format::kIndexKey) kept.push_back(&entry);
    }
    Json checksums = Json::object(), raws = Json::object();
    std::map<const Entry*, uint64_t> begin_of, hash_of;
    uint64_t at = 0;
    for (Entry* entry : kept) {  // in the order of the file: still by descending items
      begin_of[entry] = at;
      at += entry->old.size();
      hash_of[entry] = base::Hash64(entry->old);
      checksums[entry->entry.key] = base::Hex64(hash_of[entry]);
      if (entry->is_raw) raws[entry->entry.key] = meta_["raw"][entry->entry.key];
    }
    std::string index_bytes;
    if (index_) {
      format::SegmentIndexWriter index;
      for (const Entry* entry : kept) {
        if (entry->is_raw) continue;
        DType dtype = DType::kUInt8;
        for (const format::IndexColumn& column : index_->columns) {
          const auto i = static_cast<size_t>(&column - index_->columns.data());
          if (index_->ColumnName(i) == entry->entry.key) dtype = static_cast<DType>(column.dtype);
        }
        index.AddColumn(entry->entry.key, dtype, begin_of[entry], entry->old.size(), hash_of[entry]);
      }
      size_t raw = 0;
      std::vector<format::IndexRow> rows;
      for (size_t i = 0; i < index_->commits.size(); ++i) {
        const format::IndexCommit& was = index_->commits[i];
        format::IndexCommit commit;
        rows.clear();
        for (const uint32_t row : rows_of[i])
          rows.push_back({tensors[row], subs[row], points[row], format::kNoForm});
        commit.summaries = index.Layout(rows);
        commit.scalars = index.Layout(index_->Layout(was.scalars));
        rows.clear();
        for (format::IndexRow of : index_->Layout(was.raws)) {
          const format::IndexRaw& place = index_->raws[raw++];
          if (!kept_commit[i]) continue;
          const auto shape = index_->ShapeOf(of.form);
          of.form = index.Form(static_cast<DType>(index_->forms[of.form].dtype), *shape);
          rows.push_back(of);
          const auto raw_at = raw_by_old_begin.find(place.begin);
          index.AddRaw({raw_at == raw_by_old_begin.end() ? 0 : begin_of[raw_at->second], place.hash});
        }
        commit.raws = index.Layout(rows);
        index.AddCommit(commit);
      }
      index.SetFirstDefinition(index_->first_definition);
      for (size_t i = 0; i < index_->definition_ends.size(); ++i) index.AddDefinition(index_->Definition(i));
      index.SetMeta(index_->meta);
      index_bytes = index.Encode(at);
      checksums[std::string(format::kIndexKey)] =
          base::Hex64(base::Hash64(std::as_bytes(std::span(index_bytes))));
    }
    std::vector<format::SegmentEntry> entries;
    for (const Entry* entry : kept) {
      format::SegmentEntry& to = entries.emplace_back(entry->entry);
      to.begin = begin_of[entry];
      to.end = to.begin + entry->old.size();
      if (!entry->is_raw) to.shape = {static_cast<int64_t>(entry->old.size() / entry->item_bytes)};
    }
    if (index_) {
      format::SegmentEntry& to = entries.emplace_back();
      to.key = format::kIndexKey;
      to.dtype = "U8";
      to.shape = {static_cast<int64_t>(index_bytes.size())};
      to.begin = at;
      to.end = at + index_bytes.size();
    }
    meta_["format"] = {{"major", format::kMajor}, {"minor", format::kLevelsMinor}};
    meta_["checksums"] = std::move(checksums);
    meta_["raw"] = std::move(raws);
    std::string out = format::EncodeSegmentHeader(entries, format::DumpJson(meta_));
    for (const Entry* entry : kept)
      out.append(reinterpret_cast<const char*>(entry->old.data()), entry->old.size());
    return out + index_bytes;
  }

  const std::span<const std::byte> file_;
  format::SegmentHeader header_;
  Json meta_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> by_key_;
  std::optional<format::SegmentIndex> index_;
};

}  // namespace

Result<Thinned> ThinSegment(std::span<const std::byte> file, std::string_view name,
                            const std::function<bool(int64_t)>& keeps_step,
                            const std::function<bool(const format::TensorDef&)>& keeps_row) {
  Thinner thinner(file);
  if (const Status read = thinner.Read(); !read.ok()) return read.Annotate(name);
  const auto any = thinner.HasWhatMayGo(keeps_step);
  if (!any.ok()) return any.status().Annotate(name);
  if (!*any) return Thinned();
  if (const Status intact = thinner.Verify(); !intact.ok()) return intact.Annotate(name);
  auto thinned = thinner.Thin(keeps_step, keeps_row);
  if (!thinned.ok()) return thinned.status().Annotate(name);
  return thinned;
}

}  // namespace tdbg::store
