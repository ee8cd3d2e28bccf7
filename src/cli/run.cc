// tdbg run: lays out a run, starts the command, watches it, and says at the end what there is to say.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/companion.h"
#include "base/durations.h"
#include "base/file.h"
#include "base/process.h"
#include "base/redact.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/detach.h"
#include "cli/exit_codes.h"
#include "cli/exporters.h"
#include "cli/job_flags.h"
#include "cli/json_output.h"
#include "cli/live_status.h"
#include "cli/output.h"
#include "cli/prepared_rules.h"
#include "cli/registration.h"
#include "cli/report.h"
#include "cli/run_events.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "format/json_fields.h"
#include "jobs/home.h"
#include "jobs/interrupts.h"
#include "jobs/job.h"
#include "jobs/recent_runs.h"
#include "jobs/restart_gap.h"
#include "jobs/run_directory.h"
#include "jobs/secret_mask.h"
#include "jobs/training_log.h"
#include "watch/watcher.h"

extern char** environ;

namespace tdbg::cli {
namespace {

constexpr int64_t kDrawMillis = 200;
// How long exports may take to write the rest once the job has ended.
constexpr int64_t kExportGraceMillis = 60'000;
// How long the end of the output may take on its way to a terminal or a pipe.
constexpr int64_t kLogMillis = 10'000;

// The watcher exists before the job (a bad rule must stop us before anything starts) and may ask for a stop
// only once there is one.
class Stopper {
 public:
  Status Stop(const std::string& rule) {
    const std::lock_guard guard(mutex_);
    if (begun_ && asked_.empty()) asked_ = rule.empty() ? "somebody" : rule;
    if (job_) job_->RequestStop(rule);
    if (job_ || in_gap_) return OkStatus();
    return Unavailable("the command has not been started, or has ended");
  }
  // Who asked. Between two attempts nobody else remembers it.
  std::string asked() {
    const std::lock_guard guard(mutex_);
    return asked_;
  }
  // The command has ended and is about to be started again.
  void BeginGap() {
    const std::lock_guard guard(mutex_);
    in_gap_ = true;
  }
  void Set(jobs::Job* job) {
    const std::lock_guard guard(mutex_);
    job_ = job;
    begun_ = true;
    in_gap_ = false;
    if (job_ && !asked_.empty()) job_->RequestStop(asked_);
  }

 private:
  std::mutex mutex_;
  jobs::Job* job_ = nullptr;  // guarded by mutex_, as all of these
  bool begun_ = false, in_gap_ = false;
  std::string asked_;
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
    case jobs::JobStop::kMaxRuntime:
      return "requested";
    case jobs::JobStop::kSignal:
    case jobs::JobStop::kInterrupted:
      return "signal";
  }
  return "none";
}

rules::JobEnd EndOf(const jobs::JobResult& result) {
  if (result.stop != jobs::JobStop::kNone) return rules::JobEnd::kStopped;
  return result.exit.shell_code() == 0 ? rules::JobEnd::kCompleted : rules::JobEnd::kFailed;
}

std::string ExitText(const jobs::JobResult& result) {
  if (!result.exit.signaled) return fmt::format("exit code {}", result.exit.code);
  const char* const name = ::sigabbrev_np(result.exit.code);
  return fmt::format("ended by signal {}",
                     name ? std::string("SIG") + name : std::to_string(result.exit.code));
}

// What the registry says of an end.
std::pair<jobs::JobPhase, std::string> EndPhase(const jobs::JobResult& result) {
  switch (result.stop) {
    case jobs::JobStop::kMaxRuntime:
      return {jobs::JobPhase::kMaxRuntimeExceeded, "stopped after --max-runtime"};
    case jobs::JobStop::kRequested:
      return {jobs::JobPhase::kStopped, "stopped by " + result.stopped_by};
    case jobs::JobStop::kInterrupted:
      return {jobs::JobPhase::kStopped, "interrupted by " + result.stopped_by};
    case jobs::JobStop::kSignal:
      return {jobs::JobPhase::kStopped, fmt::format("tdbg got signal {}", result.signal_number)};
    case jobs::JobStop::kNone:
      break;
  }
  if (result.exit.shell_code() == 0) return {jobs::JobPhase::kCompleted, "completed"};
  return {jobs::JobPhase::kFailed, ExitText(result)};
}

// The environment as the registry keeps it: what looks like a secret is taken out.
std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::map<std::string, std::string> Redacted(std::map<std::string, std::string> variables) {
  for (auto& [name, value] : variables)
    value = base::NamesASecret(name) ? std::string(base::kRedacted) : base::RedactText(value);
  return variables;
}

class RunCommand : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string help() const override { return "start a training command, captured, watched and judged"; }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }
  void SetFlags(std::vector<std::string> words) override { words_ = std::move(words); }

  void Define(CLI::App& app) override {
    flags_.Define(app);
    job_flags_.Define(app);
    app.add_flag("--quiet", quiet_, "no live line, no summary; errors only");
    app.add_flag("--json", json_, "the summary as one JSON line on stdout, behind the command's own output");
    app.footer(
        "\nusage: tdbg run [OPTIONS] -- COMMAND [ARGUMENTS]\nexample: tdbg run --rule vanishing_gradient "
        "threshold=1e-6 --on-issue stop -- python train.py");
  }

  Result<int> Run() override;

 private:
  Result<int> RunJob(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                     jobs::PreparedAttempt& prepared, LiveStatus& live);
  Result<jobs::JobResult> RunAttempt(const plan::Config& config, Stopper& stopper,
                                     const jobs::PreparedAttempt& prepared, LiveLine& line, LiveStatus& live);
  bool Restart(Stopper& stopper, jobs::JobResult* result, jobs::PreparedAttempt* prepared);
  Result<int> Finish(watch::Watcher& watcher, const jobs::PreparedAttempt& prepared,
                     const jobs::JobResult& result);
  void Register(const plan::Config& config, const jobs::PreparedAttempt& prepared);
  std::unique_ptr<jobs::TrainingLog> StartLog(const jobs::PreparedAttempt& prepared);
  void GoIntoBackground(const jobs::PreparedAttempt& prepared);
  void Record(const Status& status);

  ConfigFlags flags_;
  JobFlags job_flags_;
  RestartPolicy restarts_;
  jobs::RestartGap gap_;
  std::optional<jobs::ControlFollower> control_;  ///< of all attempts: none of its requests is overheard
  Registration registration_;
  Detached detached_;
  bool quiet_ = false, json_ = false;
  bool log_failed_ = false;
  int64_t restarts_done_ = 0, attempt_began_nanos_ = 0;
  int64_t ends_nanos_ = -1;  ///< monotonic; -1: never
  Status events_;            ///< the first failure to write them
  std::vector<std::string> command_, words_;
};

