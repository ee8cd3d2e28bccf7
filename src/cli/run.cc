// tdbg run: lays out a run, starts the command, watches it, and says at the end what there is to say.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/companion.h"
#include "base/durations.h"
#include "base/redact.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/exit_codes.h"
#include "cli/exporters.h"
#include "cli/live_status.h"
#include "cli/output.h"
#include "cli/prepared_rules.h"
#include "cli/report.h"
#include "cli/run_events.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "jobs/home.h"
#include "jobs/job.h"
#include "jobs/recent_runs.h"
#include "jobs/run_directory.h"
#include "watch/watcher.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kDrawMillis = 200;
// How long exports may take to write the rest once the job has ended.
constexpr int64_t kExportGraceMillis = 60'000;

// The watcher exists before the job (a bad rule must stop us before anything starts) and may ask for a stop
// only once there is one.
class Stopper {
 public:
  Status Stop(const std::string& rule) {
    const std::lock_guard guard(mutex_);
    if (!job_) return Unavailable("the command has not been started, or has ended");
    job_->RequestStop(rule);
    return OkStatus();
  }
  void Set(jobs::Job* job) {
    const std::lock_guard guard(mutex_);
    job_ = job;
  }

 private:
  std::mutex mutex_;
  jobs::Job* job_ = nullptr;  // guarded by mutex_
};

void Note(const std::string& what) { Tell("tdbg: {}\n", what); }

// Said before the training: if it is shorter, the rules' verdicts would need another run.
void NoteFirstVerdicts(const std::vector<std::pair<std::string, int64_t>>& least) {
  std::string text;
  for (const auto& [rule, steps] : least) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Printable(rule), steps);
  }
  if (text.empty()) return;
  Note("steps until a first verdict: " + text +
       "; a shorter run is not judged by these: set interval=N (a booster's metrics need fewer)");
}

std::string_view StopName(jobs::JobStop stop) {
  switch (stop) {
    case jobs::JobStop::kNone:
      return "none";
    case jobs::JobStop::kRequested:
      return "requested";
    case jobs::JobStop::kSignal:
      return "signal";
  }
  return "none";
}

rules::JobEnd EndOf(const jobs::JobResult& result) {
  if (result.stop != jobs::JobStop::kNone) return rules::JobEnd::kStopped;
  return result.exit.shell_code() == 0 ? rules::JobEnd::kCompleted : rules::JobEnd::kFailed;
}

class RunCommand : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string help() const override { return "start a training command, captured, watched and judged"; }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }

  void Define(CLI::App& app) override {
    flags_.Define(app);
    app.add_flag("--quiet", quiet_, "no live line, no summary; errors only");
    app.add_flag("--json", json_, "the summary as one JSON line on stdout, behind the command's own output");
    app.footer(
        "\nusage: tdbg run [OPTIONS] -- COMMAND [ARGUMENTS]\nexample: tdbg run --rule vanishing_gradient "
        "threshold=1e-6 --on-issue stop -- python train.py");
  }

  Result<int> Run() override;

 private:
  Result<int> RunJob(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                     const jobs::PreparedAttempt& prepared, LiveStatus& live);
  Result<int> Finish(watch::Watcher& watcher, const jobs::PreparedAttempt& prepared,
                     const jobs::JobResult& result);

  ConfigFlags flags_;
  bool quiet_ = false, json_ = false;
  std::vector<std::string> command_;
};

Result<int> RunCommand::Run() {
  if (command_.empty()) {
    return InvalidArgument("run: no command; put it behind --: tdbg run [FLAGS] -- python train.py");
  }
  jobs::BlockForwardedSignals();
  // If the reader of our standard error goes away, the training and this process go on.
  ::signal(SIGPIPE, SIG_IGN);
  TDBG_ASSIGN_OR_RETURN(const plan::Config config, ResolveConfig(flags_));
  const std::vector<plan::RuleConfig> rules = RulesToWatch(config);
  const int64_t now = base::SystemClock().WallNanos();
  const std::string directory = jobs::AbsolutePath(
      config.dir.empty() ? jobs::FreshRunPath(jobs::kRunsRoot, command_, now) : config.dir);

  Stopper stopper;
  LiveStatus live;
  watch::WatchOptions watch_options;
  watch_options.run = directory;
  watch_options.rules = rules;
  watch_options.stop = [&stopper](const std::string& reason) { return stopper.Stop(reason); };
  watch_options.on_progress = [&live](const watch::Progress& progress) { live.Update(progress); };
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<watch::Watcher> watcher, watch::Watcher::Create(watch_options));
  TDBG_ASSIGN_OR_RETURN(const plan::Plan plan, PlanFor(config, watcher->Needs()));
  if (const Status status = jobs::CheckCommand(command_[0]); !status.ok()) {
    Note(status.message());
    return status.code() == Code::kNotFound ? kExitNoCommand : kExitNotExecutable;
  }

  jobs::PrepareOptions prepare;
  prepare.run_directory = directory;
  prepare.command = command_;
  prepare.plan_json = plan.ToJson();
  prepare.rules_json = RulesToJson(rules);
  prepare.tdbg_version = kVersion;
  prepare.wall_nanos = now;
  prepare.shared = config.shared.value_or(false);
  TDBG_ASSIGN_OR_RETURN(const jobs::PreparedAttempt prepared, jobs::PrepareAttempt(prepare));
  jobs::RememberRun({prepared.run_directory, jobs::AbsolutePath("."), prepare.wall_nanos});
  if (!quiet_) NoteFirstVerdicts(watcher->LeastSteps());
  return RunJob(config, *watcher, stopper, prepared, live);
}

