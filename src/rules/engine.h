// Runs rules over a trial, step by step. The same code runs live (watch) and in a replay (tdbg check), so
// their verdicts agree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "rules/rule.h"
#include "rules/step_source.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

/// smdebug's and SageMaker's words. Stored as text in events.
enum class RuleState : uint8_t {
  kInProgress = 0,
  kNoIssuesFound = 1,
  kIssuesFound = 2,
  kError = 3,
  kStopped = 4
};
std::string_view RuleStateName(RuleState state);  ///< "IssuesFound"

struct RuleStatus {
  std::string name;  ///< RuleConfigurationName
  std::string rule;  ///< class name
  /// Identifies what judges: a hash of class and parameters. Empty: a rule from a file, which may change.
  std::string code;
  RuleState state = RuleState::kInProgress;
  std::string details;  ///< StatusDetails: Amazon's first line, then evidence; at most 1024 characters
  int64_t last_modified_wall_nanos = 0;
  int64_t steps_judged = 0;
  int64_t steps_incomplete = 0;
  /// All findings of the step at which the rule ended. What was found stands if a later attempt replaces the
  /// step (Finding::attempt).
  std::vector<Finding> findings;
  /// If the findings are only of NaN or infinity: the step at which that episode began
  /// (nonfinite_episodes.h). Rules with the same step found the same thing. -1: not known
  int64_t nonfinite_since = -1;
  std::string output;  ///< of a rule that has ended: the last part of its standard output and error
};

/// How the job ended, for rules still in progress.
enum class JobEnd : uint8_t { kCompleted, kStopped, kFailed };

class Engine {
 public:
  /// \error kInvalidArgument  unknown rule, bad parameters, two rules of one name; the message says where
  /// they were given
  static Result<std::unique_ptr<Engine>> Create(const std::vector<plan::RuleConfig>& rules,
                                                const RuleRegistry& registry = BuiltinRules(),
                                                const RuleEnvironment& environment = {});
  ~Engine();

  std::vector<plan::Need> Needs() const;
  /// Judges every step that was complete at the trial's last Refresh and was not judged yet, attempt after
  /// attempt: all steps of one before a later one replaces some. From the first call on the trial shows no
  /// attempt that is not judged yet (TrialAccess::ShowUpTo). Returns the
  /// indexes of the rules whose status changed. `wall_nanos` is the time of these changes.
  Result<std::vector<size_t>> Advance(Trial& trial, int64_t wall_nanos);
  /// Call when the job has ended: judges what is left, including steps that some worker never committed, and
  /// decides every rule (NoIssuesFound, Error, Stopped). Rules in processes of their own may not have
  /// answered yet: until decided(), wait for answers and call this again.
  Result<std::vector<size_t>> Finish(Trial& trial, JobEnd end, int64_t wall_nanos);
  /// The same for any source of steps.
  Result<std::vector<size_t>> Advance(StepSource& steps, int64_t wall_nanos);
  Result<std::vector<size_t>> Finish(StepSource& steps, JobEnd end, int64_t wall_nanos);
  /// Declares a worker lost: steps no longer wait for it, and what it delivers from that step on is not
  /// judged. The live caller records it, so that a replay can call this, too, before its first Advance.
  void DeclareLost(LostWorker worker);
  /// Before the first Advance: a watcher of an earlier start of the job found no issues with the same rule
  /// (name and code), and missed nothing of the steps up to `until`, which were of attempts up to `attempt`.
  /// What a compactor has dropped of them since makes no verdict incomplete.
  void DeclareJudged(const std::string& name, const std::string& code, int64_t until, int64_t attempt);
  /// This attempt ended because somebody asked for it, so that a process of it that is gone has not died. The
  /// caller knows from the run's events, live before the first step of a later attempt.
  void DeclareStopped(int64_t attempt);
  /// (name, steps) of rules that need so many steps before they judge anything, in the order given.
  std::vector<std::pair<std::string, int64_t>> LeastSteps() const;
  /// Sets the run's plan, before the first Advance, so that each rule judges as if it were the run's only
  /// one. If the plan does not keep what a rule looks at, its details say so at once, and its index is
  /// returned. The rule goes on all the same, since a script may record values itself; if it did not, the
  /// rule ends in Error with that reason.
  std::vector<size_t> UsePlan(const plan::Plan& plan);
  /// The heartbeat stood still. Rules that wait for stalls judge this one before the step that follows
  /// `after_step`, live and in a replay. The live caller records it. Call in the order in which stalls were
  /// found.
  void DeclareStalled(const Stall& stall);
  /// For a replay, before its first Advance: this rule reached its time limit while the run was watched.
  void DeclareTimeLimit(const TimeLimitReached& reached);
  /// Time limits that were reached since the last call; the live caller records them.
  std::vector<TimeLimitReached> TakeTimeLimits();
  /// The shortest standstill, in seconds, of which a rule in progress wants to be told.
  std::optional<double> StallThreshold() const;
  /// Do this rule's parameters ask for the job to be stopped at a finding?
  bool StopsJob(size_t rule) const;
  /// Documents that rules made since the last call.
  std::vector<std::pair<size_t, Report>> TakeReports();
  const std::vector<RuleStatus>& statuses() const;  ///< in the order given
  /// The last step that was judged, or given to rules in processes of their own.
  int64_t last_judged_step() const;
  bool decided() const;  ///< no rule is InProgress
  /// True if rules in processes of their own have not answered yet; call Advance when they have.
  bool owed_answers() const;
  /// Blocks until a rule in a process of its own has answered; false after `timeout_millis`.
  bool WaitForAnswer(int64_t timeout_millis);
  /// Sets a function that is called, from any thread, at each such answer: for callers that also wait for
  /// other things.
  void OnAnswer(std::function<void()> answered);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::rules
