// tdbg run: makes a run directory, starts the command, watches it, and prints a summary at the end.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "actions/action.h"
#include "base/clock.h"
#include "base/companion.h"
#include "base/durations.h"
#include "base/file.h"
#include "base/process.h"
#include "base/redact.h"
#include "cli/attempt_starts.h"
#include "cli/bring_back.h"
#include "cli/checkpoints.h"
#include "cli/command.h"
#include "cli/compaction.h"
#include "cli/configuration.h"
#include "cli/detach.h"
#include "cli/exit_codes.h"
#include "cli/exporters.h"
#include "cli/flags.h"
#include "cli/job_ending.h"
#include "cli/job_environment.h"
#include "cli/job_flags.h"
#include "cli/job_listeners.h"
#include "cli/job_log.h"
#include "cli/json_output.h"
#include "cli/live_status.h"
#include "cli/muted_scripts.h"
#include "cli/node_run.h"
#include "cli/output.h"
#include "cli/prepared_rules.h"
#include "cli/registration.h"
#include "cli/rehearsal.h"
#include "cli/run_events.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/spool.h"
#include "cli/stopper.h"
#include "cli/terminal.h"
#include "cli/upload_process.h"
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

namespace tdbg::cli {
namespace {

constexpr int64_t kDrawMillis = 200, kNodesPollMillis = 200;
// How long exports may take to write the rest once the job has ended, and coarse rows to be made.
constexpr int64_t kExportGraceMillis = 60'000, kCompactGraceMillis = 10'000;
constexpr const char* kLauncherLog = "logs/launcher.log";

class RunCommand : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string help() const override { return "start a training command, captured, watched and judged"; }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }
  void SetFlags(std::vector<std::string> words) override {
    words_ = std::move(words);
    std::erase(words_, "--resumes");  // of this start alone
  }

  void Define(Flags& flags) override {
    flags_.Define(flags);
    job_flags_.Define(flags);
    flags.AddFlag("--quiet", quiet_, "no live line, no summary; errors only");
    flags.AddFlag("--json", json_, "the summary as one JSON line on stdout, behind the command's own output");
    flags.Footer(
        "\nusage: tdbg run [OPTIONS] -- COMMAND [ARGUMENTS]\nexample: tdbg run --rule vanishing_gradient "
        "threshold=1e-6 --on-issue stop -- python train.py");
  }

  Result<int> Run() override;

 private:
  Result<int> RunJob(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                     jobs::PreparedAttempt& prepared, LiveStatus& live);
  Result<jobs::JobResult> RunAttempt(const plan::Config& config, Stopper& stopper,
                                     const jobs::PreparedAttempt& prepared, LiveLine& line, LiveStatus& live);
  bool BeginNext(Stopper& stopper, jobs::PreparedAttempt* prepared, jobs::JobResult* result);
  bool MayRestart() const {
    return restarts_done_ < restarts_.most || (rehearsal_.is_on() && rehearsal_.left != 0);
  }
  bool IsToRestart(const jobs::JobResult& result) const {
    return result.stop == jobs::JobStop::kInterrupted ||
           (restarts_done_ < restarts_.most && restarts_.Restarts(result));
  }
  bool Restart(Stopper& stopper, jobs::JobResult* result, jobs::PreparedAttempt* prepared);
  void EndJob(const plan::Config& config, const jobs::PreparedAttempt& prepared, jobs::JobPhase phase,
              const std::string& message);
  Result<int> Finish(watch::Watcher& watcher, const jobs::PreparedAttempt& prepared,
                     const jobs::JobResult& result);
  Status Adopt(const jobs::PreparedAttempt& left);
  void Register(const plan::Config& config, const jobs::PreparedAttempt& prepared);
  /// Between two attempts, after so long. false: the job is to end, and `result` says why
  bool GoesOn(Stopper& stopper, int64_t millis, jobs::JobResult* result);
  void GoIntoBackground(const jobs::PreparedAttempt& prepared);
  void Record(const Status& status) {
    if (events_.ok()) events_ = status;
  }
  Result<int> RunUploaded(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                          jobs::PreparedAttempt& prepared, LiveStatus& live);

