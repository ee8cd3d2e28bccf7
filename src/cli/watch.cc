// tdbg watch: follows a run that was started elsewhere (C++, another tool), or beside a training that
// attaches itself.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

#include "actions/action.h"
#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/live_status.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/terminal.h"
#include "cli/trust.h"
#include "cli/verdicts.h"
#include "jobs/interrupts.h"
#include "trial/remote_run.h"
#include "watch/watcher.h"

namespace tdbg::cli {
namespace {

constexpr int kDrawMillis = 200;
constexpr int kTurnMillis = 200;
constexpr char kWatchLockFile[] = "watch.lock";  // docs/format.md

class WatchCommand : public Command {
 public:
  std::string name() const override { return "watch"; }
  std::string help() const override { return "follow and judge a run that was started elsewhere"; }
  void Define(Flags& flags) override {
    flags
        .AddOption("RUN", run_,
                   "a path (may not exist yet), a name under ./tdbg-runs, a bucket's URL, or last")
        .Required();
    flags_.DefineRuleFlags(flags);
    flags_.DefineConfigFlag(flags);
    flags.AddFlag("--trust", trust_, "use the run's own rule files and actions, whoever made it");
    flags.AddFlag("--quiet", quiet_, "no live line");
    flags.AddFlag("--json", json_, "the verdicts as one JSON document on stdout");
    // By a training, beside itself: its standard input ends when the training does.
    flags.AddOption("--launched", launched_, "").TypeName("ATTEMPT").Hidden();
    flags.Footer(
        "\nWithout --rule and --config: the run's own rules. ctrl-C stops watching, never the run.\n"
        "exit code: as `tdbg check`");
  }

  Result<int> Run() override {
    jobs::BlockForwardedSignals();
    flags_.warned = launched_.has_value();
    TDBG_ASSIGN_OR_RETURN(plan::Config config, ResolveConfig(flags_));
    const bool elsewhere = !launched_ && RemoteRun::IsRemote(run_);
    if (elsewhere) TDBG_RETURN_IF_ERROR(RefuseActionsOnJob(config));
    const auto resolved = elsewhere ? ResolveRunToRead(run_) : ResolveRun(run_);
    if (!resolved.ok() && (elsewhere || resolved.status().code() == Code::kUnimplemented))
      return resolved.status();
    bool lost_rules = false;
    watch::WatchOptions options;
    options.run = resolved.ok() ? *resolved : run_;
    options.only_reads = elsewhere;
    if (config.rules.empty() && resolved.ok()) {
      TDBG_ASSIGN_OR_RETURN(const auto recorded, ReadRules(*resolved));
      if (recorded) {
        TrustedRules trusted = RulesToTrust(*resolved, *recorded, {.trust = trust_, .actions = !elsewhere});
        for (const std::string& line : trusted.left_out) Note(Printable(line));
        config.rules = std::move(trusted.rules);
        lost_rules = trusted.lost_rules;
        // Its own actions are performed where it trains.
        if (elsewhere) {
          for (plan::RuleConfig& rule : config.rules) rule.on_issue.clear();
        }
        for (plan::RuleConfig& rule : config.rules) {  // asked for again beside what is left of its own
          if (!trusted.lost_actions || rule.on_issue.empty()) continue;
          rule.on_issue.insert(rule.on_issue.end(), config.on_issue.begin(), config.on_issue.end());
        }
      }
      config.rules_said = config.rules_said || recorded.has_value();
    }
    options.rules = RulesToWatch(config);
    options.started_by_attempt = launched_;
    std::unique_ptr<base::FileLock> alone;
    if (launched_ && !WaitForTurn(options.run, &alone)) return kExitOk;
    LiveStatus live;
    options.on_progress = [&live](const watch::Progress& progress) { live.Update(progress); };
    if (!quiet_) options.on_found = TellFound;
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<watch::Watcher> watcher, watch::Watcher::Create(options));
    TDBG_ASSIGN_OR_RETURN(jobs::SignalInbox inbox, jobs::SignalInbox::Open());
    if (launched_) watcher->TakeOver();