Result<int> RunCommand::Run() {
  if (command_.empty()) {
    return InvalidArgument("run: no command; put it behind --: tdbg run [FLAGS] -- python train.py");
  }
  TDBG_ASSIGN_OR_RETURN(restarts_, job_flags_.Restarts());
  TDBG_ASSIGN_OR_RETURN(const int64_t max_runtime_millis, job_flags_.MaxRuntimeMillis());
  if (job_flags_.detach) {
    if (job_flags_.no_log)
      return InvalidArgument("--detach and --no-log: the output would be nowhere; leave one out");
    if (const auto exit_code = detached_.Split()) return *exit_code;
  }
  if (max_runtime_millis >= 0)
    ends_nanos_ = base::SystemClock().MonotonicNanos() + base::NanosOfMillis(max_runtime_millis);
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
  if (!job_flags_.checkpoint_directory.empty()) {
    job_flags_.checkpoint_directory = jobs::AbsolutePath(job_flags_.checkpoint_directory);
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(job_flags_.checkpoint_directory));
  }
  TDBG_ASSIGN_OR_RETURN(jobs::PreparedAttempt prepared, jobs::PrepareAttempt(prepare));
  Register(config, prepared);
  jobs::RememberRun({prepared.run_directory, jobs::AbsolutePath("."), prepare.wall_nanos});
  if (!quiet_) NoteFirstVerdicts(watcher->LeastSteps());
  return RunJob(config, *watcher, stopper, prepared, live);
}

void RunCommand::Register(const plan::Config& config, const jobs::PreparedAttempt& prepared) {
  jobs::JobRecord job;
  job.run_directory = prepared.run_directory;
  job.run_id = jobs::RunId(prepared.run_directory);
  job.working_directory = jobs::AbsolutePath(".");
  job.command = base::RedactCommand(command_);
  job.flags = base::RedactCommand(words_);
  job.environment = Redacted(Environment());
  job.host = base::HostName();
  job.detached = job_flags_.detach;
  job.attempt = prepared.attempt;
  Json rules = Json::array();
  for (const plan::RuleConfig& rule : RulesToWatch(config)) {
    Json actions = Json::array();
    for (const std::string& action : rule.on_issue) actions.push_back(base::RedactHook(action));
    rules.push_back({{"rule", rule.rule}, {"on_issue", actions}});
  }
  job.settings = format::DumpJson({{"rules", rules},
                                   {"max_restarts", job_flags_.max_restarts},
                                   {"restart_on", job_flags_.restart_on},
                                   {"max_runtime", job_flags_.max_runtime},
                                   {"checkpoint_directory", job_flags_.checkpoint_directory}});
  registration_.Launch(job);
}

