#include "store/compactor/compactor.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/below.h"
#include "format/level.h"
#include "format/segment.h"
#include "format/version.h"
#include "store/compactor/group_builder.h"
#include "store/compactor/thinner.h"
#include "store/reader/level_reader.h"
#include "store/reader/worker_reader.h"

namespace tdbg::store {
namespace {

/// A row of all columns in a file, histograms aside.
constexpr uint64_t kRowBytes = 600;

class Compactor {
 public:
  Compactor(const std::string& worker_directory, const CompactOptions& options, base::FileSystem* files)
      : segments_directory_(base::JoinPath(worker_directory, format::kSegmentsDir)),
        directory_(base::JoinPath(worker_directory, format::kLevelsDir)),
        options_(options),
        files_(files),
        levels_(worker_directory) {}

  Status Run(WorkerReader* reader, CompactResult* result) {
    reader_ = reader;
    result_ = result;
    TDBG_RETURN_IF_ERROR(RemoveUnfinished());
    TDBG_ASSIGN_OR_RETURN(const uint64_t bytes, Bytes());
    over_budget_ = options_.retention.budget_bytes != 0 && bytes > options_.retention.budget_bytes;
    levels_.Refresh();
    // Once more where damage came to light that can be mended.
    for (int tries = 0; tries < 2; ++tries) {
      TDBG_ASSIGN_OR_RETURN(const bool mended, RemoveDamaged());
      if (tries == 1 && !mended) break;
      TDBG_RETURN_IF_ERROR(FromSegments(/*all=*/mended));
      for (uint32_t level = 2; level <= format::kMaxLevel; ++level) {
        levels_.Refresh();
        // Where a lower level was dropped since, the higher ones go on from theirs.
        if (levels_.GroupsOf(level - 1).size() < size_t{format::kLevelRows}) continue;
        TDBG_RETURN_IF_ERROR(FromLevel(level));
      }
      levels_.Refresh();
    }
    result->covered_until = CoveredUntil();
    result->damaged_files = levels_.damage().size() - to_mend_.size();
    if (options_.retention.budget_bytes != 0) TDBG_RETURN_IF_ERROR(Retain());
    TDBG_ASSIGN_OR_RETURN(result->segment_bytes, BytesOf(segments_directory_));
    TDBG_ASSIGN_OR_RETURN(result->level_bytes, BytesOf(directory_));
    return OkStatus();
  }

 private:
  /// What a compactor that was killed left. The lock says that nobody writes it now.
  Status RemoveUnfinished() {
    TDBG_ASSIGN_OR_RETURN(const auto entries, files_->List(directory_));
    for (const base::DirEntry& entry : entries) {
      if (entry.name.starts_with(".tmp-"))
        TDBG_RETURN_IF_ERROR(files_->Remove(base::JoinPath(directory_, entry.name)));
    }
    return OkStatus();
  }