    const base::UniqueFd done(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Status watched;
    std::thread following([&] {
      watched = watcher->Follow();
      const uint64_t one = 1;
      (void)!::write(done.get(), &one, sizeof(one));
    });
    if (!resolved.ok() && !quiet_ && !launched_)
      Tell("tdbg: no run at {} yet; waiting for one (ctrl-C ends the waiting)\n", run_);
    LiveLine line(quiet_ || launched_ ? -1 : STDERR_FILENO);
    bool interrupted = false, training_gone = !launched_;
    while (true) {
      pollfd sources[] = {
          {done.get(), POLLIN, 0}, {inbox.fd(), POLLIN, 0}, {training_gone ? -1 : STDIN_FILENO, POLLIN, 0}};
      const int ready = ::poll(sources, std::size(sources), line.enabled() ? kDrawMillis : -1);
      if (line.enabled()) line.Draw(live.Line(base::SystemClock().MonotonicNanos()));
      if (ready > 0 && (sources[0].revents & POLLIN)) break;
      if (ready > 0 && sources[2].revents != 0) {
        training_gone = true;
        watcher->StarterGone();
      }
      const int signal_number = inbox.Next();
      if (signal_number == 0 || signal_number == SIGUSR1 || signal_number == SIGUSR2) continue;
      if (interrupted) ::_exit(128 + signal_number);
      interrupted = true;
      watcher->StopWatching();
    }
    following.join();
    line.Close();
    // The training began no step, or its next start is judged by a watcher of its own.
    if (launched_ && (watched.code() == Code::kNotFound || watched.code() == Code::kDeadlineExceeded))
      return kExitOk;
    if (!watched.ok()) return watched;
    if (launched_) return ExitCodeOfVerdicts(watcher->statuses());
    const std::vector<rules::RuleStatus> statuses = watcher->statuses();
    StepNames names;
    if (const auto trial = Trial::Open(options.run); trial.ok()) names = NamesFor(**trial, statuses, {});
    if (json_)
      PrintJson({{"run", elsewhere ? run_ : options.run}, {"rules", VerdictsToJson(statuses, names)}});
    else
      Print("{}", FormatVerdicts(statuses, names, Terminal::Of(STDOUT_FILENO)));
    const int code = ExitCodeOfVerdicts(statuses);
    if (code != kExitOk) return code;
    TDBG_RETURN_IF_ERROR(CouldNotRead(watcher->damage()));
    return lost_rules ? kExitNotJudged : kExitOk;
  }

 private:
  // Of a run in a bucket the job is on another machine.
  Status RefuseActionsOnJob(const plan::Config& config) const {
    std::vector<std::string> wanted = config.on_issue;
    for (const plan::RuleConfig& rule : config.rules)
      wanted.insert(wanted.end(), rule.on_issue.begin(), rule.on_issue.end());
    for (const std::string& text : wanted) {
      const auto action = actions::ParseAction(text, {});
      if (action.ok() && (*action)->needs_job())
        return InvalidArgument(fmt::format(
            "{} acts on the job, which runs elsewhere: of {} it is judged only, and exec:, webhook:, email: "
            "and "
            "sms: are performed here; tdbg watch where it trains, or --on-issue of its tdbg run, can {}",
            Printable(text), Printable(run_), (*action)->name()));
    }
    return OkStatus();
  }

  // One watcher speaks for the trainings of a run: the next start of one that is just ending waits here, and
  // so does that of a second process that attaches the same directory. False: that training is over.
  static bool WaitForTurn(const std::string& run, std::unique_ptr<base::FileLock>* lock) {
    base::FileSystem& files = base::FilesBelow(base::LocalFileSystem(), run);
    while (true) {
      auto taken = files.Lock(base::JoinPath(run, kWatchLockFile));
      if (taken.ok()) *lock = *std::move(taken);
      // Where nothing can be locked, one process that attaches is the ordinary case.
      if (taken.ok() || taken.status().code() != Code::kFailedPrecondition) return true;
      pollfd training = {STDIN_FILENO, POLLIN, 0};
      if (::poll(&training, 1, kTurnMillis) > 0) return false;
    }
  }

  std::string run_;
  ConfigFlags flags_;
  std::optional<int64_t> launched_;
  bool quiet_ = false, json_ = false, trust_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeWatchCommand() { return std::make_unique<WatchCommand>(); }

}  // namespace tdbg::cli