std::unique_ptr<jobs::TrainingLog> RunCommand::StartLog(const jobs::PreparedAttempt& prepared) {
  if (job_flags_.no_log) return nullptr;
  jobs::TrainingLogOptions options;
  options.run_directory = prepared.run_directory;
  options.attempt = prepared.attempt;
  options.secrets = jobs::SecretsOf(command_, Environment(), job_flags_.secrets);
  options.forward = !job_flags_.detach;
  auto log = jobs::TrainingLog::Start(options);
  const Status kept = log.ok() ? (*log)->kept() : log.status();
  if (!kept.ok() && !std::exchange(log_failed_, true))
    Note("the command's output is not kept: " + kept.message());
  return log.ok() ? *std::move(log) : nullptr;
}

void RunCommand::GoIntoBackground(const jobs::PreparedAttempt& prepared) {
  if (!job_flags_.detach) return;
  const std::string& name = registration_.name().empty() ? prepared.run_directory : registration_.name();
  if (json_) {
    PrintJson({{"job", name}, {"run", prepared.run_directory}});
  } else {
    Note(fmt::format("{} runs in the background; tdbg logs {} -f shows its output, tdbg stop {} ends it",
                     Printable(name), ShellWord(name), ShellWord(name)));
  }
  detached_.LetGo(base::JoinPath(prepared.run_directory, "logs/launcher.log"));
}

// Whether the command is to be started again, and all that is said of that.
bool RunCommand::Restart(Stopper& stopper, jobs::JobResult* result, jobs::PreparedAttempt* prepared) {
  const bool rehearsal = result->stop == jobs::JobStop::kInterrupted;
  if (!rehearsal && (restarts_done_ >= restarts_.most || !restarts_.Restarts(*result))) return false;
  stopper.BeginGap();
  if (!rehearsal) ++restarts_done_;
  const std::string why =
      rehearsal ? "interrupted by " + result->stopped_by
                : fmt::format("{}; restart {} of {}", ExitText(*result), restarts_done_, restarts_.most);
  registration_.Move(jobs::JobPhase::kInterrupted, why);
  if (const Status sealed = jobs::SealAttempt(prepared->run_directory, prepared->attempt); !sealed.ok())
    Note("what the training left could not be sealed; it stays readable in the journal: " + sealed.message());
  const int64_t gap_millis =
      rehearsal ? 0 : gap_.Millis(base::SystemClock().MonotonicNanos() - attempt_began_nanos_);
  if (!jobs::WaitForRestart(gap_millis, *control_, [&] { return stopper.asked(); }, ends_nanos_, result))
    return false;
  if (const Status next = jobs::BeginNextAttempt(prepared, base::SystemClock().WallNanos()); !next.ok()) {
    Note("the command is not started again: " + next.message());
    return false;
  }
  registration_.Move(jobs::JobPhase::kRestarting, fmt::format("attempt {}", prepared->attempt));
  registration_.BeginAttempt(prepared->attempt);
  if (!quiet_) Note(fmt::format("{}; attempt {} begins", why, prepared->attempt));
  return true;
}

void RunCommand::Record(const Status& status) {
  if (events_.ok()) events_ = status;
}

