#include "ship/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/process.h"
#include "ship/output.h"
#include "ship/tensorboard_histogram.h"
#include "tfevents/event_writer.h"
#include "trial/elements.h"
#include "trial/lookup.h"

namespace tdbg::ship {
namespace {

constexpr std::string_view kFilesBeginWith = "events.out.tfevents.";
constexpr std::string_view kWriter = "tdbg";

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

std::string_view FolderOf(ModeKey mode) {
  switch (mode) {
    case ModeKey::kTrain:
      return "train";
    case ModeKey::kEval:
      return "eval";
    case ModeKey::kPredict:
      return "predict";
    case ModeKey::kGlobal:
      break;
  }
  return "global";
}

// The group under which TensorBoard shows a tensor: of its collections the one that says most.
std::string GroupOf(const TensorInfo& info) {
  for (const char* telling : {"losses", "metrics", "weights", "biases", "gradients", "buffers"}) {
    if (std::binary_search(info.collections.begin(), info.collections.end(), telling)) return telling;
  }
  for (const std::string& name : info.collections) {
    if (name != "all" && name != "default" && !name.starts_with("rule:")) return name;
  }
  return "tensors";
}

/// One growing event file.
class EventFile {
 public:
  static Result<std::unique_ptr<EventFile>> Create(const std::string& folder, int64_t restart_at) {
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(folder));
    static std::atomic<int> counter{0};
    const int64_t now = base::SystemClock().WallNanos();
    // TensorBoard reads a folder's files in the order of their names, hence the time in front.
    const std::string path =
        base::JoinPath(folder, fmt::format("{}{:010}.{}.{}.{}", kFilesBeginWith, now / 1'000'000'000,
                                           base::HostName(), ::getpid(), counter.fetch_add(1)));
    base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd.ok()) return base::PathError(errno, "cannot create", path);
    auto file = std::unique_ptr<EventFile>(new EventFile(std::move(fd), path));
    file->Append(tfevents::FileVersionEvent(Seconds(now), kWriter));
    if (restart_at >= 0) file->Append(tfevents::SessionStartEvent(Seconds(now), restart_at));
    return file;
  }

  void Append(std::string_view payload) {
    tfevents::AppendRecord(payload, tfevents::Footer::kPayloadCrc, &buffer_);
  }
  bool full() const { return buffer_.size() >= kBufferBytes; }
  Status Flush() {
    if (buffer_.empty()) return OkStatus();
    if (const int error = base::WriteFully(fd_.get(), std::as_bytes(std::span(buffer_)))) {
      return base::PathError(error, "cannot write", path_);
    }
    bytes_ += buffer_.size();
    buffer_.clear();
    return OkStatus();
  }
  uint64_t bytes() const { return bytes_ + buffer_.size(); }

 private:
  EventFile(base::UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  base::UniqueFd fd_;
  const std::string path_;
  std::string buffer_;
  uint64_t bytes_ = 0;
};

struct Tags {
  std::string value, mean_abs, std, nonfinite;
  bool seen_nonfinite = false;
};

class TensorBoard : public Destination {
 public:
  TensorBoard(TensorBoardOptions options, Choice choice)
      : options_(std::move(options)), choice_(std::move(choice)) {}

  Status Take(const TrialAccess& access, size_t step) override;
  Status Rewind(int64_t global_step) override {
    written_.clear();
    const double now = Seconds(base::SystemClock().WallNanos());
    for (auto& [folder, file] : files_) file->Append(tfevents::SessionStartEvent(now, global_step));
    return OkStatus();
  }
  Status Flush() override {
    for (auto& [folder, file] : files_) TDBG_RETURN_IF_ERROR(file->Flush());
    return OkStatus();
  }
  Status Finish(const TrialAccess&) override { return OkStatus(); }
  Shipped shipped() const override {
    Shipped out;
    out.steps = steps_;
    out.counts = {{"scalars", scalars_}, {"histograms", histograms_}};
    for (const auto& [folder, file] : files_) out.bytes += file->bytes();
    return out;
  }

