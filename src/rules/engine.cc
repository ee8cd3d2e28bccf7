#include "rules/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "rules/details.h"
#include "rules/kept_findings.h"
#include "rules/nonfinite_episodes.h"
#include "rules/run_plan.h"
#include "rules/running_rule.h"
#include "rules/selector.h"
#include "rules/trial_source.h"
#include "trial/columns.h"

namespace tdbg::rules {
namespace {

const std::string& NameOf(const plan::RuleConfig& config, const RuleInfo& info) {
  return config.name.empty() ? info.class_name : config.name;
}

}  // namespace

struct Engine::Impl {
  // Answers come from other threads: their news, and who wants to hear of it.
  std::mutex mutex;
  std::condition_variable news;
  bool answered = false;                   // guarded by mutex
  std::function<void()> answered_outside;  // guarded by mutex

  const RuleRegistry* registry = nullptr;
  RuleEnvironment environment;
  std::vector<Running> rules;  // behind what their answers use: destroyed before it
  std::vector<RuleStatus> statuses;
  std::unordered_map<std::string, size_t> places;  // in both, by the rule's name
  std::vector<LostWorker> lost;
  std::vector<int64_t> stopped_attempts;  // attempts
  std::vector<Stall> stalls;              // by step: a later attempt may hang at an earlier one
  std::vector<TimeLimitReached> declared_limits, found_limits;
  size_t next_stall = 0;
  size_t next = 0;  // position of the first step not judged yet
  int64_t last_judged_step = -1;
  int64_t judging_step = -1;           // the one at hand, or the last that was
  int64_t shown_attempt = kNoAttempt;  // the latest whose steps are judged
  bool held_up = false;                // an attempt waits until rules have answered about the one before
  uint64_t overlay_generation = 0;
  bool started = false;
  NonfiniteEpisodes episodes;

  void Answered() {
    std::function<void()> tell;
    {
      const std::lock_guard lock(mutex);
      answered = true;
      tell = answered_outside;
    }
    news.notify_all();
    if (tell) tell();
  }

  Result<std::unique_ptr<Rule>> MakeRule(const plan::RuleConfig& config) {
    TDBG_ASSIGN_OR_RETURN(std::unique_ptr<Rule> rule, registry->MakeFor(config));
    rule->Enter(environment);
    if (auto* const async = dynamic_cast<AsyncRule*>(rule.get())) {
      async->OnAnswer([this] { Answered(); });
      for (const LostWorker& worker : lost) async->OnWorkerLost(worker);
      TDBG_ASSIGN_OR_RETURN(const RuleInfo* const info, registry->FindFor(config));
      for (const TimeLimitReached& reached : declared_limits) {
        if (reached.rule == NameOf(config, *info)) async->OnTimeLimitReached(reached);
      }
    }
    return rule;
  }

  Status Add(const plan::RuleConfig& config) {
    TDBG_ASSIGN_OR_RETURN(const RuleInfo* const info, registry->FindFor(config));
    TDBG_ASSIGN_OR_RETURN(const Parameters parameters, Parameters::Parse(*info, config.parameters));
    Running running;
    running.config = config;
    if (parameters.Has("start_step")) running.start_step = parameters.Int("start_step");
    if (parameters.Has("end_step")) running.end_step = parameters.Int("end_step");
    if (running.end_step <= running.start_step) {
      return InvalidArgument(
          fmt::format("rule {}: parameter end_step: {} is not behind start_step {}: no step would be judged",
                      info->class_name, running.end_step, running.start_step));
    }
    TDBG_ASSIGN_OR_RETURN(std::unique_ptr<Rule> rule, MakeRule(config));
    running.Use(std::move(rule));
    const plan::Need need = running.rule->Needs();
    TDBG_ASSIGN_OR_RETURN(running.needed, Selector::Make(need.collections, need.tensor_regex));
    RuleStatus status;
    status.name = NameOf(config, *info);
    status.rule = info->class_name;
    status.code = CodeOf(config, *info);
    if (!places.emplace(status.name, statuses.size()).second)
      return InvalidArgument(fmt::format("two rules are called {}: give one of them a name", status.name));
    rules.push_back(std::move(running));
    statuses.push_back(std::move(status));
    return OkStatus();
  }