  ConfigFlags flags_;
  JobFlags job_flags_;
  RestartPolicy restarts_;
  Rehearsal rehearsal_;
  jobs::RestartGap gap_;
  std::optional<jobs::ControlFollower> control_;  ///< one for all attempts, so that no request is missed
  JobListeners listeners_;
  Compaction compaction_;
  Registration registration_;
  std::optional<jobs::ProcessIdentity> adopted_;  ///< runs already, until its attempt is over
  bool asked_before_ = false;                     ///< it had been asked to stop when it was adopted
  std::unique_ptr<NodeRun> node_;                 ///< null: the job is on this machine alone
  UploadProcess upload_;
  Checkpoints checkpoints_;
  Destination destination_;
  std::optional<jobs::FreshRunDirectory> fresh_;  // where no --dir was given
  Detached detached_;
  bool quiet_ = false, json_ = false, had_run_ = false;  ///< had_run_: in its directory, when we began
  JobLog log_;
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
  TDBG_ASSIGN_OR_RETURN(rehearsal_, job_flags_.InterruptEvery());
  TDBG_RETURN_IF_ERROR(job_flags_.CheckBreaks());
  TDBG_ASSIGN_OR_RETURN(const int64_t max_runtime_millis, job_flags_.MaxRuntimeMillis());
  TDBG_ASSIGN_OR_RETURN(const std::optional<jobs::NodePlace> place, job_flags_.Node());
  TDBG_ASSIGN_OR_RETURN(const int64_t node_timeout_millis, job_flags_.NodeTimeoutMillis());
  TDBG_RETURN_IF_ERROR(job_flags_.LogLimit().status());
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
  for (const plan::RuleConfig& rule : rules) {  // whoever knows a webhook's URL may post
    for (const std::string& action : rule.on_issue)
      job_flags_.secrets.push_back(actions::VariableOfAction(action));
  }
  const int64_t now = base::SystemClock().WallNanos();
  const std::string& upload = job_flags_.upload.empty() ? config.upload : job_flags_.upload;
  TDBG_ASSIGN_OR_RETURN(destination_, DestinationOf(config.dir, upload));
  if (place && (destination_.directory.empty() || !destination_.url.empty()))
    return InvalidArgument("--node needs --dir DIR, a directory that all nodes see under a path of theirs");
  const bool shared = config.shared.value_or(false);
  if (destination_.directory.empty()) {
    TDBG_ASSIGN_OR_RETURN(auto taken, jobs::FreshRunDirectory::Take(jobs::kRunsRoot, command_, now, shared));
    fresh_.emplace(std::move(taken));
  }
  const std::string directory = jobs::AbsolutePath(fresh_ ? fresh_->path() : destination_.directory);
  had_run_ = jobs::IsRunDirectory(directory);
  if (rehearsal_.wipe) {
    if (destination_.url.empty())
      return InvalidArgument("--wipe needs --upload s3://BUCKET/PREFIX, where checkpoints come back from");
    TDBG_RETURN_IF_ERROR(CheckMayWipe(jobs::AbsolutePath(job_flags_.checkpoint_directory), directory));
  }
  if (!destination_.url.empty() && !job_flags_.adopt)
    TDBG_RETURN_IF_ERROR(MakeReadyForUpload(destination_, job_flags_.resumes, quiet_));

