#include "ship/smdebug.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/regex.h"
#include "compat/smdebug/writer/run_directory.h"
#include "trial/elements.h"
#include "trial/reductions.h"
#include "trial/scalar_timestamps.h"

namespace tdbg::ship {
namespace {

// What is written of a tensor whose values were not kept; smdebug's rules ask for some of each kind.
constexpr auto kFromStatistics =
    std::to_array<std::string_view>({"min", "max", "mean", "std", "variance", "sum", "l1", "l2", "abs_min",
                                     "abs_max", "abs_mean", "abs_std", "abs_variance", "abs_sum"});

constexpr std::string_view kMarker = ".tdbg-export";
constexpr std::string_view kMarkerText = "written by tdbg export --to smdebug\n";

// As its configuration spells it.
std::string ConfiguredName(const std::string& reduction) {
  return reduction.ends_with("l1") || reduction.ends_with("l2") ? reduction + "_norm" : reduction;
}

smdebug::CollectionEntry EntryOf(const CollectionInfo& info) {
  smdebug::CollectionEntry entry;
  entry.name = info.name;
  entry.include_regex = info.include_regex;
  // Ours is everything by definition; smdebug's finds tensors that are first seen later by this pattern.
  if (info.name == "all" && entry.include_regex.empty()) entry.include_regex = {".*"};
  entry.tensor_names = info.tensor_names;
  entry.save_shape = info.save_shape;
  entry.save_raw = info.save_raw || (info.reductions.empty() && !info.save_shape);
  for (const std::string& name : info.reductions) entry.reductions.push_back(ConfiguredName(name));
  for (int mode = 1; mode <= 4; ++mode) {
    if (!info.save[mode]) continue;
    const SaveSchedule& from = *info.save[mode];
    smdebug::SaveSchedule to{from.save_interval, from.start_step, {}, from.save_steps};
    if (from.end_step >= 0) to.end = from.end_step;
    entry.modes[mode] = std::move(to);
  }
  entry.save_histogram = info.save_histogram;
  return entry;
}

class Smdebug : public Destination {
 public:
  Smdebug(SmdebugOptions options, Choice choice) : options_(std::move(options)), choice_(std::move(choice)) {}

  Status Take(const TrialAccess& access, size_t step) override;
  Status Rewind(int64_t global_step) override {
    return directory_ ? directory_->Rewind(global_step) : OkStatus();
  }
  // A step's files are visible when it was taken.
  Status Flush() override { return OkStatus(); }
  Status Finish(const TrialAccess& access) override {
    if (!options_.marks_end || !directory_ || !access.trial().loaded_all_steps()) return OkStatus();
    return smdebug::WriteEnd(options_.directory);
  }
  Shipped shipped() const override {
    Shipped out{steps_, bytes_, {{"tensors", tensors_}, {"reductions", reductions_}}};
    if (shapes_ != 0) out.counts.emplace_back("shapes", shapes_);
    return out;
  }

 private:
  Status Begin(const TrialAccess& access, const TrialAccess::Step& at);
  Status WriteCollections(const TrialAccess& access, const TrialAccess::Step& at);
  Status AddSaved(const TrialAccess& access, TensorIndex tensor, size_t at, WorkerIndex worker,
                  smdebug::StepFiles* files);
  Result<bool> TakeWorker(const TrialAccess& access, size_t step, WorkerIndex worker);