Result<jobs::JobResult> RunCommand::RunAttempt(const plan::Config& config, Stopper& stopper,
                                               const jobs::PreparedAttempt& prepared, LiveLine& line,
                                               LiveStatus& live) {
  jobs::JobOptions options;
  options.command = command_;
  options.environment =
      jobs::TrainingEnvironment(prepared.run_directory, prepared.attempt, base::FindPythonHome());
  if (!job_flags_.checkpoint_directory.empty())
    options.environment["TDBG_CHECKPOINT_DIR"] = job_flags_.checkpoint_directory;
  options.run_directory = prepared.run_directory;
  options.control = &*control_;
  options.attempt = prepared.attempt;
  attempt_began_nanos_ = base::SystemClock().MonotonicNanos();
  if (config.stop_grace_seconds)
    options.stop_grace_millis = base::MillisOfSeconds(*config.stop_grace_seconds);
  if (ends_nanos_ >= 0) {
    options.max_runtime_millis =
        std::max<int64_t>(0, (ends_nanos_ - base::SystemClock().MonotonicNanos()) / 1'000'000);
  }
  if (!quiet_) options.say = Note;
  if (line.enabled()) {
    options.tick_millis = kDrawMillis;
    options.on_tick = [&] { line.Draw(live.Line(base::SystemClock().MonotonicNanos())); };
  }
  options.on_stopping = [this](jobs::JobStop stop, const std::string& by) {
    if (stop != jobs::JobStop::kInterrupted)
      registration_.Move(jobs::JobPhase::kStopping, "asked to stop by " + by);
  };
  const std::unique_ptr<jobs::TrainingLog> log = StartLog(prepared);
  options.log = log.get();
  auto started = jobs::Job::Start(std::move(options));
  if (!started.ok()) return started.status();
  jobs::Job& job = **started;
  stopper.Set(&job);
  registration_.Training(job.pid(), fmt::format("attempt {}, pid {}", prepared.attempt, job.pid()));
  GoIntoBackground(prepared);
  Exporters exporters;
  exporters.Start(config, prepared.run_directory, prepared.attempt);
  Record(AppendEvent(
      prepared.run_directory, "job_started",
      {{"attempt", prepared.attempt}, {"command", base::RedactCommand(command_)}, {"pid", job.pid()}}));
  const jobs::JobResult result = job.Wait();
  stopper.Set(nullptr);
  if (log) log->Finish(kLogMillis);
  Record(AppendEvent(prepared.run_directory, "job_ended",
                     {{"attempt", prepared.attempt},
                      {"exit_code", result.exit.shell_code()},
                      {"signal", result.exit.signaled ? result.exit.code : 0},
                      {"stop", StopName(result.stop)},
                      {"stopped_by", result.stopped_by},
                      {"killed", result.killed}}));
  registration_.EndAttempt(prepared.attempt, result.exit.shell_code(), ExitText(result));
  if (result.killed) Note("the command outlived its grace and was killed");
  exporters.Finish(kExportGraceMillis);
  return result;
}

Result<int> RunCommand::RunJob(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                               jobs::PreparedAttempt& prepared, LiveStatus& live) {
  if (base::FindPythonHome().empty()) {
    Note(
        "cannot find tdbg's Python part, so Python programs will not be captured; set TDBG_HOME to the "
        "directory that holds the package, or install the wheel");
  }
  Status watched;
  std::thread watching([&] { watched = watcher.Follow(); });
  // Whatever happens below, the thread is told and joined.
  const auto end_watching = [&](rules::JobEnd end) {
    watcher.JobEnded(end);
    if (watching.joinable()) watching.join();
  };
  control_.emplace(prepared.run_directory);
  LiveLine line(quiet_ || job_flags_.detach ? -1 : STDERR_FILENO);
  jobs::JobResult result;
  do {
    const auto attempt = RunAttempt(config, stopper, prepared, line, live);
    if (!attempt.ok()) {
      end_watching(rules::JobEnd::kFailed);
      registration_.Move(jobs::JobPhase::kFailed, attempt.status().message());
      Note(attempt.status().message());
      return attempt.status().code() == Code::kNotFound ? kExitNoCommand : kExitNotExecutable;
    }
    result = *attempt;
  } while (Restart(stopper, &result, &prepared));
  line.Close();

  const Status sealed = jobs::SealAttempt(prepared.run_directory, prepared.attempt);
  // From here on ctrl-C is ours again: judging what is left may take a while, and everything is on disk.
  const sigset_t signals = jobs::ForwardedSignals();
  jobs::DrainForwardedSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  end_watching(EndOf(result));
  // ctrl-C may interrupt this: each segment is published whole or not at all.
  const Status others = jobs::SealOtherAttempts(prepared.run_directory, prepared.attempt);

  if (!watched.ok()) Note("watching failed, verdicts may be missing: " + watched.message());
  if (!sealed.ok())
    Note("what the training left could not be sealed; it stays readable in the journal: " + sealed.message());
  if (!others.ok())
    Note("what an earlier start left could not be sealed; it stays readable in the journal: " +
         others.message());
  if (!events_.ok()) Note("the run's events are incomplete: " + events_.message());
  const auto [phase, message] = EndPhase(result);
  registration_.Move(phase, message);
  return Finish(watcher, prepared, result);
}

Result<int> RunCommand::Finish(watch::Watcher& watcher, const jobs::PreparedAttempt& prepared,
                               const jobs::JobResult& result) {
  const bool stopped = result.stop == jobs::JobStop::kRequested || result.stop == jobs::JobStop::kMaxRuntime;
  const int exit_code = stopped ? kExitStopped : result.exit.shell_code();
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