 private:
  Tags& TagsOf(const TrialAccess& access, TensorIndex tensor);
  Status AddRow(const TrialAccess& access, size_t step, const TrialAccess::Row& row,
                tfevents::SummaryEvent* event);
  Result<bool> AddHistogram(const TrialAccess& access, size_t step, const TrialAccess::Row& row,
                            const Summary& summary, const std::string& tag, tfevents::SummaryEvent* event);
  Result<EventFile*> FileOf(const TrialAccess& access, const TrialAccess::Step& step, WorkerIndex worker);
  void AddScalar(const std::string& tag, double value, tfevents::SummaryEvent* event) {
    event->AddScalar(tag, value);
    ++scalars_;
  }

  const TensorBoardOptions options_;
  Choice choice_;
  std::map<std::string, std::unique_ptr<EventFile>> files_;  // by folder
  std::vector<Tags> tags_;                                   // by TensorIndex; empty texts: not made yet
  std::vector<TrialAccess::Row> rows_;                       // of the step and worker at hand
  static constexpr int kNothing = -1, kNumber = -2;
  std::vector<int> row_of_;  // by TensorIndex: into rows_, or one of these
  std::vector<TrialAccess::Scalar> numbers_;
  Summarizer summarizer_;
  // The interval of the last histogram that was written: its mode step divided by statistics_every.
  std::map<std::tuple<TensorIndex, WorkerIndex, ModeKey>, int64_t> written_;
  int64_t first_step_ = -1;  // taken
  int64_t steps_ = 0;
  uint64_t scalars_ = 0, histograms_ = 0;
};

Tags& TensorBoard::TagsOf(const TrialAccess& access, TensorIndex tensor) {
  if (tags_.size() <= tensor) tags_.resize(access.tensor_count());
  Tags& tags = tags_[tensor];
  if (tags.value.empty()) {
    const TensorInfo& info = access.tensor(tensor);
    const std::string group = GroupOf(info);
    tags.value = group + "/" + info.name;
    tags.mean_abs = group + "_mean_abs/" + info.name;
    tags.std = group + "_std/" + info.name;
    tags.nonfinite = group + "_nonfinite_count/" + info.name;
  }
  return tags;
}

Result<EventFile*> TensorBoard::FileOf(const TrialAccess& access, const TrialAccess::Step& step,
                                       WorkerIndex worker) {
  std::string folder = base::JoinPath(options_.directory, FolderOf(step.info.mode));
  if (access.world_size(step.attempt) > 1) folder = base::JoinPath(folder, access.workers()[worker].name);
  const auto found = files_.find(folder);
  if (found != files_.end()) return found->second.get();
  TDBG_ASSIGN_OR_RETURN(std::unique_ptr<EventFile> file,
                        EventFile::Create(folder, options_.restart ? first_step_ : -1));
  return files_.emplace(std::move(folder), std::move(file)).first->second.get();
}

Result<bool> TensorBoard::AddHistogram(const TrialAccess& access, size_t step, const TrialAccess::Row& row,
                                       const Summary& summary, const std::string& tag,
                                       tfevents::SummaryEvent* event) {
  if (summary.finite_count() == 0) return false;
  Histogram buckets;
  if (row.has_histogram()) {
    auto kept = access.HistogramOf(row);
    if (!kept.ok()) return false;  // damaged: the trial says so, and the others are as good as ever
    buckets = *std::move(kept);
  } else {
    const auto raw = access.RawAt(row.tensor, step, row.worker, row.sub);
    if (!raw) return false;
    const auto value = access.ReadRaw(*raw);
    Summary again;
    if (!value.ok() || !summarizer_.Summarize(value->view, &again, &buckets).ok()) return false;
    if (again.count != summary.count) return false;  // one worker's part of it
  }
  event->AddHistogram(tag, MakeTensorBoardHistogram(summary, buckets));
  ++histograms_;
  return true;
}

Status TensorBoard::AddRow(const TrialAccess& access, size_t step, const TrialAccess::Row& row,
                           tfevents::SummaryEvent* event) {
  const Summary summary = row.summary();
  Tags& tags = TagsOf(access, row.tensor);
  if (summary.count == 1) {
    if (const auto value = OnlyElement(summary, access.tensor(row.tensor).dtype))
      AddScalar(tags.value, *value, event);
    return OkStatus();
  }
  const StepInfo& at = access.steps()[step].info;
  const bool due = at.mode_step % options_.statistics_every == 0;
  if (due) {
    if (summary.finite_count() > 0) {
      AddScalar(tags.mean_abs, summary.mean_abs(), event);
      AddScalar(tags.std, std::sqrt(summary.variance), event);
    }
    const uint64_t nonfinite = summary.count - summary.finite_count();
    // Flat zero lines for every tensor would bury the one that matters.
    tags.seen_nonfinite = tags.seen_nonfinite || nonfinite > 0;
    if (tags.seen_nonfinite) AddScalar(tags.nonfinite, static_cast<double>(nonfinite), event);
  }
  // Not every step has a histogram: the first one of each interval is taken.
  if (!due && !row.has_histogram()) return OkStatus();
  const int64_t interval = at.mode_step / options_.statistics_every;
  const auto last = written_.try_emplace({row.tensor, row.worker, at.mode}, interval - 1).first;
  if (last->second == interval) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const bool written, AddHistogram(access, step, row, summary, tags.value, event));
  if (written) last->second = interval;
  return OkStatus();
}

