#include "watch/watcher.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "actions/action.h"
#include "base/background.h"
#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/printable.h"
#include "rulehost/registry.h"
#include "rules/judged_run.h"
#include "trial/access.h"
#include "trial/step_name.h"
#include "watch/action_runner.h"
#include "watch/breakpoints.h"
#include "watch/found.h"
#include "watch/incident_lines.h"
#include "watch/muted.h"
#include "watch/no_steps.h"
#include "watch/origins.h"
#include "watch/progress.h"
#include "watch/report_files.h"
#include "watch/requests.h"
#include "watch/standstill.h"
#include "watch/taken_actions.h"

namespace tdbg::watch {
namespace {

// How often to look for changes that no file notifies of: a process that died, a path that appeared.
constexpr int64_t kLookMillis = 1000;
constexpr int64_t kOpenMillis = 100;
// A report is made from everything seen so far; no more often than a person would reload it.
constexpr int64_t kReportMillis = 5000;
constexpr int64_t kCooldownSeconds = 300;
// How long to wait for a run that cannot be read when its job ends.
constexpr int64_t kGoneAtEndMillis = 5000;
constexpr int64_t kPatienceMillis = 2000;  // how long a user in front of a terminal waits without a message

int64_t WallNow() { return base::SystemClock().WallNanos(); }
int64_t MillisNow() { return base::SystemClock().MonotonicNanos() / 1'000'000; }

}  // namespace

struct Watcher::Impl {
  explicit Impl(WatchOptions given)
      : options(std::move(given)),
        breakpoints(options.run),
        mutes(options.run),
        runner([this](const ActionOutcome& next) { return TakeTurn(options.run, next); },
               [this](const ActionOutcome& outcome) { ActionDone(outcome); }) {}

  WatchOptions options;
  std::vector<std::vector<std::shared_ptr<actions::Action>>> actions;  // by rule
  Breakpoints breakpoints;
  std::unique_ptr<Trial> trial;
  Selection losses;
  std::vector<rules::LostWorker> declared_lost;
  int64_t job_attempt = -1;   // the first attempt of our own job; earlier findings are not about it
  int64_t stalled_step = -1;  // the first step that waits for a worker, and since when
  int64_t stalled_since_millis = 0;
  Standstill standstill;
  size_t attempts_seen = 0;
  int64_t reported_millis = 0;
  bool report_failed = false;
  bool events_failed = false;
  uint64_t origins_seen_at = ~uint64_t{0};  // TrialAccess::generation
  std::set<std::tuple<int64_t, std::string, std::string>> origins_told;
  std::vector<Origin> origins;
  bool origins_are_new = false;
  FoundOnce found_once;
  FollowedMutes mutes;
  bool finishing = false;  // the job has ended, and rules decide
  // Rule, step and attempt of each finding whose actions were started.
  std::set<std::tuple<size_t, int64_t, int64_t>> acted_on;
  // What a watcher before this one said last of each rule.
  std::unordered_map<std::string, rules::RuleStatus> said_before;  // by name

  std::atomic<bool> leaves = false;  // StopWatching
  std::atomic<bool> starter_gone = false;
  mutable std::mutex mutex;
  // Guarded by mutex.
  std::optional<rules::JobEnd> job_end;
  Trial* wakeable = nullptr;
  std::vector<rules::RuleStatus> snapshot;
  std::string stopped_by;

  // Used by Follow's thread only, like `trial`. Declared after what the threads of users' rules and of
  // actions use, so that these end first.
  std::unique_ptr<rulehost::Registry> registry;
  std::unique_ptr<rules::Engine> engine;
  ActionRunner runner;

  actions::JobControl Control() {
    actions::JobControl job;
    if (options.stop) job.stop = [this](const actions::Notice& notice) { return options.stop(notice.rule); };
    job.checkpoint = [](const actions::Notice& notice, int64_t seconds) {
      return SaveCheckpoint(notice.run, notice.rule, notice.at_step, seconds);
    };
    return job;
  }

