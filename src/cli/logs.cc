// tdbg logs: what a training printed, and at which step.
#include <fmt/format.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/live_status.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "jobs/run_directory.h"
#include "jobs/training_output.h"
#include "trial/remote_run.h"
#include "watch/found.h"

namespace tdbg::cli {
namespace {

constexpr size_t kLinesAround = 5;
constexpr int64_t kFollowMillis = 200;

class LogsCommand : public Command {
 public:
  std::string name() const override { return "logs"; }
  std::string help() const override { return "what a job printed: all of it, while it runs, around a step"; }
  void Define(Flags& flags) override {
    flags.AddOption("JOB", job_, "a job, a run: its name, its path, its URL in a bucket, or last").Required();
    flags.AddFlag("-f,--follow", follow_, "go on until the job has ended");
    flags
        .AddOption("--around", around_,
                   "what was printed while this global step was made, and the lines about it")
        .TypeName("STEP")
        .Check(IntegerFrom(0));
    flags.AddFlag("--steps", steps_, "in front of each line the last step that had ended then");
    AddAttempt(flags, attempt_);
    flags.AddOption("--node", node_, "of a job on several machines: the output of this node; default 0")
        .TypeName("N")
        .Check(IntegerFrom(0));
    flags.AddFlag("--json", json_, "a JSON object a line: text, step, time, stream");
  }

  Result<int> Run() override {
    if (follow_ && around_)
      return InvalidArgument(
          "logs: --follow and --around: one goes on and the other looks back; leave one out");
    TDBG_ASSIGN_OR_RETURN(const std::string run, ResolveRunWithLogs());
    const std::vector<int64_t> attempts = jobs::ListAttempts(run);
    if (attempt_ >= 0 && std::find(attempts.begin(), attempts.end(), attempt_) == attempts.end())
      return NotFound(fmt::format("the run has no attempt {}; it has {}", attempt_, attempts.size()));
    bool any = false;
    watch::FoundReader found(run);
    for (size_t i = 0; i < attempts.size(); ++i) {
      if (attempt_ >= 0 && attempts[i] != attempt_) continue;
      any = ShowAttempt(run, attempts[i], found) || any;
    }
    int64_t last = attempts.empty() ? -1 : attempts.back();
    while (follow_ && attempt_ < 0 && jobs::LauncherAlive(run)) {
      // The launcher is between two attempts, or about to leave.
      Wait();
      for (const int64_t next : jobs::ListAttempts(run)) {
        if (next <= last) continue;
        last = next;
        any = ShowAttempt(run, next, found) || any;
      }
    }
    if (any && around_ && !shown_) {
      Tell("tdbg: nothing was printed about step {}: {}\n", *around_,
           last_step_ < 0 ? "the job has printed nothing since its first step"
                          : fmt::format("the last line of the output was printed at step {}", last_step_));
    }
    if (!any)
      return NotFound("no output of it was kept: it was not started by tdbg run, or with --no-log: " +
                      LastingPlace(run));
    return kExitOk;
  }

 private:
  struct Line {
    jobs::OutputLine output;
    bool ours = false;  // what tdbg said, not the command
  };

  Result<std::string> ResolveRunWithLogs() {
    const auto place = PlaceOfRun(job_);
    if (!place.ok() || !place->directory.empty()) return ResolveRunOfJob(job_);
    TDBG_ASSIGN_OR_RETURN(remote_, RemoteRun::Open(place->url));
    TDBG_RETURN_IF_ERROR(remote_->Include("logs"));
    return remote_->directory();
  }

  void Wait() {
    std::this_thread::sleep_for(std::chrono::milliseconds(kFollowMillis));
    if (!remote_) return;
    const Status fetched = remote_->Refresh();
    if (!fetched.ok() && !std::exchange(said_, true))
      Tell("tdbg: {}; it is tried again\n", Printable(fetched.message()));
  }