Status TensorBoard::Take(const TrialAccess& access, size_t step) {
  const TrialAccess::Step& at = access.steps()[step];
  if (!choice_.WantsStep(at.info)) return OkStatus();
  if (first_step_ < 0) first_step_ = at.info.global_step;
  choice_.Update(access);
  numbers_.clear();
  access.ScalarsOf(step, &numbers_);
  bool any = false;
  // Asked for once: if each worker asked, 64 of them would put all parts together 64 times, and look at 64
  // workers' rows each. Nothing below asks for a step's rows again.
  const std::span<const TrialAccess::RowSpan> spans = access.RowSpansOf(step);
  for (const WorkerIndex worker : access.workers_of_attempt(at.attempt)) {
    if (!choice_.WantsWorker(access.workers()[worker])) continue;
    tfevents::SummaryEvent event(Seconds(at.info.wall_nanos), at.info.global_step);

    // If a step has several values (micro-steps), the one that the trial's own calls answer with.
    rows_.clear();
    row_of_.assign(access.tensor_count(), kNothing);
    for (const TrialAccess::RowSpan& span : spans) {
      for (uint32_t i = span.worker == worker ? span.begin : span.end; i < span.end; ++i) {
        const TrialAccess::Row row = span.row(i);
        if (!choice_.WantsTensor(row.tensor)) continue;
        int& slot = row_of_[row.tensor];
        if (slot < 0) {
          slot = static_cast<int>(rows_.size());
          rows_.push_back(row);
        } else if (const bool last = access.LastCounts(row.tensor);
                   Preference(row.sub, last) >= Preference(rows_[static_cast<size_t>(slot)].sub, last)) {
          rows_[static_cast<size_t>(slot)] = row;
        }
      }
    }
    for (const TrialAccess::Row& row : rows_) TDBG_RETURN_IF_ERROR(AddRow(access, step, row, &event));

    std::map<TensorIndex, TrialAccess::Scalar> numbers;
    for (const TrialAccess::Scalar& number : numbers_) {
      if (number.worker != worker || !choice_.WantsTensor(number.tensor)) continue;
      const auto [place, fresh] = numbers.try_emplace(number.tensor, number);
      if (!fresh && Preference(number.sub) >= Preference(place->second.sub)) place->second = number;
    }
    for (const auto& [tensor, number] : numbers) {
      AddScalar(access.tensor(tensor).name, number.value, &event);
      row_of_[tensor] = kNumber;
    }

    if (event.empty()) continue;
    any = true;
    TDBG_ASSIGN_OR_RETURN(EventFile* const file, FileOf(access, at, worker));
    file->Append(event.Payload());
    if (file->full()) TDBG_RETURN_IF_ERROR(file->Flush());
  }
  steps_ += any;
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Destination>> MakeTensorBoard(const TensorBoardOptions& options) {
  TDBG_ASSIGN_OR_RETURN(Choice choice, Choice::Make(options.choice));
  if (options.statistics_every < 1) {
    return InvalidArgument(
        fmt::format("every: found {}, expected an integer of at least 1", options.statistics_every));
  }
  return std::unique_ptr<Destination>(new TensorBoard(options, std::move(choice)));
}

bool IsOurTensorBoardFile(const std::string& directory, const std::string& inside) {
  // Others (PyTorch's SummaryWriter) name theirs in the same way.
  return base::BaseName(inside).starts_with(kFilesBeginWith) &&
         tfevents::IsWrittenBy(HeadOf(base::JoinPath(directory, inside), 256), kWriter);
}

}  // namespace tdbg::ship