  Status ParseActions() {
    const auto log = [this](const std::string& line) { Log(line); };
    for (const plan::RuleConfig& rule : options.rules) {
      auto list = ActionsOf(rule, engine->StopsJob(actions.size()), Control(), log);
      if (!list.ok()) return rule.where.empty() ? list.status() : list.status().Annotate(rule.where);
      actions.push_back(*std::move(list));
    }
    return OkStatus();
  }

  void Log(const std::string& line) const {
    if (options.log) {
      options.log(line);
    } else {
      std::fprintf(stderr, "tdbg: %s\n", base::Printable(line).c_str());
    }
  }

  // Called from several threads; an append is one write.
  void Event(const std::string& kind, int64_t wall_nanos, const std::string& fields) {
    if (options.only_reads) return;
    const Status status =
        base::FilesBelow(base::LocalFileSystem(), options.run)
            .AppendLine(base::JoinPath(options.run, "events.jsonl"), EventLine(kind, wall_nanos, fields));
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (!std::exchange(events_failed, true)) Log("the run's events cannot be written: " + status.message());
  }

  void ActionDone(const ActionOutcome& outcome) {
    if ((outcome.action == "stop" || outcome.action == "checkpoint_stop") && outcome.status.ok()) {
      const std::lock_guard lock(mutex);
      if (stopped_by.empty()) stopped_by = outcome.rule;
    }
    Event("action", WallNow(), ActionFields(outcome));
    if (!outcome.status.ok()) {
      Log(outcome.action + " for rule " + outcome.rule + " failed: " + outcome.status.message());
    }
  }

  // As users are told them.
  std::vector<rules::RuleStatus> Shown() const { return mutes.Shown(engine->statuses(), !finishing); }
  // Of what is muted now, and was not at the last look, or the reverse, is told, too.
  void AddNewlyMuted(std::vector<size_t>* changed) {
    if (!mutes.Refresh()) return;
    if (!mutes.trouble().ok()) Log(mutes.trouble().message());
    mutes.AddConcerned(engine->statuses(), changed);
  }

  std::optional<rules::JobEnd> JobEndNow() const {
    const std::lock_guard lock(mutex);
    return job_end;
  }

  // Whether those were the last words on this rule. From the first other ones on nothing of it is left out.
  bool WasSaid(const rules::RuleStatus& status) {
    const auto found = said_before.find(status.name);
    if (found == said_before.end()) return false;
    const rules::RuleStatus& before = found->second;
    const bool same_hit = before.findings.empty() == status.findings.empty() &&
                          (status.findings.empty() ||
                           before.findings.front().global_step == status.findings.front().global_step);
    if (before.state == status.state && before.details == status.details && same_hit) return true;
    said_before.erase(found);
    return false;
  }

  /// Has the run no launcher, and was every worker there that is going to be?
  bool WorkersDecideTheEnd() const { return !options.stop && (!options.started_by_attempt || starter_gone); }

  /// The training is gone, and began no step; or its next start has a watcher of its own, which also says
  /// what this one has not yet.
  bool HasNothingLeft() const {
    if (!options.started_by_attempt || !starter_gone) return false;
    const std::vector<int64_t> attempts = trial->attempts();
    return attempts.empty() || attempts.back() != *options.started_by_attempt;
  }

  Status MaySpeak() const { return options.may_speak ? options.may_speak() : OkStatus(); }