  bool ShowAttempt(const std::string& run, int64_t attempt, watch::FoundReader& found) {
    jobs::OutputReader reader(run, attempt, node_);
    bool any = false;
    const auto alive = [&] {
      if (jobs::ListAttempts(run).back() > attempt) return false;
      return jobs::LauncherAlive(run) || jobs::AnyWorkerAlive(run, attempt);
    };
    while (true) {
      // First check whether the job has ended, then read: so nothing before the end is missed.
      const bool ended = !follow_ || !alive();
      for (watch::Found& one : found.Next()) found_[one.attempt].push_back(std::move(one));
      while (true) {
        const std::vector<jobs::OutputLine> lines = reader.Next(ended);
        if (lines.empty()) break;
        for (const jobs::OutputLine& line : lines) {
          any |= TakeFound(attempt, line.wall_nanos);
          Take(attempt, {line});
        }
      }
      any |= TakeFound(attempt, std::numeric_limits<int64_t>::max());
      (void)FlushOut();
      if (ended) break;
      Wait();
    }
    before_.clear();
    at_it_ = false;
    return any || reader.Exists();
  }

  // What the watcher found of this attempt up to that time, in the place where a person would have read it.
  bool TakeFound(int64_t attempt, int64_t wall_nanos) {
    std::deque<watch::Found>& found = found_[attempt];
    bool any = false;
    for (; !found.empty() && found.front().wall_nanos <= wall_nanos; found.pop_front()) {
      any = true;
      jobs::OutputLine line;
      line.text = json_ ? found.front().text : FoundLine(found.front(), Terminal::Of(STDOUT_FILENO));
      line.wall_nanos = found.front().wall_nanos;
      line.global_step = found.front().global_step;
      Take(attempt, {line, /*ours=*/true});
    }
    return any;
  }

  // The lines of the step, with some lines before and after.
  void Take(int64_t attempt, const Line& taken) {
    if (!around_) return Show(attempt, taken);
    const jobs::OutputLine& line = taken.output;
    // While step N runs, the last step that has ended is N - 1; what is printed about step N after its end
    // counts as N.
    const bool of_it = line.global_step == *around_ - 1 || line.global_step == *around_;
    last_step_ = std::max(last_step_, line.global_step);
    // A script that prints at some steps only printed about this one before and after it.
    const bool passed = !at_it_ && line.global_step > *around_ && !before_.empty();
    at_it_ |= line.global_step >= *around_ - 1;
    if (of_it || passed) {
      for (const Line& earlier : before_) Show(attempt, earlier);
      before_.clear();
      Show(attempt, taken);
      after_ = kLinesAround;
    } else if (after_ > 0) {
      --after_;
      Show(attempt, taken);
    } else {
      before_.push_back(taken);
      if (before_.size() > kLinesAround) before_.pop_front();
    }
  }

  void Show(int64_t attempt, const Line& shown) {
    shown_ = true;
    const jobs::OutputLine& line = shown.output;
    if (json_) {
      const char* const stream = shown.ours                                ? "tdbg"
                                 : line.stream == jobs::OutputStream::kOut ? "stdout"
                                 : line.stream == jobs::OutputStream::kErr ? "stderr"
                                                                           : "both";
      PrintJson({{"attempt", attempt},
                 {"step", line.global_step},
                 {"wall_nanos", line.wall_nanos},
                 {"stream", stream},
                 {"lost_before", line.lost_before},
                 {"lost_bytes", line.lost_bytes},
                 {"text", line.text}});
      return;
    }
    if (line.lost_before && line.lost_bytes == 0) Print("[output was left out here]\n");
    if (line.lost_before && line.lost_bytes > 0)
      Print("[{} of output were left out here]\n", base::FormatBytes(line.lost_bytes));
    if (steps_) Print("{:>8}  ", line.global_step < 0 ? "-" : std::to_string(line.global_step));
    Print("{}\n", line.text);
  }

  std::string job_;
  std::shared_ptr<RemoteRun> remote_;  // null: the run is in a directory of this machine
  bool said_ = false;                  // that the bucket cannot be read
  bool follow_ = false, steps_ = false, json_ = false;
  std::optional<int64_t> around_;
  int64_t attempt_ = -1, node_ = 0;
  std::deque<Line> before_;
  std::map<int64_t, std::deque<watch::Found>> found_;  // by attempt, not shown yet
  size_t after_ = 0;
  bool shown_ = false, at_it_ = false;  // some line; the attempt's output has come to the step of --around
  int64_t last_step_ = -1;              // of the lines looked at
};

}  // namespace

std::unique_ptr<Command> MakeLogsCommand() { return std::make_unique<LogsCommand>(); }

}  // namespace tdbg::cli