  Stopper stopper;
  LiveStatus live;
  watch::WatchOptions watch_options;
  watch_options.run = directory;
  watch_options.rules = rules;
  watch_options.stop = [&](const std::string& reason) {
    const Status asked = place ? NodeRun::StopAll(directory, reason) : OkStatus();
    const Status here = stopper.Stop(reason);
    return place ? asked : here;
  };
  if (place)
    watch_options.may_speak = [this] { return node_ ? node_->MaySpeak() : Unavailable("not joined yet"); };
  watch_options.on_progress = [&live](const watch::Progress& progress) { live.Update(progress); };
  if (!quiet_) watch_options.on_found = TellFound;
  TDBG_ASSIGN_OR_RETURN(watch_options.on_status, listeners_.Prepare(job_flags_));
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<watch::Watcher> watcher, watch::Watcher::Create(watch_options));
  TDBG_ASSIGN_OR_RETURN(const plan::Plan plan, PlanFor(config, watcher->Needs()));
  if (const Status status = jobs::CheckCommand(command_[0]); !status.ok()) {
    Tell("tdbg: {}\n", status.message());  // an error is one line, whatever its length
    return status.code() == Code::kNotFound ? kExitNoCommand : kExitNotExecutable;
  }

  const jobs::PrepareOptions prepare = {.run_directory = directory,
                                        .command = command_,
                                        .plan_json = plan.ToJson(),
                                        .rules_json = RulesToJson(rules),
                                        .tdbg_version = kVersion,
                                        .wall_nanos = now,
                                        .shared = shared};
  if (job_flags_.adopt) {
    jobs::PreparedAttempt left;
    if (place) {
      TDBG_ASSIGN_OR_RETURN(
          node_, NodeRun::Join(*place, node_timeout_millis, prepare, /*adopts=*/true, quiet_, &left));
    } else {
      TDBG_ASSIGN_OR_RETURN(left, jobs::AdoptAttempt(directory));
    }
    control_.emplace(left.run_directory);
    (void)job_flags_.MakeCheckpointDirectory();  // it is there, and its path is the next attempt's, too
    TDBG_RETURN_IF_ERROR(Adopt(left));
    return RunUploaded(config, *watcher, stopper, left, live);
  }
  TDBG_RETURN_IF_ERROR(job_flags_.MakeCheckpointDirectory());
  jobs::PreparedAttempt prepared;
  if (place) {
    TDBG_ASSIGN_OR_RETURN(
        node_, NodeRun::Join(*place, node_timeout_millis, prepare, /*adopts=*/false, quiet_, &prepared));
  } else {
    TDBG_ASSIGN_OR_RETURN(prepared, jobs::PrepareAttempt(prepare));
  }
  if (!node_ || node_->node() == 0)
    TDBG_RETURN_IF_ERROR(job_flags_.SetBreaks(prepared.run_directory, prepared.attempt));
  if (!node_ || node_->node() == 0) {
    if (const std::string muted = BeginMuted(prepared.run_directory, command_); !muted.empty() && !quiet_)
      Note(Printable(muted));
  }
  // Before anybody can name the job: a stop that comes while an uploader is waited for is meant for it, too.
  control_.emplace(prepared.run_directory);
  Register(config, prepared);
  jobs::RememberRun({prepared.run_directory, jobs::AbsolutePath("."), prepare.wall_nanos, destination_.url});
  if (!quiet_) NoteFirstVerdicts(watcher->LeastSteps());
  return RunUploaded(config, *watcher, stopper, prepared, live);
}

Result<int> RunCommand::RunUploaded(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                                    jobs::PreparedAttempt& prepared, LiveStatus& live) {
  if (destination_.spool) MarkSpool(prepared.run_directory, destination_.url);
  if (!node_ || node_->node() == 0) TakeBackEnd(config, prepared.run_directory);
  listeners_.Start(job_flags_, prepared, watcher.statuses(), &registration_, !node_ || node_->judges());
  if (destination_.url.empty()) return RunJob(config, watcher, stopper, prepared, live);
  const std::string log =
      job_flags_.detach ? base::JoinPath(prepared.run_directory, kLauncherLog) : std::string();
  const Status started =
      upload_.Start(prepared.run_directory, destination_.url, log, /*beside=*/job_flags_.adopt);
  if (!started.ok()) registration_.Move(jobs::JobPhase::kFailed, started.message());
  // Another one has the prefix: what was made here is of an attempt that does not begin.
  if (!started.ok() && !had_run_) LetGoOfSpool(destination_);
  TDBG_RETURN_IF_ERROR(started);
  checkpoints_.Configure(prepared.run_directory, job_flags_.checkpoint_directory, destination_.url, quiet_);
  if (!job_flags_.adopt) {
    jobs::JobResult unused;
    const Status back = checkpoints_.BringBack(prepared.attempt, [&] { return GoesOn(stopper, 0, &unused); });
    if (!back.ok()) registration_.Move(jobs::JobPhase::kFailed, back.message());
    TDBG_RETURN_IF_ERROR(back);
  }
  auto exit_code = RunJob(config, watcher, stopper, prepared, live);
  const bool kept = checkpoints_.Finish();
  if (upload_.Finish()) {
    LetGoOfSpool(destination_);
    if (!quiet_)
      Note(fmt::format("all of the run is in {}{}: {}", destination_.url,
                       checkpoints_.is_on() && kept ? ", and its checkpoints" : "", upload_.there()));
  }
  return exit_code;
}