  void Tell(const std::vector<size_t>& changed, int64_t wall_nanos, bool job_is_gone) {
    Status may = MaySpeak();
    for (; !may.ok() && may.code() != Code::kFailedPrecondition; may = MaySpeak())
      (void)trial->WaitForChange(kOpenMillis);
    if (!may.ok()) return;  // it is said by somebody else
    for (const rules::TimeLimitReached& reached : engine->TakeTimeLimits())
      Event("rule_time_limit", wall_nanos, TimeLimitFields(reached));
    // Whoever launched the job says when it is gone. Without a launcher the workers do.
    job_is_gone = job_is_gone || (!options.stop && trial->loaded_all_steps());
    TakenActions taken(options.run);
    const std::vector<rules::RuleStatus> shown = Shown();
    std::set<size_t> told;  // what began afresh and hit at once has changed twice
    for (const size_t i : changed) {
      if (!told.insert(i).second) continue;
      const rules::RuleStatus& status = shown[i];
      const bool hit = status.state == rules::RuleState::kIssuesFound && !status.findings.empty();
      const int64_t step = hit ? FirstHeard(status).global_step : engine->last_judged_step();
      if (!WasSaid(engine->statuses()[i])) {
        Event("rule_status", wall_nanos, StatusFields(mutes.Marked(engine->statuses()[i]), step, origins));
        if (options.on_status) options.on_status(status, step);
      }
      if (!hit) continue;
      actions::Notice notice;
      notice.run = options.run;
      notice.rule = status.name;
      notice.status = rules::RuleStateName(status.state);
      std::tie(notice.global_step, notice.attempt) = LatestFinding(TrialAccess(*trial), status);
      // A rule that goes on changes again, at its next finding and at the end. Its actions may not be over
      // yet, and what failed is not tried again.
      if (!acted_on.emplace(i, notice.global_step, notice.attempt).second) continue;
      notice.at_step = CommonFutureStep(*trial);
      notice.details = status.details;
      TellIncidents(*trial, status, origins, &notice);
      notice.step_name = StepNames(*trial, {&notice.global_step, 1}).Of(notice.global_step);
      notice.json =
          EventLine("rule_status", wall_nanos,
                    NoticeFields(status, notice.global_step, origins, options.run, notice.step_name));
      auto list = actions[i];
      // Nothing is left to stop, and the number of a process group that is gone may be another's by now.
      if (job_is_gone || notice.attempt < job_attempt)
        std::erase_if(list, [](const auto& action) { return action->needs_job(); });
      const int64_t cooldown = options.rules[i].action_cooldown_seconds.value_or(kCooldownSeconds);
      taken.LeaveOut(notice, wall_nanos, cooldown, [this](const std::string& line) { Log(line); }, &list);
      runner.Start(std::move(notice), std::move(list));
    }
    if (std::exchange(origins_are_new, false) || !changed.empty()) TellFound(wall_nanos, job_is_gone);
    const std::lock_guard lock(mutex);
    snapshot = shown;
  }

  // For people, who are not to wait for the end.
  void TellFound(int64_t wall_nanos, bool job_is_gone) {
    for (const Found& found : found_once.New(*trial, Shown(), origins, job_attempt, mutes.any_nonfinite())) {
      Event("found", wall_nanos, FoundFields(found));
      if (options.on_found && !job_is_gone) options.on_found(found);
    }
  }

  Status OpenWhenThere() {
    while (true) {
      const bool gone = JobEndNow().has_value() || starter_gone;
      TrialOptions trial_options;
      trial_options.wait_millis = gone ? 0 : kOpenMillis;
      auto opened = Trial::Open(options.run, trial_options);
      if (opened.ok()) {
        trial = *std::move(opened);
        if (options.started_by_attempt) {
          job_attempt = *options.started_by_attempt;
        } else if (const auto attempts = trial->attempts(); options.stop && !attempts.empty()) {
          job_attempt = attempts.back();
        }
        const std::lock_guard lock(mutex);
        wakeable = trial.get();
        return OkStatus();
      }
      const Code code = opened.status().code();
      if (gone || (code != Code::kNotFound && code != Code::kDeadlineExceeded)) return opened.status();
    }
  }

  // Once each, also where a later attempt repeats the step.
  void TellOrigins() {
    const TrialAccess access(*trial);
    if (access.generation() == origins_seen_at) return;
    origins_seen_at = access.generation();
    origins = OriginsOf(*trial);
    for (const Origin& origin : origins) {
      if (!origins_told.insert({origin.attempt, origin.worker, origin.json}).second) continue;
      origins_are_new = true;
      Event("nan_origin", WallNow(), OriginFields(origin));
    }
  }