  void Decide(size_t i, RuleState state, std::string details, int64_t wall_nanos) {
    rules[i].done = true;
    rules[i].owed = 0;
    rules[i].ended_at = judging_step;
    if (AsyncRule* const async = rules[i].async) {
      async->Ended();
      statuses[i].output = async->Output();
    }
    statuses[i].state = state;
    statuses[i].details = CutDetails(std::move(details));
    statuses[i].last_modified_wall_nanos = wall_nanos;
  }

  // It was made of the same strings before, so it can be made again.
  bool MakeAgain(size_t i) {
    auto fresh = MakeRule(rules[i].config);
    if (!fresh.ok()) return false;
    rules[i].Use(*std::move(fresh));
    if (rules[i].plan) rules[i].rule->OnPlan(*rules[i].plan);
    rules[i].owed = 0;
    rules[i].asked = false;
    return true;
  }

  // From here on an attempt of which nobody knows how it follows from the one before: no rule compares the
  // two, and one that has found something looks for more. What was found and counted stands.
  void BeginApart() {
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].done && statuses[i].state != RuleState::kIssuesFound) continue;
      if (MakeAgain(i)) rules[i].done = false;
    }
  }

  // The next attempt takes over from the steps that are shown, all of which were judged. What was found in
  // those that it replaces stands: to train a step again is no answer to what happened in it.
  void TakeOver(StepSource& steps, std::vector<size_t>* changed) {
    std::vector<std::vector<int64_t>> attempts;
    for (const RuleStatus& status : statuses) attempts.push_back(AttemptsOf(status, steps));
    steps.ShowNextAttempt();
    if (steps.overlay_generation() == overlay_generation) return;
    for (size_t i = 0; i < rules.size(); ++i) MarkReplaced(steps.overlay_base(), attempts[i], &statuses[i]);
    StartAfresh(steps.overlay_base(), steps.AttemptOf(steps.step_count() - 1), changed);
    overlay_generation = steps.overlay_generation();
  }

  // Steps from `base` on are others than those that were judged: a later attempt (`attempt`) took over, or a
  // worker that nobody expected wrote of them. Rules start afresh on what the run now shows, those too that
  // have ended by what it does not show any more, unless what they found there stands. Below `base` nothing
  // can newly hit.
  void StartAfresh(int64_t base, int64_t attempt, std::vector<size_t>* changed) {
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].done && rules[i].ended_at < base) continue;
      // What a compactor has dropped since was judged before it went, and below `base` that stands.
      if (rules[i].owed + rules[i].lacking + statuses[i].steps_incomplete == 0)
        rules[i].whole_until = std::max(rules[i].whole_until, last_judged_step);
      if (attempt > rules[i].whole_attempt || rules[i].whole_attempt == kNoAttempt)
        rules[i].whole_until = std::min(rules[i].whole_until, base - 1);
      if (!MakeAgain(i)) continue;
      rules[i].unknown = 0;
      rules[i].unknown_of.clear();
      rules[i].lacking = 0;
      statuses[i].steps_judged = statuses[i].steps_incomplete = 0;
      const bool ended = std::exchange(rules[i].done, false);
      if (!ended && statuses[i].state == RuleState::kInProgress) continue;
      statuses[i].output.clear();
      changed->push_back(i);
      if (KeepReplaced(&statuses[i])) continue;
      statuses[i].state = RuleState::kInProgress;
      statuses[i].details.clear();
      statuses[i].nonfinite_since = -1;
    }
    next = next_stall = 0;
    last_judged_step = -1;
    episodes.Restart(base);
  }

  // Stalls that were found before `step` was there.
  void JudgeStalls(int64_t step, int64_t wall_nanos, std::vector<size_t>* changed) {
    for (; next_stall < stalls.size() && stalls[next_stall].after_step < step; ++next_stall) {
      if (stalls[next_stall].attempt > shown_attempt) continue;
      for (size_t i = 0; i < rules.size(); ++i) {
        if (!rules[i].Sees(std::max<int64_t>(stalls[next_stall].after_step, 0))) continue;
        const auto judge = [&](Rule& rule, std::vector<Finding>* findings) {
          rule.OnStall(stalls[next_stall], findings);
          return Result<Judged>(Judged::kNotDue);
        };
        if (Invoke(i, nullptr, judge, wall_nanos)) changed->push_back(i);
      }
    }
  }

  // `context`: the step at hand, where there is one. True if the rule's status changed.
  template <typename Judge>
  bool Invoke(size_t i, const StepContext* context, Judge&& judge, int64_t wall_nanos) {
    std::vector<Finding> findings;
    if (context) {
      context->ShowRowsThatKnow(rules[i].rule->Columns());
      context->ShowValuesBy(rules[i].plan.get());
    }
    Result<Judged> judged = Judged::kNotDue;
    try {
      judged = judge(*rules[i].rule, &findings);
    } catch (const std::exception& error) {
      judged = Internal(fmt::format("exception: {}", error.what()));
    } catch (...) {
      judged = Internal("exception of an unknown type");
    }
    // It may have looked at zeros that nobody recorded.
    if (const auto torn = base::TornMapping()) judged = DataLoss(*torn);
    const bool silent =
        judged.ok() && findings.empty() && (*judged == Judged::kNotDue || *judged == Judged::kPending);
    const bool was_whole = context && context->global_step() <= rules[i].whole_until;
    if (was_whole && judged.ok() && findings.empty() && *judged == Judged::kIncomplete)
      judged = Judged::kJudged;
    // What it looks for, a value perhaps, may be what is gone; then it finds nothing to say.
    rules[i].lacking += silent && context && !was_whole && context->statistics_incomplete();
    if (judged.ok() && *judged == Judged::kPending && rules[i].async != nullptr) {
      ++rules[i].owed;
      return false;
    }
    if (judged.ok() && *judged == Judged::kPending)
      judged = Internal("it owes an answer that nobody can take");
    if (judged.ok() && findings.empty() && context && rules[i].NeededSomethingHidden(*context)) {
      judged = Judged::kIncomplete;
    }
    return Take(i, std::move(judged), std::move(findings), wall_nanos);
  }

  // True if the rule's status changed.
  bool Take(size_t i, Result<Judged> judged, std::vector<Finding> findings, int64_t wall_nanos) {
    RuleStatus& status = statuses[i];
    if (!judged.ok()) {
      // The run has something of that name which is not what the rule looks at: nobody asked for a verdict.
      const bool other = rules[i].config.optional && judged.status().code() == Code::kInvalidArgument;
      if (other) status.steps_judged = 0;
      Decide(i, other ? RuleState::kNoIssuesFound : RuleState::kError,
             other ? std::string(kNothingToJudge) + judged.status().message() : judged.status().ToString(),
             wall_nanos);
      return true;
    }
    status.steps_judged += *judged == Judged::kJudged || !findings.empty();
    status.steps_incomplete += *judged == Judged::kIncomplete;
    if (findings.empty()) return false;
    if (rules[i].rule->GoesOn()) {
      AddFindings(std::move(findings), &status);
      status.state = RuleState::kIssuesFound;
      status.details = HitDetails(status.rule, status.findings);
      status.last_modified_wall_nanos = wall_nanos;
      PlaceInEpisode(&status);
      return true;
    }
    const int64_t step = findings.front().global_step;
    AddFindings(std::move(findings), &status);  // to what was found in earlier attempts
    Decide(i, RuleState::kIssuesFound, HitDetails(status.rule, status.findings), wall_nanos);
    rules[i].ended_at = step;
    PlaceInEpisode(&status);
    return true;
  }

  void PlaceInEpisode(RuleStatus* status) const {
    if (!FollowsNonfinite(*status)) return;
    status->nonfinite_since = episodes.BeginOf(status->findings.front().global_step);
  }

  // After the rules have judged the step. `changed`: those that it changed.
  void FollowEpisodes(const StepContext& context, std::span<const size_t> changed) {
    if (changed.empty() && !episodes.begun()) return;
    context.ShowRowsThatKnow(columns::kFinite);
    for (const size_t i : changed) {
      if (!FoundNonfinite(statuses[i]) && FoundAmongNonfinite(context, statuses[i]))
        statuses[i].nonfinite_since = context.global_step();
      if (FollowsNonfinite(statuses[i])) episodes.Begin(statuses[i].findings.front().global_step);
    }
    if (!episodes.begun()) return;
    episodes.See(context);
    for (const size_t i : changed) PlaceInEpisode(&statuses[i]);
  }

  // What rules that judge elsewhere have said meanwhile.
  void TakeAnswers(int64_t wall_nanos, std::vector<size_t>* changed) {
    {
      const std::lock_guard lock(mutex);
      answered = false;
    }
    for (size_t i = 0; i < rules.size(); ++i) {
      while (rules[i].owed > 0) {
        std::optional<Answer> answer = rules[i].async->TakeAnswer();
        if (!answer) break;
        --rules[i].owed;
        if (answer->judged.ok() && *answer->judged == Judged::kIncomplete &&
            answer->global_step <= rules[i].whole_until)
          answer->judged = Judged::kJudged;
        if (!answer->judged.ok()) {
          if (auto reached = rules[i].async->ReachedTimeLimit()) {
            reached->rule = statuses[i].name;
            found_limits.push_back(*std::move(reached));
          }
          // In the rule's own words; a code of ours would say that we are at fault.
          Decide(i, RuleState::kError, answer->judged.status().message(), wall_nanos);
          changed->push_back(i);
        } else if (Take(i, std::move(answer->judged), std::move(answer->findings), wall_nanos)) {
          changed->push_back(i);
        }
      }
    }
  }

  bool Ready(const StepSource& steps, size_t position) const {
    if (position < steps.complete_count()) return true;
    return !lost.empty() && !steps.IsAwaited(position, lost);
  }

  bool Owed() const {
    return std::ranges::any_of(rules, [](const Running& rule) { return rule.owed > 0; });
  }

  // The steps that are shown, as far as they are complete.
  void JudgeShown(StepSource& steps, bool all, int64_t wall_nanos, std::vector<size_t>* changed) {
    const size_t count = steps.step_count();
    for (; next < count && (all || Ready(steps, next)); ++next) {
      if (next > 0 && steps.BeginsApart(next)) {
        held_up = Owed();
        if (held_up) return;
        BeginApart();
      }
      const int64_t s = judging_step = steps.Info(next).global_step;
      JudgeStalls(s, wall_nanos, changed);
      const StepContext* context = nullptr;  // looked up only where somebody still looks
      const size_t changed_before = changed->size();
      for (size_t i = 0; i < rules.size(); ++i) {
        if (!rules[i].Sees(s)) continue;
        if (!context) context = &steps.At(next, lost);
        const auto judge = [&](Rule& rule, std::vector<Finding>* findings) {
          return rule.Invoke(*context, findings);
        };
        if (Invoke(i, context, judge, wall_nanos)) changed->push_back(i);
      }
      if (context) FollowEpisodes(*context, std::span(*changed).subspan(changed_before));
      last_judged_step = s;
    }
  }

  void Judge(StepSource& steps, bool all, int64_t wall_nanos, std::vector<size_t>* changed) {
    if (started && steps.overlay_generation() != overlay_generation) {
      // Of several changes at once only the last one's base is known.
      const bool one = steps.overlay_generation() == overlay_generation + 1;
      StartAfresh(one ? steps.overlay_base() : -1, kNoAttempt, changed);
    }
    if (!std::exchange(started, true)) {
      for (Running& rule : rules)
        rule.whole_until = std::min(rule.whole_until, LastStepUpTo(steps, rule.whole_attempt));
      steps.ShowFirstAttempt();
    }
    overlay_generation = steps.overlay_generation();
    for (held_up = false;;) {
      const size_t count = steps.step_count();
      const bool more = steps.HasNextAttempt();
      shown_attempt = more && count > 0 ? steps.AttemptOf(count - 1) : kNoAttempt;
      JudgeShown(steps, all, wall_nanos, changed);
      if (held_up) return;
      const bool to_the_end = all && !more;
      JudgeStalls(to_the_end ? std::numeric_limits<int64_t>::max() : last_judged_step + 1, wall_nanos,
                  changed);
      if (!more || next < count) return;
      held_up = Owed();
      if (held_up) return;
      TakeOver(steps, changed);
    }
  }

  void JudgeAndListen(StepSource& steps, bool all, int64_t wall_nanos, std::vector<size_t>* changed) {
    do {
      Judge(steps, all, wall_nanos, changed);
      TakeAnswers(wall_nanos, changed);
    } while (held_up && !Owed());
  }

  void DecideRest(StepSource& steps, JobEnd end, int64_t wall_nanos, std::vector<size_t>* changed) {
    std::vector<DroppedInfo> dropped;
    std::vector<std::string> damage;
    bool asked = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].done || rules[i].owed > 0) continue;
      if (steps.step_count() > 0 && !std::exchange(rules[i].asked, true)) {
        const StepContext& last = steps.At(steps.step_count() - 1, lost);
        const auto judge = [&](Rule& rule, std::vector<Finding>* findings) {
          return rule.AtEnd(last, findings);
        };
        last.ShowRowsThatKnow(rules[i].rule->Columns());
        last.ShowValuesBy(rules[i].plan.get());
        if (Invoke(i, nullptr, judge, wall_nanos) && rules[i].done) {
          changed->push_back(i);
          continue;
        }
        if (rules[i].owed > 0) continue;
      }
      if (statuses[i].state == RuleState::kIssuesFound) {  // it went on, and what it found stands
        rules[i].done = true;
        rules[i].ended_at = judging_step;
        changed->push_back(i);
        continue;
      }
      changed->push_back(i);
      if (!asked) {
        dropped = steps.dropped();
        damage = steps.damage();
        asked = true;
      }
      const std::string incomplete = rules[i].Incomplete(statuses[i], dropped, damage);
      if (statuses[i].steps_judged == 0) {
        const bool nothing =
            rules[i].config.optional && incomplete.empty() && statuses[i].steps_incomplete == 0;
        std::string text(nothing ? kNothingToJudge : kNotJudged);
        text += rules[i].rule->WouldHaveNeeded();
        if (!rules[i].doubt.empty()) text += "; " + rules[i].doubt;
        if (end == JobEnd::kStopped) text += "; the job was stopped before that";
        if (!incomplete.empty()) text += fmt::format("; {}{}", kIncomplete, incomplete);
        // A stop explains missing steps; it does not explain lost ones.
        const bool stopped = end == JobEnd::kStopped && incomplete.empty();
        const RuleState state = stopped   ? RuleState::kStopped
                                : nothing ? RuleState::kNoIssuesFound
                                          : RuleState::kError;
        Decide(i, state, std::move(text), wall_nanos);
      } else if (!incomplete.empty()) {
        Decide(i, RuleState::kError, std::string(kIncomplete) + incomplete, wall_nanos);
      } else {
        Decide(i, RuleState::kNoIssuesFound, Remarked(*rules[i].rule, steps.At(steps.step_count() - 1, lost)),
               wall_nanos);
      }
    }
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(const std::vector<plan::RuleConfig>& rules,
                                               const RuleRegistry& registry,
                                               const RuleEnvironment& environment) {
  auto impl = std::make_unique<Impl>();
  impl->registry = &registry;
  impl->environment = environment;
  for (const plan::RuleConfig& config : rules) {
    Status status = impl->Add(config);
    if (!status.ok()) {
      // An unknown rule is the configuration's fault, whatever the registry calls it.
      if (status.code() == Code::kNotFound) status = InvalidArgument(status.message());
      return config.where.empty() ? status : status.Annotate(config.where);
    }
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

std::vector<plan::Need> Engine::Needs() const {
  std::vector<plan::Need> needs;
  for (size_t i = 0; i < impl_->rules.size(); ++i) {
    needs.push_back(impl_->rules[i].rule->Needs());
    needs.back().who = impl_->statuses[i].name;
    needs.back().collections_to_save = impl_->rules[i].config.collections_to_save;
  }
  return needs;
}

Result<std::vector<size_t>> Engine::Advance(StepSource& steps, int64_t wall_nanos) {
  std::vector<size_t> changed;
  impl_->JudgeAndListen(steps, false, wall_nanos, &changed);
  return changed;
}

Result<std::vector<size_t>> Engine::Finish(StepSource& steps, JobEnd end, int64_t wall_nanos) {
  std::vector<size_t> changed;
  impl_->JudgeAndListen(steps, true, wall_nanos, &changed);
  if (!impl_->held_up) impl_->DecideRest(steps, end, wall_nanos, &changed);
  return changed;
}

Result<std::vector<size_t>> Engine::Advance(Trial& trial, int64_t wall_nanos) {
  TrialSource source(trial, impl_->stopped_attempts);
  return Advance(source, wall_nanos);
}

Result<std::vector<size_t>> Engine::Finish(Trial& trial, JobEnd end, int64_t wall_nanos) {
  std::vector<int64_t> stopped = impl_->stopped_attempts;
  if (const auto attempts = trial.attempts(); end == JobEnd::kStopped && !attempts.empty())
    stopped.push_back(attempts.back());
  TrialSource source(trial, std::move(stopped));
  return Finish(source, end, wall_nanos);
}

void Engine::DeclareLost(LostWorker worker) {
  for (auto& running : impl_->rules) {
    if (!running.done && running.async != nullptr) running.async->OnWorkerLost(worker);
  }
  impl_->lost.push_back(std::move(worker));
}

void Engine::DeclareJudged(const std::string& name, const std::string& code, int64_t until, int64_t attempt) {
  const auto place = impl_->places.find(name);
  if (place == impl_->places.end() || code.empty() || impl_->statuses[place->second].code != code) return;
  impl_->rules[place->second].whole_until = until;
  impl_->rules[place->second].whole_attempt = attempt;
}

void Engine::DeclareStopped(int64_t attempt) { impl_->stopped_attempts.push_back(attempt); }

void Engine::DeclareStalled(const Stall& stall) {
  std::vector<Stall>& stalls = impl_->stalls;
  stalls.insert(std::ranges::upper_bound(stalls, stall.after_step, {}, &Stall::after_step), stall);
}

void Engine::DeclareTimeLimit(const TimeLimitReached& reached) {
  const auto place = impl_->places.find(reached.rule);
  AsyncRule* const async = place == impl_->places.end() ? nullptr : impl_->rules[place->second].async;
  if (async != nullptr) async->OnTimeLimitReached(reached);
  impl_->declared_limits.push_back(reached);
}

std::vector<TimeLimitReached> Engine::TakeTimeLimits() { return std::exchange(impl_->found_limits, {}); }

std::optional<double> Engine::StallThreshold() const {
  std::optional<double> least;
  // A rule that would not be told of it must not be waited for: it would be declared again at each look.
  const int64_t step = std::max<int64_t>(impl_->last_judged_step, 0);
  for (const Running& running : impl_->rules) {
    const auto threshold = running.Sees(step) ? running.rule->StallThreshold() : std::nullopt;
    if (threshold && (!least || *threshold < *least)) least = threshold;
  }
  return least;
}

bool Engine::StopsJob(size_t rule) const { return impl_->rules[rule].rule->StopsJob(); }

std::vector<std::pair<size_t, Report>> Engine::TakeReports() {
  std::vector<std::pair<size_t, Report>> reports;
  for (size_t i = 0; i < impl_->rules.size(); ++i) {
    // A rule that failed may be in any state.
    if (impl_->statuses[i].state == RuleState::kError) continue;
    if (auto report = impl_->rules[i].rule->MakeReport()) reports.emplace_back(i, *std::move(report));
  }
  return reports;
}

std::vector<std::pair<std::string, int64_t>> Engine::LeastSteps() const {
  std::vector<std::pair<std::string, int64_t>> least;
  for (size_t i = 0; i < impl_->rules.size(); ++i) {
    const int64_t steps = impl_->rules[i].rule->LeastSteps();
    if (steps > 0) least.emplace_back(impl_->statuses[i].name, steps);
  }
  return least;
}

std::vector<size_t> Engine::UsePlan(const plan::Plan& plan) {
  std::vector<size_t> doubted;
  const std::vector<plan::Need> needs = Needs();
  const auto shared = std::make_shared<const SharedPlan>(plan);
  for (size_t i = 0; i < needs.size(); ++i) {
    impl_->rules[i].plan = std::make_unique<RunPlan>(shared, needs[i]);
    impl_->rules[i].rule->OnPlan(*impl_->rules[i].plan);
    impl_->rules[i].doubt = plan::WhyNeverThere(needs[i], plan);
    if (impl_->rules[i].done || impl_->rules[i].doubt.empty()) continue;
    impl_->statuses[i].details = CutDetails("Its inputs cannot appear: " + impl_->rules[i].doubt);
    doubted.push_back(i);
  }
  return doubted;
}

const std::vector<RuleStatus>& Engine::statuses() const { return impl_->statuses; }
int64_t Engine::last_judged_step() const { return impl_->last_judged_step; }

bool Engine::decided() const {
  return std::all_of(impl_->rules.begin(), impl_->rules.end(), [](const auto& rule) { return rule.done; });
}

bool Engine::owed_answers() const { return impl_->Owed(); }

bool Engine::WaitForAnswer(int64_t timeout_millis) {
  std::unique_lock lock(impl_->mutex);
  return impl_->news.wait_for(lock, std::chrono::milliseconds(timeout_millis),
                              [&] { return impl_->answered; });
}

void Engine::OnAnswer(std::function<void()> answered) {
  const std::lock_guard lock(impl_->mutex);
  impl_->answered_outside = std::move(answered);
}

}  // namespace tdbg::rules
