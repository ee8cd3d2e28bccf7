#include "store/reader/level_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/hash.h"
#include "format/segment.h"

namespace tdbg::store {
namespace {

std::string_view TypeName(DType dtype) { return format::SegmentDType(dtype); }

bool IsGroupKey(std::string_view key) { return key.starts_with("group/"); }

}  // namespace

Summary LevelRows::SummaryAt(size_t row) const {
  Summary s;
  format::ForEachStatistic([row](auto& number, const auto* column) { number = column[row]; }, s, summaries);
  return s;
}

template <typename T>
Status LevelFile::Lay(std::string_view key, const T** column, size_t* rows) {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return DataLoss(std::string(key) + ": missing");
  const Entry& entry = at->second;
  const std::byte* const first = mapping_->bytes().data() + entry.begin;
  const uint64_t bytes = entry.end - entry.begin;
  if (entry.dtype != TypeName(format::DTypeOf<T>()) || bytes % sizeof(T) != 0 ||
      reinterpret_cast<uintptr_t>(first) % sizeof(T) != 0 ||
      (*rows != SIZE_MAX && bytes / sizeof(T) != *rows)) {
    return DataLoss(std::string(key) + ": type or length");
  }
  *rows = bytes / sizeof(T);
  *column = reinterpret_cast<const T*>(first);
  return OkStatus();
}

Status LevelFile::Verify(std::string_view key) {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return DataLoss(std::string(key) + ": missing");
  const Entry& entry = at->second;
  if (!entry.has_hash) return DataLoss(std::string(key) + ": no checksum");
  const auto bytes = mapping_->bytes().subspan(entry.begin, entry.end - entry.begin);
  return base::Hash64(bytes) == entry.hash ? OkStatus() : DataLoss(std::string(key) + ": checksum");
}

Result<std::unique_ptr<LevelFile>> LevelFile::Open(const std::string& path, format::LevelHeaders* headers) {
  std::unique_ptr<LevelFile> level(new LevelFile());
  level->name_ = base::BaseName(path);
  TDBG_ASSIGN_OR_RETURN(level->mapping_, base::ReadOnlyMapping::Open(path));
  const std::span<const std::byte> file = level->mapping_->bytes();
  TDBG_ASSIGN_OR_RETURN(format::LevelHeader header, headers->Decode(file, file.size(), level->name_));
  level->meta_ = std::move(header.meta);
  level->tensors_ = std::move(header.tensors);
  const auto checksums = header.json.find("checksums");
  for (const format::SegmentEntry& entry : header.segment.entries) {
    Entry& of = level->entries_[entry.key];
    of.begin = header.segment.data_offset + entry.begin;
    of.end = header.segment.data_offset + entry.end;
    of.dtype = entry.dtype;
    if (checksums == header.json.end() || !checksums->is_object()) continue;
    const auto it = checksums->find(entry.key);
    of.has_hash = it != checksums->end() && it->is_string() &&
                  base::ParseHex64(it->get_ref<const std::string&>(), &of.hash);
  }

  LevelRows& rows = level->rows_;
  size_t groups = SIZE_MAX, count = SIZE_MAX;
  Status status;
  format::ForEachLevelColumn(
      [&]<typename T>(std::string_view key, const T*& column) {
        if (!status.ok()) return;
        status = level->Lay(key, &column, IsGroupKey(key) ? &groups : &count);
        if (status.ok() && IsGroupKey(key)) status = level->Verify(key);
      },
      rows);
  TDBG_RETURN_IF_ERROR(status);
  rows.group_count = groups;
  rows.rows = count;
  const uint8_t* histograms = nullptr;
  size_t histogram_bytes = SIZE_MAX;
  TDBG_RETURN_IF_ERROR([&]() -> Status {
    const auto at = level->entries_.find(format::kHistogramsKey);
    if (at == level->entries_.end()) return DataLoss("summary/histogram: missing");
    histograms = reinterpret_cast<const uint8_t*>(file.data() + at->second.begin);
    histogram_bytes = at->second.end - at->second.begin;
    return OkStatus();
  }());
  rows.histograms = {histograms, histogram_bytes};

  const auto name = format::LevelFileName::Parse(level->name_);
  size_t first = 0;
  int64_t before = -1;
  for (size_t g = 0; g < groups; ++g) {
    const format::LevelGroup group = level->GroupAt(g);
    if (group.step_first <= before || group.step_last < group.step_first || group.rows > count - first)
      return DataLoss("group/: no ascending steps, or more rows than there are");
    before = group.step_last;
    level->first_rows_.push_back(first);
    first += group.rows;
  }
  level->first_rows_.push_back(first);
  if (groups == 0 || first != count || rows.groups.step_first[0] != name->first_step ||
      before != name->last_step) {
    return DataLoss("group/: not what the file's name says");
  }
  return level;
}

format::LevelGroup LevelFile::GroupAt(size_t group) const {
  format::LevelGroup out;
#define TDBG_COLUMN(name, ...) out.name = rows_.groups.name[group];
  TDBG_GROUP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  return out;
}

Result<const LevelRows*> LevelFile::Rows() {
  if (!verified_) {
    verified_ = true;
    format::ForEachLevelColumn(
        [&](std::string_view key, const auto*) {
          if (verdict_.ok() && !IsGroupKey(key)) verdict_ = Verify(key);
        },
        std::as_const(rows_));
  }
  TDBG_RETURN_IF_ERROR(verdict_);
  return &rows_;
}

Result<Histogram> LevelFile::HistogramOf(size_t row) {
  TDBG_RETURN_IF_ERROR(Rows().status());
  if (row >= rows_.rows) return Internal("histogram of a row that does not exist");
  const uint64_t offset = rows_.summaries.histogram_offset[row];
  const uint64_t bytes = rows_.summaries.histogram_bytes[row];
  if (bytes == 0) return NotFound("no histogram was kept");
  if (!histograms_verified_) {
    histograms_verified_ = true;
    histograms_verdict_ = Verify(format::kHistogramsKey);
  }
  TDBG_RETURN_IF_ERROR(histograms_verdict_);
  if (offset > rows_.histograms.size() || bytes > rows_.histograms.size() - offset)
    return DataLoss("a histogram lies outside its column, in " + name_);
  return DecodeHistogram(rows_.histograms.subspan(offset, bytes));
}

LevelReader::LevelReader(std::string worker_directory)
    : directory_(base::JoinPath(worker_directory, format::kLevelsDir)) {}

bool LevelReader::Refresh() {
  if (files_.empty() && !base::LocalFileSystem().Exists(directory_)) return false;
  const auto entries = base::LocalFileSystem().List(directory_);
  if (!entries.ok()) return false;
  bool news = false;
  std::set<std::string> there;
  for (const base::DirEntry& entry : *entries) {
    if (!format::LevelFileName::Parse(entry.name)) continue;
    there.insert(entry.name);
    if (files_.contains(entry.name)) continue;
    auto opened = LevelFile::Open(base::JoinPath(directory_, entry.name), &headers_);
    // Removed between the two looks: it is gone, not damaged.
    if (opened.status().code() == Code::kNotFound) continue;
    news = true;
    if (!opened.ok())
      damage_.push_back({base::JoinPath(format::kLevelsDir, entry.name), opened.status().message(), 0});
    files_[entry.name] = opened.ok() ? std::move(*opened) : nullptr;
  }
  news |= std::erase_if(files_, [&](const auto& file) { return !there.contains(file.first); }) != 0;
  if (!news) return false;
  levels_.clear();
  for (const auto& [name, file] : files_) {  // by level, then by first step
    if (!file) continue;
    const uint32_t level = file->meta().level;
    if (levels_.size() < level) levels_.resize(level);
    std::vector<Group>& list = levels_[level - 1];
    for (size_t g = 0; g < file->group_count(); ++g) {
      const format::LevelGroup group = file->GroupAt(g);
      if (!list.empty() && group.step_first <= list.back().step_last) continue;  // told already
      list.push_back({group.step_first, group.step_last, group.steps, file.get(), static_cast<uint32_t>(g)});
    }
  }
  return true;
}

std::span<const LevelReader::Group> LevelReader::GroupsOf(uint32_t level) const {
  if (level < 1 || level > levels_.size()) return {};
  return levels_[level - 1];
}

const LevelReader::Group* LevelReader::At(uint32_t level, int64_t global_step) const {
  const std::span<const Group> groups = GroupsOf(level);
  const auto at = std::lower_bound(groups.begin(), groups.end(), global_step,
                                   [](const Group& group, int64_t step) { return group.step_last < step; });
  return at == groups.end() ? nullptr : &*at;
}

int64_t LevelReader::CoveredUntil(uint32_t level) const {
  const std::span<const Group> groups = GroupsOf(level);
  return groups.empty() ? -1 : groups.back().step_last;
}

uint64_t LevelReader::bytes_on_disk() const {
  uint64_t bytes = 0;
  for (const auto& [name, file] : files_) bytes += file ? file->file_bytes() : 0;
  return bytes;
}

void LevelReader::Report(const LevelFile& file, const Status& what) {
  const auto at =
      std::find_if(files_.begin(), files_.end(), [&](const auto& one) { return one.second.get() == &file; });
  const std::string name = at == files_.end() ? std::string("a file") : at->first;
  for (const Damage& known : damage_) {
    if (known.file.ends_with(name)) return;
  }
  damage_.push_back({base::JoinPath(format::kLevelsDir, name), what.message(), file.file_bytes()});
}

}  // namespace tdbg::store