  void LookAtBreakpoints() {
    Breakpoints::Events events;
    std::vector<Breakpoints::Hit> hits = breakpoints.Look(*trial, &events);
    for (const auto& [kind, fields] : events) Event(kind, WallNow(), fields);
    for (Breakpoints::Hit& hit : hits) {
      if (JobEndNow()) continue;  // nothing is left to hold, keep or stop
      auto action = actions::ParseAction(hit.then, Control());
      if (!action.ok()) {
        Log(hit.notice.rule + ": " + action.status().message());
        continue;
      }
      Log(hit.notice.rule + ": " + hit.notice.details + ": " + (*action)->name());
      hit.notice.at_step = CommonFutureStep(*trial);
      hit.notice.json = EventLine("break_hit", WallNow(), hit.notice.json);
      runner.Start(std::move(hit.notice), {std::shared_ptr<actions::Action>(*std::move(action))});
    }
  }

  // A launcher writes how an attempt ended before it begins the next one.
  void LearnOfStops() {
    const size_t attempts = trial->attempts().size();
    if (std::exchange(attempts_seen, attempts) == attempts || attempts < 2) return;
    const auto decisions = ReadDecisions(options.run);
    if (!decisions.ok()) return;
    for (const int64_t attempt : decisions->stopped) engine->DeclareStopped(attempt);
  }

  Status Judge() {
    TellOrigins();  // before the verdicts, which refer to them
    LearnOfStops();
    const int64_t now = WallNow();
    TDBG_ASSIGN_OR_RETURN(std::vector<size_t> changed, engine->Advance(*trial, now));
    AddNewlyMuted(&changed);
    Tell(changed, now, false);
    return OkStatus();
  }

  // Steps that the others committed may wait for a worker that has never written one; only this needs a
  // clock. If it died, its lock is free, which a replay sees, too. If it is alive and has written before, it
  // is waited for.
  Status DeclareLost() {
    const TrialAccess access(*trial);
    const auto steps = access.steps();
    size_t first = access.complete_count();
    while (first < steps.size() && steps[first].info.global_step <= engine->last_judged_step()) ++first;
    if (first >= steps.size()) {
      stalled_step = -1;
      return OkStatus();
    }
    const int64_t step = steps[first].info.global_step;
    if (step != stalled_step) {
      stalled_step = step;
      stalled_since_millis = MillisNow();
    }
    if (MillisNow() - stalled_since_millis < options.lost_after_millis) return OkStatus();
    bool declared = false;
    for (const auto& [name, rank, wrote] : access.MissingWorkers(first)) {
      if (wrote) continue;
      const rules::LostWorker lost{steps[first].attempt, name, step};
      declared_lost.push_back(lost);
      engine->DeclareLost(lost);
      Event("worker_lost", WallNow(), WorkerLostFields(lost));
      Log(name + " has not written anything; judging goes on without it from step " + std::to_string(step));
      declared = true;
    }
    return declared ? Judge() : OkStatus();
  }

  // Whether a training hangs is decided by the watcher's own clock, since another host's time stamps may be
  // wrong.
  Status DeclareStalled() {
    const TrialAccess access(*trial);
    // A training that is held was asked to stand still.
    const double seconds = standstill.Seconds(*trial, breakpoints.is_held(), MillisNow());
    const auto threshold = engine->StallThreshold();
    if (!threshold || seconds == 0 || seconds < *threshold) return OkStatus();
    rules::Stall stall;
    stall.after_step = engine->last_judged_step();
    stall.attempt = access.steps().empty() ? 0 : access.steps().back().attempt;
    stall.seconds = seconds;
    engine->DeclareStalled(stall);
    Event("stalled", WallNow(), StalledFields(stall));
    return Judge();
  }

  void WriteReports() {
    reported_millis = MillisNow();
    if (options.only_reads) return;
    for (const auto& [rule, report] : engine->TakeReports()) {
      const auto written = WriteReport(options.run, engine->statuses()[rule].name, report);
      if (!written.ok() && !std::exchange(report_failed, true))
        Log("the report of rule " + engine->statuses()[rule].name +
            " cannot be written: " + written.status().message());
    }
  }

  void TellProgress() {
    if (const auto shown = Shown(); options.on_progress)
      options.on_progress(ProgressOf(*trial, &losses, shown));
  }