  /// Damaged files whose steps are all there yet: they are written again. True if there was one.
  Result<bool> RemoveDamaged() {
    bool any = false;
    const CommitList commits = reader_->commits();
    for (const Damage& damage : levels_.damage()) {
      const std::string name = base::BaseName(damage.file);
      const auto of = format::LevelFileName::Parse(name);
      const std::string path = base::JoinPath(directory_, name);
      if (!of || !files_->Exists(path) || !removed_.insert(name).second) continue;
      // The level below may have been dropped up to somewhere in its steps: then it cannot be made again.
      const auto is_below = [&](int64_t step) {
        return Has(of->level - 1, step) || std::ranges::any_of(to_mend_, [&](const auto& file) {
                 return file.level == of->level - 1 && file.first_step <= step && step <= file.last_step;
               });
      };
      bool gone = of->level > 1 && !(is_below(of->first_step) && is_below(of->last_step));
      for (size_t i = commits.LowerBound(of->first_step); of->level == 1 && i < commits.size(); ++i) {
        if (commits.StepOf(i) > of->last_step) break;
        gone |= (commits[i].flags & format::kCommitThinned) != 0;
      }
      if (gone) continue;
      TDBG_RETURN_IF_ERROR(files_->Remove(path));
      to_mend_.push_back(*of);
      any = true;
    }
    if (any) levels_.Refresh();
    return any;
  }
  bool Has(uint32_t level, int64_t global_step) const {
    const LevelReader::Group* const group = levels_.At(level, global_step);
    return group != nullptr && group->step_first <= global_step;
  }
  /// By this level or, where it was dropped since, by a higher one.
  bool IsCovered(uint32_t level, int64_t global_step) const {
    if (Has(level, global_step)) return true;
    for (const format::LevelFileName& file : to_mend_) {
      if (file.level == level && file.first_step <= global_step && global_step <= file.last_step)
        return false;
    }
    for (++level; level <= levels_.highest_level(); ++level) {
      if (Has(level, global_step)) return true;
    }
    return false;
  }
  int64_t CoveredUntil() const {
    int64_t until = -1;
    for (uint32_t level = 1; level <= levels_.highest_level(); ++level)
      until = std::max(until, levels_.CoveredUntil(level));
    return until;
  }

  // Rows of one commit, and only those of sealed batches that can be believed.
  template <typename F>
  void ForEachRowOf(const format::Commit& commit, F&& f) {
    const std::span<const SummaryBatch> batches = reader_->summaries();
    constexpr auto kEnd = static_cast<uint16_t>(format::Point::kEnd);
    for (; batch_ < sealed_batches_; ++batch_, row_ = 0) {
      const SummaryBatch& batch = batches[batch_];
      const auto rows = static_cast<uint32_t>(batch.rows);
      if (row_ == 0) reader_->Prepare(static_cast<uint32_t>(batch_), 0, rows);
      if (batch.damaged != 0) {
        if (damaged_batches_.insert(batch_).second) result_->damaged_rows += rows;
        continue;
      }
      while (row_ < rows && batch.step_last[row_] < commit.global_step) ++row_;
      for (; row_ < rows && batch.step_last[row_] == commit.global_step; ++row_) {
        if (batch.point[row_] != kEnd && batch.level[row_] == 0) f(batch, batch_, row_);
      }
      if (row_ < rows) return;
    }
  }
  void StartAt(const CommitList& commits, size_t commit) {
    const std::span<const SummaryBatch> batches = reader_->summaries();
    sealed_batches_ = std::min(reader_->final_batches(), batches.size());
    batch_ = 0;
    row_ = 0;
    while (batch_ + 1 < sealed_batches_ && commit < commits.size() &&
           batches[batch_ + 1].first_commit <= static_cast<int64_t>(commit)) {
      ++batch_;
    }
  }

  /// \param all  from the first step on, since an older file is missing
  Status FromSegments(bool all) {
    const CommitList commits = reader_->commits();
    size_t at = commits.LowerBound(all ? 0 : CoveredUntil() + 1);
    StartAt(commits, at);
    format::LevelContent content;
    GroupBuilder builder;
    std::vector<format::Commit> group;
    const auto close = [&]() {
      for (const format::Commit& commit : group) {
        ForEachRowOf(commit, [&](const SummaryBatch& batch, size_t, uint32_t row) {
          builder.AddRow({batch.tensor[row], batch.sub[row], batch.point[row], commit.mode},
                         commit.global_step, batch.at(row), batch.flags[row]);
        });
        builder.AddStep(commit);
      }
      builder.Finish(1, &content);
      group.clear();
    };
    for (; at < commits.sealed(); ++at) {
      const format::Commit commit = commits[at];
      if ((commit.flags & (format::kCommitOutside | format::kCommitThinned)) != 0) continue;
      if (!group.empty() && group.back().global_step == commit.global_step) {
        group.back().shed += commit.shed;  // one step, and no group ends inside of it
        continue;
      }
      if (group.size() == size_t{format::kLevelRows}) {
        close();
        TDBG_RETURN_IF_ERROR(WriteIfFull(1, &content));
      }
      if (all && IsCovered(1, commit.global_step)) {
        group.clear();
        TDBG_RETURN_IF_ERROR(WriteIfAny(1, &content));  // a file has no gaps
        continue;
      }
      group.push_back(commit);
    }
    // That the next step has begun is how one knows that this one has no further commit.
    if (group.size() == size_t{format::kLevelRows} && !reader_->alive()) close();
    return WriteRest(1, &content);
  }

