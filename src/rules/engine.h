// Runs rules over a trial, step by step: the same code live (watch) and in replay (tdbg check), which is why
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
  RuleState state = RuleState::kInProgress;
  std::string details;  ///< StatusDetails: Amazon's first line, then evidence; at most 1024 characters
  int64_t last_modified_wall_nanos = 0;
  int64_t steps_judged = 0;
  int64_t steps_incomplete = 0;
  std::vector<Finding> findings;  ///< complete, of the step that hit
  /// Of a finding that is nothing but NaN or infinity: the step at which what it is part of began
  /// (nonfinite_episodes.h). Rules that say the same step found one thing. -1: not known
  int64_t nonfinite_since = -1;
  std::string output;  ///< of a rule that has ended: the last of what it wrote to its standard streams
};

/// How the job ended, for rules still in progress.
enum class JobEnd : uint8_t { kCompleted, kStopped, kFailed };

class Engine {
 public:
  /// \error kInvalidArgument  unknown rule, bad parameters, two rules of one name; names where they were
  /// written
  static Result<std::unique_ptr<Engine>> Create(const std::vector<plan::RuleConfig>& rules,
                                                const RuleRegistry& registry = BuiltinRules(),
                                                const RuleEnvironment& environment = {});
  ~Engine();

  std::vector<plan::Need> Needs() const;
  /// Judges every complete step the trial's last Refresh saw and that was not judged yet. Returns the indexes
  /// of the rules whose status changed. `wall_nanos` stamps the changes.
  Result<std::vector<size_t>> Advance(Trial& trial, int64_t wall_nanos);
  /// After the last step: judges what is left, steps that some worker never committed included, and decides
  /// every rule (NoIssuesFound, Error, Stopped). Only for a job that has ended: of one that runs, say
  /// InProgress. A rule that judges in a process of its own may still owe answers: until decided(), wait for
  /// some and call it again.
  Result<std::vector<size_t>> Finish(Trial& trial, JobEnd end, int64_t wall_nanos);
  /// The same over any source of steps.
  Result<std::vector<size_t>> Advance(StepSource& steps, int64_t wall_nanos);
  Result<std::vector<size_t>> Finish(StepSource& steps, JobEnd end, int64_t wall_nanos);
  /// From now on nothing is expected of this worker, and what it may still deliver from that step on is not
  /// judged. Whoever calls this live writes it down, so that a replay can call it, too, before its first
  /// Advance.
  void DeclareLost(LostWorker worker);
  /// Rules that judge nothing in a run of fewer steps, and how many: by name, in the order given.
  std::vector<std::pair<std::string, int64_t>> LeastSteps() const;
  /// The run's plan, before the first Advance: each rule then judges as if it were the run's only one. Says
  /// at once of rules, in their details, that the plan does not keep what they look at, and returns their
  /// indexes. They go on all the same, since a script may record by itself, and end in Error with the reason
  /// where it did not.
  std::vector<size_t> UsePlan(const plan::Plan& plan);
  /// The heartbeat stood still. Rules that wait for that judge it before the step behind `after_step`, live
  /// and in replay. Whoever calls this live writes it down; in the order in which they were found.
  void DeclareStalled(const Stall& stall);
  /// This rule ran into its time limit while the run was watched. For replay, before its first Advance.
  void DeclareTimeLimit(const TimeLimitReached& reached);
  /// Those that were found since the last call; whoever runs the engine live writes them down.
  std::vector<TimeLimitReached> TakeTimeLimits();
  /// The fewest seconds of standstill that a rule in progress wants to hear of.
  std::optional<double> StallThreshold() const;
  /// Does this rule, by its parameters, ask for the job to be stopped at a finding?
  bool StopsJob(size_t rule) const;
  /// Documents that are new since the last call.
  std::vector<std::pair<size_t, Report>> TakeReports();
  const std::vector<RuleStatus>& statuses() const;  ///< in the order given
  /// The last step that was judged, or handed to rules that judge in a process of their own.
  int64_t last_judged_step() const;
  bool decided() const;  ///< no rule is InProgress
  /// Rules owe answers: Advance will have news when they come.
  bool owed_answers() const;
  /// Blocks until a rule that judges in a process of its own has answered; false after `timeout_millis`.
  bool WaitForAnswer(int64_t timeout_millis);
  /// Called, from any thread, at each such answer: for whoever waits for something else, too.
  void OnAnswer(std::function<void()> answered);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::rules