  Status Look() {
    auto refreshed = trial->Refresh();
    if (!refreshed.ok()) return refreshed.status();
    TDBG_RETURN_IF_ERROR(Judge());
    if (!options.only_reads && MaySpeak().ok()) LookAtBreakpoints();
    TDBG_RETURN_IF_ERROR(DeclareLost());
    if (!options.only_reads) TDBG_RETURN_IF_ERROR(DeclareStalled());
    if (MillisNow() - reported_millis >= kReportMillis) WriteReports();
    TellProgress();
    return OkStatus();
  }

  Status FinishRules(rules::JobEnd end) {
    const int64_t begin = MillisNow();
    bool told = false;
    while (true) {
      const int64_t now = WallNow();
      TDBG_ASSIGN_OR_RETURN(std::vector<size_t> changed, engine->Finish(*trial, end, now));
      AddNewlyMuted(&changed);
      finishing = true;
      if (!leaves) Tell(changed, now, true);  // the job goes on, and others may judge it to its end
      TellProgress();
      if (engine->decided()) break;
      (void)engine->WaitForAnswer(kLookMillis);
      if (!engine->decided() && MillisNow() - begin > kPatienceMillis && !std::exchange(told, true)) {
        Log("waiting for rules in processes of their own, which have not judged all steps yet");
      }
    }
    WriteReports();
    const std::lock_guard lock(mutex);
    snapshot = Shown();
    return OkStatus();
  }

  // Verdicts are about the judged steps only, not about steps that could not be read.
  Status GiveUp(const Status& trouble) {
    const int64_t now = WallNow();
    std::vector<rules::RuleStatus> statuses = Shown();
    for (rules::RuleStatus& status : statuses) {
      if (status.state != rules::RuleState::kInProgress) continue;
      status.state = rules::RuleState::kError;
      status.details = "the run could not be read to its end: " + trouble.message();
      status.last_modified_wall_nanos = now;
      Event("rule_status", now, StatusFields(status, engine->last_judged_step(), origins));
      if (options.on_status) options.on_status(status, engine->last_judged_step());
    }
    const std::lock_guard lock(mutex);
    snapshot = std::move(statuses);
    return OkStatus();
  }