Result<int> RunCommand::RunJob(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                               const jobs::PreparedAttempt& prepared, LiveStatus& live) {
  const std::string home = base::FindPythonHome();
  if (home.empty()) {
    Note(
        "cannot find tdbg's Python part, so Python programs will not be captured; set TDBG_HOME to the "
        "directory "
        "that holds the package, or install the wheel");
  }
  Status watched;
  std::thread watching([&] { watched = watcher.Follow(); });
  // Whatever happens below, the thread is told and joined.
  const auto end_watching = [&](rules::JobEnd end) {
    watcher.JobEnded(end);
    if (watching.joinable()) watching.join();
  };

  LiveLine line(quiet_ ? -1 : STDERR_FILENO);
  jobs::JobOptions options;
  options.command = command_;
  options.environment = jobs::TrainingEnvironment(prepared.run_directory, prepared.attempt, home);
  options.run_directory = prepared.run_directory;
  options.attempt = prepared.attempt;
  if (config.stop_grace_seconds)
    options.stop_grace_millis = base::MillisOfSeconds(*config.stop_grace_seconds);
  if (!quiet_) options.say = Note;
  if (line.enabled()) {
    options.tick_millis = kDrawMillis;
    options.on_tick = [&] { line.Draw(live.Line(base::SystemClock().MonotonicNanos())); };
  }
  auto job = jobs::Job::Start(std::move(options));
  if (!job.ok()) {
    end_watching(rules::JobEnd::kFailed);
    Note(job.status().message());
    return job.status().code() == Code::kNotFound ? kExitNoCommand : kExitNotExecutable;
  }
  stopper.Set(job->get());
  Exporters exporters;
  exporters.Start(config, prepared.run_directory, prepared.attempt);
  Status events = AppendEvent(
      prepared.run_directory, "job_started",
      {{"attempt", prepared.attempt}, {"command", base::RedactCommand(command_)}, {"pid", (*job)->pid()}});
  const jobs::JobResult result = (*job)->Wait();
  stopper.Set(nullptr);
  line.Close();

  const Status sealed = jobs::SealAttempt(prepared.run_directory, prepared.attempt);
  const Status ended = AppendEvent(prepared.run_directory, "job_ended",
                                   {{"attempt", prepared.attempt},
                                    {"exit_code", result.exit.shell_code()},
                                    {"signal", result.exit.signaled ? result.exit.code : 0},
                                    {"stop", StopName(result.stop)},
                                    {"stopped_by", result.stopped_by},
                                    {"killed", result.killed}});
  // From here on ctrl-C is ours again: judging what is left may take a while, and everything is on disk.
  (*job)->DrainSignals();
  const sigset_t signals = jobs::ForwardedSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  end_watching(EndOf(result));
  exporters.Finish(kExportGraceMillis);
  // ctrl-C may interrupt this: each segment is published whole or not at all.
  const Status others = jobs::SealOtherAttempts(prepared.run_directory, prepared.attempt);

  if (result.killed) Note("the command outlived its grace and was killed");
  if (!watched.ok()) Note("watching failed, verdicts may be missing: " + watched.message());
  if (!sealed.ok())
    Note("what the training left could not be sealed; it stays readable in the journal: " + sealed.message());
  if (!others.ok())
    Note("what an earlier start left could not be sealed; it stays readable in the journal: " +
         others.message());
  if (events.ok()) events = ended;
  if (!events.ok()) Note("the run's events are incomplete: " + events.message());
  return Finish(watcher, prepared, result);
}

Result<int> RunCommand::Finish(watch::Watcher& watcher, const jobs::PreparedAttempt& prepared,
                               const jobs::JobResult& result) {
  const int exit_code = result.stop == jobs::JobStop::kRequested ? kExitStopped : result.exit.shell_code();
  if (quiet_ && !json_) return exit_code;
  const auto report = [&]() -> Result<Report> {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(prepared.run_directory));
    TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
    (void)news;
    return MakeReport(*trial, watcher.statuses());
  }();
  // Scripts that call us must get the command's exit code even if the summary fails.
  if (!report.ok()) {
    Note("the run cannot be summarised: " + report.status().message());
    return exit_code;
  }
  Report shown = *report;
  shown.launcher_alive = false;  // that is us, and we are done
  if (!quiet_) Tell("{}", FormatSummary(shown, Terminal::Of(STDERR_FILENO)));
  if (json_) PrintJson(ReportToJson(shown));
  return exit_code;
}

}  // namespace

std::unique_ptr<Command> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace tdbg::cli