// Takes over a job that another launcher left. From here on it is handled like any other job.
Status RunCommand::Adopt(const jobs::PreparedAttempt& left) {
  const auto job = registration_.Adopt(jobs::RunId(left.run_directory));
  if (!job) return NotFound("it is in no registry, so nobody knows its process: " + left.run_directory);
  adopted_ = job->process;
  if (!jobs::IsAlive(job->process))
    return FailedPrecondition(
        fmt::format("the first process of '{}' is gone, others of it still train; wait for them", job->name));
  asked_before_ = job->status == jobs::JobStatus::kStopping;
  if (const int64_t started = registration_.StartedWallNanos(); ends_nanos_ >= 0 && started > 0)
    ends_nanos_ -= std::max<int64_t>(0, base::SystemClock().WallNanos() - started);
  if (!quiet_) Note(fmt::format("looks after '{}' again, which has trained on", job->name));
  return OkStatus();
}

void RunCommand::Register(const plan::Config& config, const jobs::PreparedAttempt& prepared) {
  jobs::JobRecord job;
  job.run_directory = prepared.run_directory;
  job.url = destination_.url;
  job.run_id = jobs::RunId(prepared.run_directory);
  job.working_directory = jobs::AbsolutePath(".");
  job.command = base::RedactCommand(command_);
  job.flags = FlagsWithoutSecrets(words_);
  job.environment = WithoutSecrets(EnvironmentVariables(), job_flags_.secrets);
  job.host = base::HostName();
  job.detached = job_flags_.detach;
  job.attempt = prepared.attempt;
  Json rules = Json::array();
  for (const plan::RuleConfig& rule : RulesToWatch(config)) {
    Json actions = Json::array();
    for (const std::string& action : rule.on_issue) actions.push_back(base::RedactText(action));
    rules.push_back({{"rule", rule.rule}, {"on_issue", actions}});
  }
  Json settings = {{"rules", rules},
                   {"max_restarts", job_flags_.max_restarts},
                   {"restart_on", job_flags_.restart_on},
                   {"max_runtime", job_flags_.max_runtime},
                   {"interrupt_every", job_flags_.interrupt_every},
                   {"checkpoint_directory", job_flags_.checkpoint_directory},
                   {"upload", destination_.url}};
  if (node_) {
    settings["node"] = node_->node();
    settings["nodes"] = node_->nodes();
  }
  job.settings = format::DumpJson(settings);
  registration_.Launch(job);
}

bool RunCommand::GoesOn(Stopper& stopper, int64_t millis, jobs::JobResult* result) {
  return jobs::WaitForRestart(millis, *control_, [&] { return stopper.asked(); }, ends_nanos_, result);
}

void RunCommand::GoIntoBackground(const jobs::PreparedAttempt& prepared) {
  if (!job_flags_.detach) return;
  const std::string& name = registration_.name().empty() ? prepared.run_directory : registration_.name();
  if (json_) {
    PrintJson({{"job", name}, {"run", LastingPlace(prepared.run_directory)}});
  } else {
    Note(fmt::format("{} runs in the background; tdbg logs {} -f shows its output, tdbg stop {} ends it",
                     Printable(name), ShellWord(name), ShellWord(name)));
  }
  detached_.LetGo(base::JoinPath(prepared.run_directory, kLauncherLog));
}

// The attempt after this one. Of several nodes one lays it out, once no worker of this one lives.
bool RunCommand::BeginNext(Stopper& stopper, jobs::PreparedAttempt* prepared, jobs::JobResult* result) {
  bool told = false;
  while (node_ && !node_->MayBeginNext()) {
    if (!std::exchange(told, true) && !quiet_) Note("waiting for the other nodes' workers to end");
    if (!GoesOn(stopper, kNodesPollMillis, result)) return false;
  }
  const int64_t now = base::SystemClock().WallNanos();
  const Status next = node_ ? node_->BeginNext(prepared, now) : jobs::BeginNextAttempt(prepared, now);
  if (!next.ok()) Note("the command is not started again: " + next.message());
  return next.ok();
}

// Whether the command is to be started again, and all that is said of that.
bool RunCommand::Restart(Stopper& stopper, jobs::JobResult* result, jobs::PreparedAttempt* prepared) {
  const bool rehearsal = result->stop == jobs::JobStop::kInterrupted;
  if (!IsToRestart(*result)) return false;
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
  if (!GoesOn(stopper, gap_millis, result)) return false;
  std::string disk = LossText(rehearsal_);
  if (!checkpoints_.Survive(prepared->attempt + 1, result, &disk, [&] { return GoesOn(stopper, 0, result); }))
    return false;
  if (!BeginNext(stopper, prepared, result)) return false;
  registration_.Move(jobs::JobPhase::kRestarting, fmt::format("attempt {}{}", prepared->attempt, disk));
  registration_.BeginAttempt(prepared->attempt);
  if (!quiet_) {
    Note(fmt::format("{}; attempt {} begins{}", why, prepared->attempt, disk));
  }
  return true;
}