  Status Follow() {
    base::StayInBackground();
    const int64_t start = WallNow();
    if (const Status opened = OpenWhenThere(); !opened.ok()) {
      NoSteps nothing;
      auto changed = engine->Finish(nothing, JobEndNow().value_or(rules::JobEnd::kFailed), start);
      const std::lock_guard lock(mutex);
      snapshot = engine->statuses();
      return opened;
    }
    if (const auto plan = rules::PlanOf(options.run)) {
      for (const size_t i : engine->UsePlan(*plan))
        Log("rule " + engine->statuses()[i].name + ": " + engine->statuses()[i].details);
    }
    // The next start of a job that we look after. Of a run that is only looked at, what is gone is not known.
    if (const auto judged = ReadJudgedWhole(options.run);
        (options.stop || options.started_by_attempt) && judged.ok()) {
      for (const JudgedWhole& one : *judged)
        engine->DeclareJudged(one.name, one.code, one.until, one.attempt);
    }
    // Readers of the events must also know rules that have no status yet.
    for (const rules::RuleStatus& status : engine->statuses()) {
      if (!said_before.contains(status.name)) Event("rule_status", start, StatusFields(status, -1));
    }
    Status trouble;
    int64_t trouble_since_millis = 0;
    while (true) {
      // Read this before the refresh, so that the refresh sees everything that was written before the job
      // ended.
      const std::optional<rules::JobEnd> ended = JobEndNow();
      if (const Status may = MaySpeak(); may.code() == Code::kFailedPrecondition) {
        return may;
      } else if (!may.ok()) {
        (void)trial->WaitForChange(kLookMillis);
        continue;
      }
      Status status = Look();
      if (!status.ok()) {
        if (trouble.ok()) trouble_since_millis = MillisNow();
        if (status.message() != trouble.message()) {
          Event("watch_error", WallNow(), ErrorFields(status));
          Log("watching: " + status.message() + "; waiting for it");
        }
        const int64_t patience = ended ? kGoneAtEndMillis : options.gone_after_millis;
        const bool waited = MillisNow() - trouble_since_millis >= patience;
        // A launcher knows when its job ends. Without one, only time tells a short outage from the end: a
        // lock that cannot be reached looks like that of a worker that died.
        if (waited && (ended || !options.stop)) return GiveUp(status);
        trouble = std::move(status);
        (void)trial->WaitForChange(kLookMillis);
        continue;
      }
      trouble = OkStatus();
      if (ended) return FinishRules(*ended);
      if (HasNothingLeft()) {
        leaves = true;
        return FinishRules(rules::JobEnd::kStopped);
      }
      if (WorkersDecideTheEnd() && trial->loaded_all_steps()) {
        runner.Join();
        // A launcher that has recorded the end knows better than the workers' files; a replay asks it, too.
        rules::JobEnd end = rules::EndOf(trial->state());
        if (const auto recorded = ReadDecisions(options.run); recorded.ok() && recorded->end)
          end = *recorded->end;
        const std::lock_guard lock(mutex);
        // A worker that we asked to stop ends like any other.
        job_end = stopped_by.empty() ? end : rules::JobEnd::kStopped;
        continue;
      }
      (void)trial->WaitForChange(kLookMillis);
    }
  }
};

Watcher::Watcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Watcher::~Watcher() = default;

Result<std::unique_ptr<Watcher>> Watcher::Create(WatchOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  TDBG_ASSIGN_OR_RETURN(impl->registry,
                        rulehost::Registry::Create(impl->options.rules, {impl->options.run, -1}));
  TDBG_ASSIGN_OR_RETURN(impl->engine, rules::Engine::Create(impl->options.rules, *impl->registry,
                                                            rules::EnvironmentOf(impl->options.run)));
  impl->engine->OnAnswer([watcher = impl.get()] {
    const std::lock_guard lock(watcher->mutex);
    if (watcher->wakeable) watcher->wakeable->Wake();
  });
  TDBG_RETURN_IF_ERROR(impl->ParseActions());
  TDBG_ASSIGN_OR_RETURN(impl->losses, Selection::Make("losses", ""));
  impl->snapshot = impl->engine->statuses();
  return std::unique_ptr<Watcher>(new Watcher(std::move(impl)));
}

std::vector<plan::Need> Watcher::Needs() const { return impl_->engine->Needs(); }

std::vector<std::pair<std::string, int64_t>> Watcher::LeastSteps() const {
  return impl_->engine->LeastSteps();
}

void Watcher::TakeOver() {
  if (auto said = ReadStatuses(impl_->options.run); said.ok()) {
    for (rules::RuleStatus& status : *said) {
      std::string name = status.name;
      impl_->said_before.insert_or_assign(std::move(name), std::move(status));
    }
  }
  FoundReader told(impl_->options.run);
  for (const Found& found : told.Next()) impl_->found_once.Told(found);
  // What was decided by its clock stays decided, as for a replay.
  const auto decisions = ReadDecisions(impl_->options.run);
  if (!decisions.ok()) return;
  for (const rules::LostWorker& worker : decisions->lost) impl_->engine->DeclareLost(worker);
  for (const rules::Stall& stall : decisions->stalls) impl_->engine->DeclareStalled(stall);
  for (const rules::TimeLimitReached& reached : decisions->time_limits)
    impl_->engine->DeclareTimeLimit(reached);
}

Status Watcher::Follow() {
  const Status status = impl_->Follow();
  impl_->runner.Join();
  const std::lock_guard lock(impl_->mutex);
  impl_->wakeable = nullptr;
  return status;
}

void Watcher::JobEnded(rules::JobEnd end) {
  const std::lock_guard lock(impl_->mutex);
  impl_->job_end = end;
  if (impl_->wakeable) impl_->wakeable->Wake();
}

void Watcher::StarterGone() {
  impl_->starter_gone = true;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->wakeable) impl_->wakeable->Wake();
}

void Watcher::StopWatching() {
  impl_->leaves = true;
  JobEnded(rules::JobEnd::kStopped);
}

std::vector<rules::RuleStatus> Watcher::statuses() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->snapshot;
}

std::vector<std::string> Watcher::damage() const {
  return impl_->trial == nullptr ? std::vector<std::string>() : impl_->trial->damage();
}

std::string Watcher::stopped_by() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stopped_by;
}

}  // namespace tdbg::watch
