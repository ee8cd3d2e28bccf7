// tdbg compact: merges a run's steps into coarse rows, and keeps it within a budget.
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/background.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/compaction.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"

namespace tdbg::cli {
namespace {

// A follower looks for what is new so often, and rests for twenty times as long as it has worked: it takes no
// more than a twentieth of a core. What it drops makes room for what the training writes meanwhile, and waits
// for less.
constexpr int64_t kLeastPauseMillis = 2'000, kMostPauseMillis = 600'000, kRest = 20, kRestWhereFull = 1;
// An eighth of the budget at once, so that it is not at work all the time once a budget is full.
constexpr uint64_t kSlack = 8;

class CompactCommand : public Command {
 public:
  std::string name() const override { return "compact"; }
  std::string help() const override {
    return "merge a run's steps into coarse rows, and keep it within a budget";
  }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags
        .AddOption("--budget", budget_,
                   "drop single steps, the oldest first, until each worker has no more than SIZE (8GiB), or "
                   "than three quarters of the run's own budget (own)")
        .TypeName("SIZE|own");
    flags
        .AddOption("--keep", around_,
                   "never drop so many steps at the beginning, at the end, and around findings and marks; "
                   "default 500")
        .Check(IntegerFrom(0));
    flags.AddFlag("--follow", follow_, "go on, at the lowest priority, until standard input closes");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer(
        "\nWithout --budget nothing is dropped. What is dropped is said by `tdbg steps`, and `tdbg check` "
        "does "
        "not judge\nit; charts show its coarse rows. `tdbg keep RUN --steps A:B` marks steps that stay.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRun(run_));
    CompactionRequest request;
    request.around = around_;
    if (budget_ == "own") {
      TDBG_ASSIGN_OR_RETURN(request.budget_bytes, OwnBudget(path));
    } else if (!budget_.empty()) {
      const auto bytes = base::ParseBytes(budget_);
      if (!bytes || *bytes == 0)
        return InvalidArgument("--budget: found \"" + budget_ + "\", accepted: a size such as 8GiB, or own");
      request.budget_bytes = *bytes;
    }
    if (follow_) return Follow(path, request);
    TDBG_ASSIGN_OR_RETURN(const std::vector<CompactedWorker> workers, CompactRun(path, request));
    Show(path, workers);
    for (const CompactedWorker& worker : workers) {
      if (worker.result.damaged_files + worker.result.damaged_rows != 0)
        return DataLoss(
            fmt::format("{}: some of what was recorded is damaged and was left out; `tdbg status "
                        "{}` names it",
                        worker.name, ShellWord(run_)));
    }
    return kExitOk;
  }

 private:
  // Beside a training: it takes what the training leaves of the processor and of the disk.
  static Result<int> Follow(const std::string& path, CompactionRequest request) {
    request.slack_bytes = request.budget_bytes / kSlack;
    base::StayInBackground();
    (void)::setpriority(PRIO_PROCESS, 0, 19);
    const base::Clock& clock = base::SystemClock();
    std::string told;
    CompactionPasses passes;
    for (int64_t pause_millis = 0;;) {
      pollfd job{STDIN_FILENO, POLLIN, 0};
      passes.job_is_over = ::poll(&job, 1, static_cast<int>(pause_millis)) > 0;
      const int64_t began_nanos = clock.MonotonicNanos();
      const auto done = CompactRun(path, request, &passes);
      // The run may not be there yet, be moved, or lie on a full disk: the next look may do better.
      if (!done.ok() && done.status().message() != told) {
        told = done.status().message();
        Note("steps are not compacted: " + told);
      }
      if (passes.job_is_over) return kExitOk;
      const int64_t took_millis = (clock.MonotonicNanos() - began_nanos) / 1'000'000;
      const bool full =
          done.ok() && std::any_of(done->begin(), done->end(), [](const CompactedWorker& worker) {
            return worker.result.thinned_steps != 0;
          });
      pause_millis =
          std::clamp(took_millis * (full ? kRestWhereFull : kRest), kLeastPauseMillis, kMostPauseMillis);
    }
  }

  void Show(const std::string& path, const std::vector<CompactedWorker>& workers) const {
    if (json_) {
      Json list = Json::array();
      for (const CompactedWorker& worker : workers) {
        const store::CompactResult& r = worker.result;
        list.push_back({{"worker", worker.name},
                        {"covered_until", r.covered_until},
                        {"groups_written", r.groups},
                        {"files_written", r.files},
                        {"level_bytes", r.level_bytes},
                        {"segment_bytes", r.segment_bytes},
                        {"steps_dropped", r.thinned_steps},
                        {"rows_dropped", r.dropped_rows},
                        {"raw_values_dropped", r.dropped_raws},
                        {"bytes_over_budget", r.over_bytes},
                        {"damaged_files", r.damaged_files},
                        {"damaged_rows", r.damaged_rows}});
      }
      PrintJson({{"run", path}, {"workers", list}});
      return;
    }
    for (const CompactedWorker& worker : workers) {
      const store::CompactResult& r = worker.result;
      if (r.covered_until < 0) {
        Print("{}: fewer than 16 sealed steps, nothing to merge\n", worker.name);
      } else {
        Print("{}: coarse rows up to step {} ({}), single steps {}\n", worker.name, r.covered_until,
              base::FormatBytes(r.level_bytes), base::FormatBytes(r.segment_bytes));
      }
      if (r.thinned_steps != 0) {
        Print("{}: dropped {} and {} of {}\n", worker.name, base::Counted(r.dropped_rows, "row"),
              base::Counted(r.dropped_raws, "raw value"), base::Counted(r.thinned_steps, "step"));
      }
      if (r.over_bytes != 0) {
        Note(fmt::format(
            "{}: still {} over the budget, and all that is left is to be kept; a smaller --keep, or "
            "fewer marks, would let more go",
            worker.name, base::FormatBytes(r.over_bytes)));
      }
    }
  }

  std::string run_, budget_;
  int64_t around_ = 500;
  bool follow_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCompactCommand() { return std::make_unique<CompactCommand>(); }

}  // namespace tdbg::cli