Result<jobs::JobResult> RunCommand::RunAttempt(const plan::Config& config, Stopper& stopper,
                                               const jobs::PreparedAttempt& prepared, LiveLine& line,
                                               LiveStatus& live) {
  if (prepared.attempt > 0 && !adopted_) {
    if (const Status told = TellEarlierSteps(prepared.run_directory, prepared.attempt); !told.ok())
      Note("this attempt does not know of the earlier ones' evaluations: " + told.message());
  }
  jobs::JobOptions options;
  options.command = command_;
  options.environment =
      jobs::TrainingEnvironment(prepared.run_directory, prepared.attempt, base::FindPythonHome());
  if (!job_flags_.checkpoint_directory.empty())
    options.environment["TDBG_CHECKPOINT_DIR"] = job_flags_.checkpoint_directory;
  options.run_directory = prepared.run_directory;
  options.control = &*control_;
  options.attempt = prepared.attempt;
  if (node_) options.host = base::HostName();
  attempt_began_nanos_ = base::SystemClock().MonotonicNanos();
  if (config.stop_grace_seconds)
    options.stop_grace_millis = base::MillisOfSeconds(*config.stop_grace_seconds);
  if (ends_nanos_ >= 0) {
    options.max_runtime_millis =
        std::max<int64_t>(0, (ends_nanos_ - base::SystemClock().MonotonicNanos()) / 1'000'000);
  }
  options.interrupts_now = ReclaimDue(rehearsal_, prepared);
  options.interrupts_by = "--interrupt-every";
  options.interrupts_wipe = rehearsal_.wipe;
  // With a reclaimed machine its disk is lost; without --wipe it is only the attempt's own $TMPDIR that is.
  Scratch scratch;
  if (rehearsal_.is_on()) scratch = Scratch(prepared, &options.environment);
  if (!quiet_) options.say = Note;
  if (line.enabled()) {
    options.tick_millis = kDrawMillis;
    options.on_tick = [&] { line.Draw(live.Line(base::SystemClock().MonotonicNanos())); };
  }
  options.on_stopping = [this](jobs::JobStop stop, const std::string& by) {
    if (stop != jobs::JobStop::kInterrupted)
      registration_.Move(jobs::JobPhase::kStopping, "asked to stop by " + by);
  };
  // A command that we took over keeps its output: its tdbg-log has outlived the launcher.
  const bool adopts = adopted_.has_value();
  const std::unique_ptr<jobs::TrainingLog> log =
      adopts ? nullptr : log_.Start(job_flags_, command_, prepared, node_ ? node_->node() : 0);
  options.log = log.get();
  auto started =
      adopts ? jobs::Job::Adopt(std::move(options), *adopted_) : jobs::Job::Start(std::move(options));
  adopted_.reset();
  if (!started.ok()) return started.status();
  jobs::Job& job = **started;
  if (std::exchange(asked_before_, false))
    job.RequestStop("user");
  else
    registration_.Training(job.pid(), fmt::format("attempt {}, {}pid {}{}", prepared.attempt,
                                                  node_ ? node_->Name() + ", " : std::string(), job.pid(),
                                                  adopts ? ", looked after again" : ""));
  stopper.Set(&job);
  GoIntoBackground(prepared);
  Exporters exporters;
  // What is one for all nodes is done by one: exports by the first, events by the one that judges.
  if (!node_ || node_->node() == 0)
    exporters.Start(config, prepared.run_directory, prepared.attempt, /*again=*/adopts);
  if (!node_ || node_->node() == 0) compaction_.Start(prepared.run_directory);
  checkpoints_.Start();
  if (!adopts && (!node_ || node_->judges())) {
    Json fields = {
        {"attempt", prepared.attempt}, {"command", base::RedactCommand(command_)}, {"pid", job.pid()}};
    if (MayRestart()) fields["restarts"] = true;
    Record(AppendEvent(prepared.run_directory, "job_started", fields));
  }
  jobs::JobResult result = job.Wait();
  stopper.Set(nullptr);
  if (result.stop == jobs::JobStop::kInterrupted && rehearsal_.left > 0) --rehearsal_.left;
  scratch = Scratch();
  if (log) result.output_error = log_.Finish(*log);
  if (!node_) Record(AppendJobEnded(prepared.run_directory, prepared.attempt, result, IsToRestart(result)));
  registration_.EndAttempt(prepared.attempt, result.exit.shell_code(), ExitText(result));
  if (result.killed) Note("the command outlived its grace and was killed");
  exporters.Finish(kExportGraceMillis);
  return result;
}

