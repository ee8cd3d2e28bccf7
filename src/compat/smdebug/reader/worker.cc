#include "compat/smdebug/reader/worker.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "compat/smdebug/reader/names.h"
#include "compat/smdebug/reader/record_reader.h"
#include "compat/smdebug/reader/rows.h"

namespace tdbg::compat::smdebug {
namespace {

class SmdebugWorker final : public store::WorkerReader {
 public:
  SmdebugWorker(std::shared_ptr<Run> run, size_t worker)
      : run_(std::move(run)),
        index_(worker),
        part_(run_->part(worker)),
        records_(run_->root()),
        rows_(part_, [this](const StepFile& file, const Entry& entry) { return ReadEntry(file, entry); }) {
    info_.worker = part_.name();
    info_.rank = part_.rank();
    info_.adaptor = "smdebug";
  }

  Result<bool> Refresh() override {
    const size_t commits = part_.commits().size();
    const bool ended = run_->ended(index_);
    const bool alive = !ended && !run_->silent();
    const bool news = commits != commits_seen_ || ended != ended_ || alive != alive_;
    commits_seen_ = commits;
    ended_ = ended;
    alive_ = alive;
    return news;
  }
  const format::WorkerInfo& info() const override { return info_; }
  bool alive() const override { return alive_; }
  bool ended() const override { return ended_; }
  std::string end_json() const override { return {}; }
  int64_t last_seen_step() const override {
    return part_.commits().empty() ? -1 : part_.commits().back().global_step;
  }
  int64_t last_seen_wall_nanos() const override { return part_.last_wall_nanos(); }
  store::CommitList commits() const override { return store::CommitList(part_.commits()); }
  std::span<const format::TensorDef> tensors() const override { return part_.tensors(); }
  format::TensorDef Describe(format::TensorId tensor) override;
  std::span<const format::ContextRecord> context() const override { return {}; }
  std::span<const std::string> acks() const override { return {}; }
  std::vector<format::Drop> dropped() const override { return {}; }
  std::span<const store::Damage> damage() const override { return damage_; }
  uint64_t bytes_on_disk() const override { return part_.event_bytes(); }
  std::vector<std::string> doorbells() const override { return {}; }  // the run's, not a worker's
  uint64_t resealed() const override { return part_.reordered(); }
  uint64_t rewrites() const override { return part_.reordered(); }
  std::span<const store::SummaryBatch> summaries() const override { return rows_.batches(); }
  using WorkerReader::Prepare;
  void Prepare(uint32_t batch, uint32_t begin, uint32_t end, uint64_t columns) const override {
    if ((columns & ~format::kKeyColumns) != 0) rows_.Prepare(batch, begin, end);
  }
  std::span<const RowRef> RowsOf(format::TensorId tensor) const override { return rows_.Of(tensor); }
  PreparedRows Series(format::TensorId tensor, int64_t begin, int64_t end, uint64_t) const override {
    return rows_.Series(tensor, begin, end);
  }
  Result<Histogram> HistogramOf(RowRef row) const override { return rows_.HistogramOf(row); }
  std::span<const ScalarPoint> ScalarsOf(format::TensorId) const override { return {}; }
  std::span<const TensorScalar> ScalarsAt(int64_t) const override { return {}; }
  std::span<const store::RawRef> RawsOf(format::TensorId tensor) const override;
  std::span<const store::RawRef> LoneRawsOf(format::TensorId) const override { return {}; }  // each has a row
  std::span<const store::RawRef> RawsAt(format::TensorId tensor, int64_t global_step) const override;
  Result<store::RawValue> ReadRaw(const store::RawRef& ref) override;
  std::span<const int64_t> ShapeOf(const store::RawRef& ref) const override;
  std::vector<SavedReduction> ReductionsOf(format::TensorId tensor, int64_t global_step) const override;
  std::optional<std::vector<int64_t>> SavedShapeOf(format::TensorId tensor,
                                                   int64_t global_step) const override;
  std::span<const int64_t> SavedShapeSteps(format::TensorId tensor) const override;

 private:
  struct EntryRef {
    uint32_t commit, entry;
  };