  // Histograms are merged from single steps up to the first level that has any.
  void AddHistograms(const CommitList& commits, int64_t first_step, int64_t last_step,
                     GroupBuilder* builder) {
    for (size_t at = commits.LowerBound(first_step); at < commits.sealed(); ++at) {
      const format::Commit commit = commits[at];
      if (commit.global_step > last_step) break;
      if ((commit.flags & format::kCommitOutside) != 0) continue;
      ForEachRowOf(commit, [&](const SummaryBatch& batch, size_t of, uint32_t row) {
        if (batch.histogram_bytes[row] == 0) return;
        const auto histogram =
            reader_->HistogramOf({static_cast<uint32_t>(of),
                                  row,
                                  commit.global_step,
                                  {batch.sub[row], static_cast<format::Point>(batch.point[row])}});
        if (!histogram.ok()) return;  // the reader says so
        builder->AddHistogram({batch.tensor[row], batch.sub[row], batch.point[row], commit.mode}, *histogram);
      });
    }
  }

  Status FromLevel(uint32_t level) {
    const std::span<const LevelReader::Group> below = levels_.GroupsOf(level - 1);
    format::LevelContent content;
    GroupBuilder builder;
    const CommitList commits = reader_->commits();
    bool started = false;
    constexpr size_t kRows{format::kLevelRows};
    for (size_t at = 0; at + kRows <= below.size();) {
      const auto group = below.subspan(at, kRows);
      const auto covered = std::find_if(group.rbegin(), group.rend(), [&](const LevelReader::Group& one) {
        return IsCovered(level, one.step_first);
      });
      if (covered != group.rend()) {
        at += static_cast<size_t>(group.rend() - covered);
        TDBG_RETURN_IF_ERROR(WriteIfAny(level, &content));
        continue;
      }
      at += kRows;
      if (!started) StartAt(commits, commits.LowerBound(group.front().step_first));
      started = true;
      for (const LevelReader::Group& one : group) {
        if (const Status added = AddGroup(level, one, &builder); !added.ok()) {
          levels_.Report(*one.file, added);
          return WriteIfAny(level, &content);
        }
      }
      if (level == format::kFirstLevelWithHistograms)
        AddHistograms(commits, group.front().step_first, group.back().step_last, &builder);
      builder.Finish(level, &content);
      TDBG_RETURN_IF_ERROR(WriteIfFull(level, &content));
    }
    return WriteRest(level, &content);
  }

  Status AddGroup(uint32_t level, const LevelReader::Group& group, GroupBuilder* builder) {
    LevelFile& file = *group.file;
    TDBG_ASSIGN_OR_RETURN(const LevelRows* const rows, file.Rows());
    builder->AddGroup(file.GroupAt(group.group));
    const size_t end = file.FirstRow(group.group + 1);
    for (size_t row = file.FirstRow(group.group); row < end; ++row) {
      TDBG_ASSIGN_OR_RETURN(const uint32_t tensor, TensorOf(file, *rows, row));
      builder->AddCoarseRow(*rows, row, tensor);
      const auto& s = rows->summaries;
      if (level <= format::kFirstLevelWithHistograms || s.histogram_bytes[row] == 0) continue;
      TDBG_ASSIGN_OR_RETURN(const Histogram histogram, file.HistogramOf(row));
      builder->AddHistogram({tensor, s.sub[row], s.point[row], rows->over.mode[row]}, histogram);
    }
    return OkStatus();
  }