void RunCommand::EndJob(const plan::Config& config, const jobs::PreparedAttempt& prepared,
                        jobs::JobPhase phase, const std::string& message) {
  if (!node_ || node_->node() == 0) TellReadersOfEnd(config, prepared.run_directory);
  registration_.Move(phase, message);
}

Result<int> RunCommand::RunJob(const plan::Config& config, watch::Watcher& watcher, Stopper& stopper,
                               jobs::PreparedAttempt& prepared, LiveStatus& live) {
  if (base::FindPythonHome().empty()) {
    Note(
        "cannot find tdbg's Python part, so Python programs will not be captured; set TDBG_HOME to the "
        "directory that holds the package, or install the wheel");
  }
  Status watched;
  std::thread watching([&] {
    watched =
        node_ ? node_->Follow(watcher, [&] { listeners_.Hear(job_flags_, prepared); }) : watcher.Follow();
  });
  // Whatever happens below, the thread is told and joined.
  const auto end_watching = [&](const jobs::JobResult& ended) {
    watcher.JobEnded(node_ ? node_->End(prepared, ended, std::string(StopName(ended.stop))) : EndOf(ended));
    if (watching.joinable()) watching.join();
    if (node_ && node_->took_over()) listeners_.TellOf(&registration_);
  };
  LiveLine line(quiet_ || job_flags_.detach ? -1 : STDERR_FILENO);
  jobs::JobResult result;
  bool was_to_restart = false;
  do {
    const auto attempt = RunAttempt(config, stopper, prepared, line, live);
    if (!attempt.ok()) {
      jobs::JobResult failed;
      failed.exit.code = kExitNotExecutable;
      end_watching(failed);
      EndJob(config, prepared, jobs::JobPhase::kFailed, attempt.status().message());
      Note(attempt.status().message());
      return attempt.status().code() == Code::kNotFound ? kExitNoCommand : kExitNotExecutable;
    }
    result = *attempt;
    was_to_restart = IsToRestart(result);
  } while (Restart(stopper, &result, &prepared));
  line.Close();
  // It ended between two attempts: what was written is how the command ended, and not how the job did.
  if (!node_ && was_to_restart)
    Record(AppendJobEnded(prepared.run_directory, prepared.attempt, result, /*restarts=*/false));

  const Status sealed = jobs::SealAttempt(prepared.run_directory, prepared.attempt);
  // From here on ctrl-C ends this process again: judging the rest may take a while, and everything is on
  // disk.
  const sigset_t signals = jobs::ForwardedSignals();
  jobs::DrainForwardedSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  end_watching(result);
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
  EndJob(config, prepared, phase, message);
  listeners_.Finish();
  compaction_.Finish(kCompactGraceMillis);
  return Finish(watcher, prepared, result);
}

Result<int> RunCommand::Finish(watch::Watcher& watcher, const jobs::PreparedAttempt& prepared,
                               const jobs::JobResult& result) {
  const bool stopped = result.stop == jobs::JobStop::kRequested || result.stop == jobs::JobStop::kMaxRuntime;
  int exit_code = stopped ? kExitStopped : result.exit.shell_code();
  if (exit_code == kExitOk && (!result.output_error.empty() || !result.not_restarted.empty()))
    exit_code = kExitRefused;
  if (quiet_ && !json_) return exit_code;
  const auto report = [&]() -> Result<RunSummary> {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(prepared.run_directory));
    TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
    (void)news;
    return SummariseRun(*trial,
                        node_ ? node_->Statuses(watcher, prepared.run_directory) : watcher.statuses());
  }();
  // Scripts that call us must get the command's exit code even if the summary fails.
  if (!report.ok()) {
    Note("the run cannot be summarised: " + report.status().message());
    return exit_code;
  }
  RunSummary shown = *report;
  shown.launcher_alive = false;  // that is us, and we are done
  if (!quiet_) Tell("{}", FormatSummary(shown, Terminal::Of(STDERR_FILENO)));
  if (json_) PrintJson(SummaryToJson(shown));
  return exit_code;
}

}  // namespace

std::unique_ptr<Command> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace tdbg::cli