  store::RawRef RefTo(uint32_t commit, const Entry& entry) const;
  Result<store::RawValue> ReadEntry(const StepFile& file, const Entry& entry);
  void BringEntriesUpToDate() const;
  /// The step's entries of one tensor, in file order.
  template <typename F>
  void ForEachEntry(format::TensorId tensor, int64_t global_step, F&& f) const;

  std::shared_ptr<Run> run_;
  size_t index_;
  const Part& part_;
  format::WorkerInfo info_;
  size_t commits_seen_ = 0;
  bool ended_ = false, alive_ = true;
  RecordReader records_;
  mutable Rows rows_;
  std::vector<store::Damage> damage_;
  std::unordered_set<std::string> damage_seen_;
  std::map<format::TensorId, format::TensorDef> described_;

  // Where the values of each tensor lie, and the refs of those somebody asked for.
  mutable std::vector<std::vector<EntryRef>> entries_;
  mutable std::vector<std::vector<int64_t>> shape_steps_;
  mutable size_t entries_commits_ = 0;
  mutable uint64_t entries_reordered_ = 0;
  mutable std::map<format::TensorId, std::vector<store::RawRef>> raws_;
  mutable std::vector<store::RawRef> raws_found_;  // the last RawsAt's
  mutable std::vector<int64_t> asked_shape_;
};

store::RawRef SmdebugWorker::RefTo(uint32_t commit, const Entry& entry) const {
  store::RawRef ref;
  ref.tensor = entry.tensor;
  ref.global_step = part_.commits()[commit].global_step;
  ref.commit = commit;
  ref.offset = entry.offset;
  ref.bytes = entry.bytes;
  ref.entry = part_.index_of(entry);
  return ref;
}

void SmdebugWorker::BringEntriesUpToDate() const {
  if (entries_reordered_ != part_.reordered()) {
    entries_reordered_ = part_.reordered();
    entries_.clear();
    shape_steps_.clear();
    raws_.clear();
    entries_commits_ = 0;
  }
  const size_t commits = part_.commits().size();
  if (entries_commits_ == commits) return;
  entries_.resize(part_.tensors().size());
  shape_steps_.resize(entries_.size());
  for (; entries_commits_ < commits; ++entries_commits_) {
    for (const Entry& entry : part_.entries_of(part_.file_of(entries_commits_))) {
      if (entry.kind == EntryKind::kShape) {
        std::vector<int64_t>& steps = shape_steps_[entry.tensor];
        const int64_t step = part_.commits()[entries_commits_].global_step;
        if (steps.empty() || steps.back() != step) steps.push_back(step);
      }
      if (entry.kind != EntryKind::kRaw) continue;
      entries_[entry.tensor].push_back({static_cast<uint32_t>(entries_commits_), part_.index_of(entry)});
    }
  }
}

std::span<const store::RawRef> SmdebugWorker::RawsOf(format::TensorId tensor) const {
  BringEntriesUpToDate();
  if (tensor >= entries_.size() || entries_[tensor].empty()) return {};
  std::vector<store::RawRef>& refs = raws_[tensor];
  const std::vector<EntryRef>& entries = entries_[tensor];
  refs.reserve(entries.size());
  for (size_t i = refs.size(); i < entries.size(); ++i) {
    refs.push_back(RefTo(entries[i].commit, part_.entry(entries[i].entry)));
  }
  return refs;
}

Result<store::RawValue> SmdebugWorker::ReadEntry(const StepFile& file, const Entry& entry) {
  const std::string event_file = part_.EventFileOf(file);
  auto record = records_.Read(event_file, entry.offset, entry.bytes);
  Status status = record.status();
  // The payload has no checksum that would tell that it is another tensor's.
  if (record.ok() && !part_.IsNameOf(record->tag, entry)) {
    status = DataLoss(event_file + ": the index leads to a record of '" + record->tag.substr(0, 200) + "'");
  }
  if (status.ok()) return std::move(record->value);
  if (status.code() != Code::kUnimplemented && damage_seen_.insert(status.message()).second) {
    damage_.push_back({event_file, status.message(), entry.bytes});
  }
  return status.Annotate(part_.tensors()[entry.tensor].name + " at step " + std::to_string(file.step));
}

Result<store::RawValue> SmdebugWorker::ReadRaw(const store::RawRef& ref) {
  if (ref.commit < 0 || static_cast<size_t>(ref.commit) >= part_.commits().size()) {
    return Internal("a raw value of no step");
  }
  return ReadEntry(part_.file_of(static_cast<size_t>(ref.commit)), part_.entry(ref.entry));
}

format::TensorDef SmdebugWorker::Describe(format::TensorId tensor) {
  if (const auto known = described_.find(tensor); known != described_.end()) return known->second;
  format::TensorDef def = part_.tensors()[tensor];
  // One of the first steps nearly always has a value, and then no list of all entries is made.
  constexpr size_t kSteps = 16;
  std::span<const store::RawRef> raws;
  const std::span<const format::Commit> commits = part_.commits();
  for (size_t i = 0; i < std::min(kSteps, commits.size()) && raws.empty(); ++i) {
    raws = RawsAt(tensor, commits[i].global_step);
  }
  if (raws.empty()) raws = RawsOf(tensor);
  if (raws.empty()) return def;
  const auto value = ReadRaw(raws.front());
  if (value.ok()) {
    def.dtype = value->dtype;
    def.shape = value->shape;
  }
  return described_[tensor] = def;
}

template <typename F>
void SmdebugWorker::ForEachEntry(format::TensorId tensor, int64_t global_step, F&& f) const {
  const auto commits = part_.commits();
  const auto at =
      std::lower_bound(commits.begin(), commits.end(), global_step,
                       [](const format::Commit& c, int64_t step) { return c.global_step < step; });
  if (at == commits.end() || at->global_step != global_step) return;
  const auto commit = static_cast<uint32_t>(at - commits.begin());
  for (const Entry& entry : part_.entries_of(part_.file_of(commit))) {
    if (entry.tensor == tensor) f(commit, entry);
  }
}

std::span<const store::RawRef> SmdebugWorker::RawsAt(format::TensorId tensor, int64_t global_step) const {
  raws_found_.clear();
  ForEachEntry(tensor, global_step, [&](uint32_t commit, const Entry& entry) {
    if (entry.kind == EntryKind::kRaw) raws_found_.push_back(RefTo(commit, entry));
  });
  return raws_found_;
}

std::vector<store::WorkerReader::SavedReduction> SmdebugWorker::ReductionsOf(format::TensorId tensor,
                                                                             int64_t global_step) const {
  std::vector<SavedReduction> out;
  ForEachEntry(tensor, global_step, [&](uint32_t commit, const Entry& entry) {
    if (entry.kind == EntryKind::kRaw || entry.kind == EntryKind::kShape) return;
    const Operation& operation = part_.operation(entry.kind);
    out.push_back({operation.name, operation.absolute, RefTo(commit, entry)});
  });
  return out;
}

std::optional<std::vector<int64_t>> SmdebugWorker::SavedShapeOf(format::TensorId tensor,
                                                                int64_t global_step) const {
  std::optional<std::vector<int64_t>> shape;
  ForEachEntry(tensor, global_step, [&](uint32_t, const Entry& entry) {
    if (entry.kind == EntryKind::kShape) shape = part_.shape(entry.offset);
  });
  return shape;
}

std::span<const int64_t> SmdebugWorker::SavedShapeSteps(format::TensorId tensor) const {
  BringEntriesUpToDate();
  return tensor < shape_steps_.size() ? std::span<const int64_t>(shape_steps_[tensor])
                                      : std::span<const int64_t>();
}

std::span<const int64_t> SmdebugWorker::ShapeOf(const store::RawRef& ref) const {
  if (const auto saved = SavedShapeOf(ref.tensor, ref.global_step)) {
    asked_shape_ = *saved;
  } else {
    // Only the value itself tells.
    auto value = const_cast<SmdebugWorker*>(this)->ReadRaw(ref);
    asked_shape_ = value.ok() ? std::move(value->shape) : std::vector<int64_t>();
  }
  return asked_shape_;
}

}  // namespace

std::unique_ptr<store::WorkerReader> MakeWorkerReader(std::shared_ptr<Run> run, size_t worker) {
  return std::make_unique<SmdebugWorker>(std::move(run), worker);
}

}  // namespace tdbg::compat::smdebug