  /// A file's own id of a tensor -> the reader's.
  Result<uint32_t> TensorOf(const LevelFile& file, const LevelRows& rows, size_t row) {
    if (ids_of_ != &file) {
      ids_of_ = &file;
      ids_.clear();
      for (const format::TensorDef& def : *file.tensors()) {
        const auto tensors = reader_->tensors();
        const auto is_it = [&](const format::TensorDef& known) {
          return known.name == def.name && known.dtype == def.dtype && known.shape == def.shape &&
                 known.part_begin == def.part_begin;
        };
        auto same = tensors.begin() + static_cast<ptrdiff_t>(std::min<size_t>(def.id, tensors.size()));
        if (same == tensors.end() || !is_it(*same))
          same = std::find_if(tensors.begin(), tensors.end(), is_it);
        if (same != tensors.end()) ids_[def.id] = static_cast<uint32_t>(same - tensors.begin());
      }
    }
    const auto at = ids_.find(rows.summaries.tensor[row]);
    if (at == ids_.end()) return DataLoss("levels/: rows of a tensor that is not defined");
    return at->second;
  }

  static uint64_t SizeOf(const format::LevelContent& content) {
    return content.summaries.tensor.size() * kRowBytes + content.histograms.size();
  }
  Status WriteIfFull(uint32_t level, format::LevelContent* content) {
    return SizeOf(*content) < options_.file_bytes ? OkStatus() : Write(level, content);
  }
  Status WriteIfAny(uint32_t level, format::LevelContent* content) {
    return content->groups.steps.empty() ? OkStatus() : Write(level, content);
  }
  Status WriteRest(uint32_t level, format::LevelContent* content) {
    const size_t groups = content->groups.steps.size();
    if (groups == 0) return OkStatus();
    bool enough = SizeOf(*content) >= options_.least_bytes || groups >= options_.least_groups;
    // Nothing can be dropped of what level 2 does not tell of: of few tensors that would be 65536 steps,
    // however large their values are. Then rather small files.
    if (over_budget_ && level <= format::kFirstLevelWithHistograms)
      enough |= groups >= (level < format::kFirstLevelWithHistograms ? size_t{format::kLevelRows} : 1);
    return enough || !reader_->alive() ? Write(level, content) : OkStatus();
  }

  Status Write(uint32_t level, format::LevelContent* content) {
    format::LevelMeta& meta = content->meta;
    meta.run_id = reader_->info().run_id;
    meta.attempt = reader_->info().attempt;
    meta.worker = reader_->info().worker;
    meta.writer_id = reader_->info().writer_id;
    meta.level = level;
    const std::set<uint32_t> tensors(content->summaries.tensor.begin(), content->summaries.tensor.end());
    for (const uint32_t tensor : tensors) {
      meta.tensors.push_back(reader_->tensors()[tensor]);
      meta.tensors.back().id = tensor;
    }
    const std::string file = format::EncodeLevel(*content);
    const std::string name =
        format::LevelFileName{level, content->groups.step_first.front(), content->groups.step_last.back()}
            .ToString();
    TDBG_ASSIGN_OR_RETURN(const auto pending,
                          files_->CreatePending(base::JoinPath(directory_, ".tmp-" + name)));
    TDBG_RETURN_IF_ERROR(pending->Write(std::as_bytes(std::span(file))));
    // Durable: fine rows are dropped because these are there.
    TDBG_RETURN_IF_ERROR(pending->Publish(base::JoinPath(directory_, name), /*durable=*/true));
    ++result_->files;
    result_->groups += content->groups.steps.size();
    result_->bytes += file.size();
    *content = {};
    return OkStatus();
  }