  const SmdebugOptions options_;
  Choice choice_;
  std::optional<smdebug::RunDirectory> directory_;
  size_t tensors_described_ = 0;  // in the collections files, and by how many workers
  size_t workers_described_ = 0;
  int64_t steps_ = 0;
  uint64_t tensors_ = 0, reductions_ = 0, shapes_ = 0, bytes_ = 0;
};

Status Smdebug::WriteCollections(const TrialAccess& access, const TrialAccess::Step& at) {
  const auto workers = access.workers_of_attempt(at.attempt);
  if (tensors_described_ == access.tensor_count() && workers_described_ == workers.size()) return OkStatus();
  std::vector<smdebug::CollectionEntry> entries;
  for (const CollectionInfo& info : access.trial().collections()) {
    // A rule's own needs are no collection of the user's; those without anything say nothing.
    if (info.name.starts_with("rule:")) continue;
    if (info.name != "default" && info.tensor_names.empty() && info.include_regex.empty()) continue;
    entries.push_back(EntryOf(info));
  }
  for (const WorkerIndex worker : workers) {
    TDBG_RETURN_IF_ERROR(directory_->WriteCollections(access.workers()[worker].name, entries,
                                                      std::max<int64_t>(1, access.world_size(at.attempt))));
  }
  tensors_described_ = access.tensor_count();
  workers_described_ = workers.size();
  return OkStatus();
}

Status Smdebug::Begin(const TrialAccess& access, const TrialAccess::Step& at) {
  if (!directory_) {
    // A recording of smdebug's own that we write into does not become ours to replace.
    const auto before = base::LocalFileSystem().List(options_.directory);
    const bool is_new = !before.ok() || before->empty();
    TDBG_ASSIGN_OR_RETURN(directory_, smdebug::RunDirectory::Create(options_.directory));
    if (is_new) {
      TDBG_RETURN_IF_ERROR(
          base::LocalFileSystem().WriteFileAtomic(base::JoinPath(options_.directory, kMarker), kMarkerText));
    }
    if (options_.restart) TDBG_RETURN_IF_ERROR(directory_->Rewind(at.info.global_step));
  }
  return WriteCollections(access, at);
}

Status Smdebug::AddSaved(const TrialAccess& access, TensorIndex tensor, size_t at, WorkerIndex worker_index,
                         smdebug::StepFiles* files) {
  const Trial& trial = access.trial();
  const TensorInfo& info = access.tensor(tensor);
  const int64_t step = access.steps()[at].info.global_step;
  const std::string& worker = access.workers()[worker_index].name;
  TDBG_ASSIGN_OR_RETURN(const std::vector<Reduction> saved, trial.saved_reductions(info.name, step, worker));
  for (const Reduction& reduction : saved) {
    const auto number = ElementAsDouble(reduction.value, 0);
    if (!number) continue;
    TDBG_RETURN_IF_ERROR(files->AddReduction(reduction.name, info.name, reduction.value.dtype, *number));
    ++reductions_;
  }
  const auto value = trial.value(info.name, step, worker);
  if (value.ok()) {
    TDBG_ASSIGN_OR_RETURN(const bool written, files->AddTensor(info.name, value->view));
    tensors_ += written;
    return OkStatus();
  }
  // Beside the value its reader would lose the value, whose own shape it is.
  if (const auto shape = access.SavedShapeAt(tensor, at, worker_index)) {
    files->AddShape(info.name, info.name, *shape);
    ++shapes_;
    return OkStatus();
  }
  if (!saved.empty()) return OkStatus();
  const auto summary = trial.summary(info.name, step, worker);
  if (!summary.ok()) return OkStatus();  // damaged: the trial says so, and the others are as good as ever
  for (const std::string_view name : kFromStatistics) {
    const auto number = ReductionOf(*summary, name);
    TDBG_RETURN_IF_ERROR(
        files->AddReduction(name, info.name, DType::kFloat64, number.value_or(Summary::kNaN)));
    ++reductions_;
  }
  return OkStatus();
}

Result<bool> Smdebug::TakeWorker(const TrialAccess& access, size_t step, WorkerIndex worker) {
  const TrialAccess::Step& at = access.steps()[step];
  const Trial& trial = access.trial();
  const int64_t global_step = at.info.global_step;
  const std::string& worker_name = access.workers()[worker].name;

  std::vector<TensorIndex> saved, others;
  for (const TensorIndex tensor : choice_.tensors()) {
    const auto kept = trial.is_kept(access.tensor(tensor).name, global_step, StepKind::kSaved, worker_name);
    (kept.ok() && *kept ? saved : others).push_back(tensor);
  }
  if (saved.empty()) return false;
  TDBG_RETURN_IF_ERROR(Begin(access, at));
  const smdebug::Moment moment{static_cast<int>(at.info.mode), at.info.mode_step,
                               static_cast<double>(at.info.wall_nanos) * 1e-9};
  TDBG_ASSIGN_OR_RETURN(
      smdebug::StepFiles files,
      directory_->OpenStep(global_step, moment.mode, moment.mode_step, worker_name, moment.wall_seconds));
  const auto said = ScalarTimestampsAt(access, global_step, worker);
  for (const TensorIndex tensor : saved) {
    smdebug::Moment own = moment;
    if (const auto it = said.find(access.tensor(tensor).name); it != said.end())
      own.wall_seconds = it->second;
    files.SetMoment(own);
    TDBG_RETURN_IF_ERROR(AddSaved(access, tensor, step, worker, &files));
  }
  files.SetMoment(moment);
  for (const TensorIndex tensor : others) {
    const auto number = access.ScalarAt(tensor, step, worker);
    if (!number) continue;
    const TensorInfo& info = access.tensor(tensor);
    const DType dtype = info.dtype == DType::kInvalid ? DType::kFloat64 : info.dtype;
    const TensorValue value = ElementValue(*number, dtype, {});
    TDBG_ASSIGN_OR_RETURN(const bool written, files.AddTensor(info.name, value.view));
    tensors_ += written;
  }
  bytes_ += files.bytes();
  TDBG_RETURN_IF_ERROR(files.Close());
  return true;
}

Status Smdebug::Take(const TrialAccess& access, size_t step) {
  const TrialAccess::Step& at = access.steps()[step];
  if (!choice_.WantsStep(at.info)) return OkStatus();
  choice_.Update(access);
  bool any = false;
  for (const WorkerIndex worker : access.workers_of_attempt(at.attempt)) {
    if (!choice_.WantsWorker(access.workers()[worker])) continue;
    TDBG_ASSIGN_OR_RETURN(const bool taken, TakeWorker(access, step, worker));
    any = any || taken;
  }
  steps_ += any;
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Destination>> MakeSmdebug(const SmdebugOptions& options) {
  TDBG_ASSIGN_OR_RETURN(Choice choice, Choice::Make(options.choice));
  return std::unique_ptr<Destination>(new Smdebug(options, std::move(choice)));
}

Status MarkSmdebugEnd(const std::string& directory) {
  return base::LocalFileSystem().Exists(directory) ? smdebug::WriteEnd(directory) : OkStatus();
}

Status UnmarkSmdebugEnd(const std::string& directory) { return smdebug::RemoveEnd(directory); }

bool IsOurSmdebugFile(const std::string& directory, const std::string& inside) {
  if (!base::LocalFileSystem().Exists(base::JoinPath(directory, kMarker))) return false;
  static const auto ours = base::Regex::Compile(
      R"(\A(?:collections/0{9}/[^/]+_collections\.json|events/(\d{12,})/\1_[^/]+\.tfevents(?:\.tmp)?|)"
      R"(index/\d{9,}/\d{12,}_[^/]+\.json|training_job_end\.ts|\.tdbg-export)\z)");
  return ours.ok() && ours->Search(inside);
}

}  // namespace tdbg::ship