  Result<uint64_t> BytesOf(const std::string& directory) const {
    uint64_t bytes = 0;
    if (!files_->Exists(directory)) return bytes;
    TDBG_ASSIGN_OR_RETURN(const auto entries, files_->List(directory));
    for (const base::DirEntry& entry : entries) bytes += entry.size;
    return bytes;
  }

  Result<uint64_t> Bytes() const {
    TDBG_ASSIGN_OR_RETURN(const uint64_t segments, BytesOf(segments_directory_));
    TDBG_ASSIGN_OR_RETURN(const uint64_t levels, BytesOf(directory_));
    return segments + levels;
  }

  /// Drops what coarse rows tell of: rows and raw values of single steps, then the lower levels, the oldest
  /// first.
  Status Retain() {
    TDBG_ASSIGN_OR_RETURN(uint64_t bytes, Bytes());
    const Retention& retention = options_.retention;
    if (bytes <= retention.budget_bytes) return OkStatus();
    const uint64_t target = retention.budget_bytes - std::min(retention.budget_bytes, retention.slack_bytes);
    const CommitList commits = reader_->commits();
    if (commits.empty()) return OkStatus();
    // The first and the last steps, without what was recorded outside of them.
    const auto nth_step = [&commits](size_t at, int64_t by, int64_t n) {
      int64_t step = -1;
      for (; n > 0 && at < commits.size(); at += static_cast<size_t>(by)) {
        const format::Commit commit = commits[at];
        if ((commit.flags & format::kCommitOutside) != 0) continue;
        step = commit.global_step;
        --n;
      }
      return step;
    };
    const int64_t early = nth_step(0, 1, retention.first);
    const int64_t late = nth_step(commits.size() - 1, -1, retention.newest);
    const auto keeps_step = [&](int64_t step) {
      if ((retention.first > 0 && step <= early) || (retention.newest > 0 && step >= late)) return true;
      for (const Retention::Steps& kept : retention.kept) {
        if (kept.first <= step && step <= kept.last) return true;
      }
      // Histograms begin at level 2.
      return !IsCovered(format::kFirstLevelWithHistograms, step);
    };
    // A loss or a metric is one number a step: of a long run it costs nothing beside the rest, and it is what
    // people look at first.
    const auto keeps_row = [](const format::TensorDef& def) {
      const auto in = [&](std::string_view collection) {
        return std::find(def.collections.begin(), def.collections.end(), collection) != def.collections.end();
      };
      return std::all_of(def.shape.begin(), def.shape.end(), [](int64_t extent) { return extent == 1; }) &&
             (def.kind == "loss" || in("losses") || in("metrics"));
    };
    TDBG_ASSIGN_OR_RETURN(const auto segments, files_->List(segments_directory_));
    for (const base::DirEntry& entry : segments) {
      if (bytes <= target) return OkStatus();
      if (!format::ParseSegmentFileName(entry.name)) continue;
      const std::string path = base::JoinPath(segments_directory_, entry.name);
      TDBG_ASSIGN_OR_RETURN(const auto mapping, base::ReadOnlyMapping::Open(path));
      const auto thinned = ThinSegment(mapping->bytes(), entry.name, keeps_step, keeps_row);
      if (!thinned.ok()) {
        if (thinned.status().code() == Code::kDataLoss) continue;  // it stays as it is
        return thinned.status();
      }
      if (thinned->file.empty()) continue;
      // Not in segments/: a writer that starts there takes what is unfinished for its own.
      TDBG_ASSIGN_OR_RETURN(const auto pending,
                            files_->CreatePending(base::JoinPath(directory_, ".tmp-" + entry.name)));
      TDBG_RETURN_IF_ERROR(pending->Write(std::as_bytes(std::span(thinned->file))));
      TDBG_RETURN_IF_ERROR(pending->Publish(path, /*durable=*/true));
      bytes -= std::min<uint64_t>(bytes, entry.size);
      bytes += thinned->file.size();
      result_->thinned_steps += thinned->steps;
      result_->dropped_rows += thinned->rows;
      result_->dropped_raws += thinned->raws;
    }
    for (uint32_t level = 1; level < levels_.highest_level() && bytes > target; ++level) {
      TDBG_ASSIGN_OR_RETURN(const auto files, files_->List(directory_));
      for (const base::DirEntry& entry : files) {
        if (bytes <= target) break;
        const auto name = format::LevelFileName::Parse(entry.name);
        if (!name || name->level != level || !IsCovered(level + 1, name->first_step) ||
            !IsCovered(level + 1, name->last_step)) {
          continue;
        }
        TDBG_RETURN_IF_ERROR(files_->Remove(base::JoinPath(directory_, entry.name)));
        bytes -= std::min<uint64_t>(bytes, entry.size);
      }
    }
    if (bytes > retention.budget_bytes) result_->over_bytes = bytes - retention.budget_bytes;
    return OkStatus();
  }

  const std::string segments_directory_;
  const std::string directory_;
  const CompactOptions& options_;
  base::FileSystem* const files_;
  LevelReader levels_;
  WorkerReader* reader_ = nullptr;
  CompactResult* result_ = nullptr;
  bool over_budget_ = false;
  size_t sealed_batches_ = 0, batch_ = 0;
  uint32_t row_ = 0;
  std::set<size_t> damaged_batches_;
  std::set<std::string> removed_;               // damaged files that were looked at
  std::vector<format::LevelFileName> to_mend_;  // those of them that were removed
  const LevelFile* ids_of_ = nullptr;
  std::map<uint32_t, uint32_t> ids_;
};

}  // namespace

Result<CompactResult> CompactWorker(const std::string& worker_directory, const CompactOptions& options) {
  // Who may read the worker's files may read those that take their place, whatever the umask is here.
  base::FileSystem* const files =
      options.files ? options.files : &base::FilesBelow(base::LocalFileSystem(), worker_directory);
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerReader> reader, WorkerReader::Open(worker_directory));
  const std::string levels = base::JoinPath(worker_directory, format::kLevelsDir);
  TDBG_RETURN_IF_ERROR(files->CreateDirectories(levels));
  auto lock = files->Lock(base::JoinPath(levels, format::kLevelsLockFile));
  if (!lock.ok()) {
    if (lock.status().code() != Code::kFailedPrecondition) return lock.status();
    return FailedPrecondition("another tdbg compacts it now: " + worker_directory);
  }
  CompactResult result;
  TDBG_RETURN_IF_ERROR(Compactor(worker_directory, options, files).Run(reader.get(), &result));
  return result;
}

Result<std::vector<std::string>> WorkerDirectoriesOf(const std::string& run) {
  base::FileSystem& files = base::LocalFileSystem();
  if (!files.Exists(base::JoinPath(run, format::kRunFile))) return NotFound("no run of tdbg's: " + run);
  TDBG_ASSIGN_OR_RETURN(const auto attempts, files.List(run));
  std::vector<std::pair<int64_t, std::string>> numbered;
  for (const base::DirEntry& entry : attempts) {
    int64_t number = 0;
    const auto [end, error] =
        std::from_chars(entry.name.data(), entry.name.data() + entry.name.size(), number);
    if (error == std::errc() && end == entry.name.data() + entry.name.size() && entry.is_directory)
      numbered.emplace_back(number, base::JoinPath(run, entry.name));
  }
  std::sort(numbered.begin(), numbered.end());
  std::vector<std::string> out;
  for (const auto& [number, attempt] : numbered) {
    TDBG_ASSIGN_OR_RETURN(const auto workers, files.List(attempt));
    for (const base::DirEntry& entry : workers) {
      const std::string worker = base::JoinPath(attempt, entry.name);
      if (entry.is_directory && files.Exists(base::JoinPath(worker, format::kWorkerFile)))
        out.push_back(worker);
    }
  }
  return out;
}

}  // namespace tdbg::store
