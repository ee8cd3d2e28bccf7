// The interface of a rule. A rule declares what it needs, looks at steps, and returns findings; it does not
// act, store, or know who is told of them. To add one: docs/adding-a-rule.md.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

inline constexpr size_t kMostHistory = 12;  ///< of a finding: what a line of a terminal shows

/// One case in which a rule's condition was met: a tensor, a step, a value and its threshold.
struct Finding {
  int64_t global_step = 0;
  std::string tensor;  ///< canonical name; empty if the finding is not about one tensor
  std::string worker;
  std::string measure;  ///< what was measured: "mean_abs"
  double value = 0;
  std::string comparison;  ///< "<", ">", ...
  double threshold = 0;
  std::string text;  ///< one sentence for people, which does not repeat the above
  /// Of a step that a later attempt has replaced since: whose step it was. -1: it is the one that the run
  /// shows
  int64_t attempt = -1;
  /// Only of the profile: which detector found it (profile/catalogue.h). `text` is then the whole sentence.
  std::string detector;
  /// Only of the profile: the tensor's latest values up to the step, at most kMostHistory, oldest first;
  /// empty where it has none, or the detector looks at no single number of it.
  std::vector<std::pair<int64_t, double>> history = {};  // global step, value
  std::string history_of = {};                           ///< "value" (a loss, a rate) or "l2"
  /// Only of the profile: what to do next, where it is not what the catalogue says of its detector.
  std::string advice = {};
  /// Only of the profile: the user has muted it, and why (mutes.h). Empty: it is not muted.
  std::string muted_because = {};
};

/// Between which values what was measured is no finding; nothing on a side without a limit.
struct ExpectedRange {
  std::optional<double> least, most;
};
/// Nothing where the finding was no comparison with a limit.
std::optional<ExpectedRange> ExpectedOf(const Finding& finding);

/// Parameter of a rule: parsed strictly from its string.
struct ParameterSpec {
  std::string name;
  std::string type;           ///< "float", "int", "bool", "string", "regex list", "collection list"
  std::string default_value;  ///< as text; empty and !required: none
  bool required = false;
  std::string unit;                                           ///< "percent", "steps", ...
  std::string help;                                           ///< one sentence
  double minimum = -std::numeric_limits<double>::infinity();  ///< of numbers, inclusive
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  ///< of strings: nothing else is accepted
  std::string declared_at = {};           ///< "mine.py:12", of a rule that users wrote
};

struct RuleInfo {
  std::string class_name;  ///< "VanishingGradient"
  std::string snake_name;  ///< "vanishing_gradient"
  std::string scope;       ///< "deep learning", "any", "xgboost"
  std::string summary;     ///< one sentence: what it sees
  std::vector<ParameterSpec> parameters;
  bool listed = true;          ///< false: it can be named, but `all` does not include it
  bool any_parameter = false;  ///< accepts undeclared parameters, too, as text (a Python rule with **kwargs)
};

/// Parsed and checked parameters, defaults included.
class Parameters {
 public:
  /// Besides the rule's own, every rule accepts rule_to_invoke, start_step, end_step (exclusive), base_trial,
  /// other_trials, other_trial_<number>, source_s3_uri and action_json.
  /// \error kInvalidArgument  unknown (names the nearest), malformed or missing; the message has rule,
  /// parameter, what was found and what is accepted
  static Result<Parameters> Parse(const RuleInfo& info, const std::map<std::string, std::string>& given);
  double Float(const std::string& name) const;
  int64_t Int(const std::string& name) const;
  bool Bool(const std::string& name) const;
  std::string Text(const std::string& name) const;
  std::vector<std::string> List(const std::string& name) const;
  bool Has(const std::string& name) const;  ///< given, or has a default
  bool IsGiven(const std::string& name) const;
  /// The runs of other_trials, then those of other_trial_0, other_trial_1, ... in order of their numbers.
  std::vector<std::string> OtherTrials() const;
  const std::map<std::string, std::string>& all() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> defaults_;  // names of values that nobody gave
};

/// All that a rule may look at while it judges: the trial up to this step (docs/semantics.md, "Causality").
class StepContext;  // src/rules/step_context.h
class RunPlan;      // src/rules/run_plan.h
struct LostWorker;  // src/rules/step_source.h

/// What a rule may use beyond its run's steps. The caller of the engine provides it.
struct RuleEnvironment {
  /// Opens another run, by its path or by the name of a run beside the judged one. Empty: other runs cannot
  /// be opened.
  /// \error kNotFound
  std::function<Result<std::unique_ptr<Trial>>(const std::string& path)> open_trial = {};
};

/// The heartbeat of a run stood still. A clock decides that, so it is recorded as an event, which a replay
/// follows.
struct Stall {
  int64_t attempt = 0;
  int64_t after_step = -1;  ///< global; -1: before the first
  double seconds = 0;       ///< how long it had stood still when it was found
};

/// A rule in a process of its own exceeded its time limit. A clock decides that, so it is recorded as an
/// event, which a replay follows.
struct TimeLimitReached {
  enum class Asked : uint8_t { kStart = 0, kStep = 1, kEnd = 2 };
  std::string rule;  ///< configuration name
  std::string code;  ///< identifies what ran: its file, class and parameters
  Asked asked = Asked::kStep;
  int64_t global_step = 0;  ///< kStart: the first step that waited; kEnd: the last one
  double seconds = 0;       ///< the limit
  std::string details;
};

/// A document that a rule made from what it has seen so far.
struct Report {
  std::string file_name;  ///< "xgboost_report.html"
  std::string text;
};

/// How the judging of one step went.
enum class Judged : uint8_t {
  kNotDue = 0,  ///< nothing to judge here (cadence, other mode, inputs absent)
  kJudged = 1,
  kIncomplete = 2,  ///< input was shed or damaged: the verdict cannot be "no issues"
  kPending = 3,     ///< given to another process; the result comes from AsyncRule::TakeAnswer
};

/// An AsyncRule's result for one step.
struct Answer {
  int64_t global_step = 0;
  Result<Judged> judged = Judged::kNotDue;  ///< an error ends the rule
  std::vector<Finding> findings;
};

class Rule {
 public:
  virtual ~Rule() = default;
  /// Called once, before anything else.
  virtual void Enter(const RuleEnvironment& environment) { (void)environment; }
  /// What must be captured for the rule. Called before training.
  virtual plan::Need Needs() const = 0;
  /// Which numbers of a row the rule reads (trial/columns.h); by default all. In a directory of smdebug's
  /// with saved reductions some are not known: rows that lack one of these are not in StepContext::rows(),
  /// and if a tensor of Needs() has such a row, the step is incomplete. A rule that names columns::kFinite
  /// must check that first: rows that are known not to be finite are shown even if their other numbers are
  /// unknown.
  virtual uint64_t Columns() const { return ~uint64_t{0}; }
  /// Called before the first Invoke with the run's plan: what was to be kept, and when. Not called if the run
  /// has none, as smdebug's directories. `plan` outlives the rule.
  virtual void OnPlan(const RunPlan& plan) { (void)plan; }
  /// How many steps of the judged mode must pass before the first verdict; 0: the first step that has the
  /// inputs is judged, or a run of any usual length at its end. Told to the user before the training, which
  /// may be shorter.
  virtual int64_t LeastSteps() const { return 0; }
  /// Called for every complete step in order, live and in a replay. Appends findings; the engine ends the
  /// rule at the first step that has any.
  virtual Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) = 0;
  /// Called after the last step (or when the job was stopped), for rules that judge at the end.
  virtual Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) {
    (void)last;
    (void)findings;
    return Judged::kNotDue;
  }
  /// True: the rule goes on after a finding, and its findings add up. Otherwise the first step with findings
  /// ends it.
  virtual bool GoesOn() const { return false; }
  /// After how many seconds without a heartbeat the rule wants to be told; nothing: never.
  virtual std::optional<double> StallThreshold() const { return std::nullopt; }
  virtual void OnStall(const Stall& stall, std::vector<Finding>* findings) {
    (void)stall;
    (void)findings;
  }
  /// True: the rule's parameters ask to stop the job at a finding, whatever the configuration says.
  virtual bool StopsJob() const { return false; }
  /// Called from time to time while the run grows, and at its end. Nothing: no document, or none that is new.
  virtual std::optional<Report> MakeReport() { return std::nullopt; }
  /// For a rule that ends without a finding: what it left out and why, or which inputs it judged.
  virtual std::string Remarks() const { return {}; }
  /// For a rule that never judged: what it would have needed, as a sentence (docs/semantics.md, "Never
  /// judged").
  virtual std::string WouldHaveNeeded() const = 0;
};

/// A rule that judges in another process, so that others do not wait for it: Invoke and AtEnd return
/// kPending, and the result comes later. It opens the run itself.
class AsyncRule : public Rule {
 public:
  /// Sets a function that is called, from any thread, when TakeAnswer has something new.
  virtual void OnAnswer(std::function<void()> answered) = 0;
  /// The next answer to a call of Invoke or AtEnd that returned kPending, in the order of the calls; nothing
  /// if it has not come yet. The rule has its own time limit: every such call gets an answer, or an error
  /// that ends the rule.
  virtual std::optional<Answer> TakeAnswer() = 0;
  /// Was the last answer's error the time limit? The engine fills in `rule`.
  virtual std::optional<TimeLimitReached> ReachedTimeLimit() const = 0;
  /// In a replay: the rule exceeded its limit when the run was watched. The same rule with no more time than
  /// it had then ends at that step, in the same words.
  virtual void OnTimeLimitReached(const TimeLimitReached& reached) = 0;
  /// From the worker's from_step on, steps are shown without it.
  virtual void OnWorkerLost(const LostWorker& worker) = 0;
  /// Called when the rule has ended and will not be called again, so it may end its process.
  virtual void Ended() = 0;
  /// The last few kilobytes of its standard output and error, for debugging the rule.
  virtual std::string Output() const = 0;
};

using RuleFactory = std::function<Result<std::unique_ptr<Rule>>(const Parameters&)>;

class RuleRegistry {
 public:
  virtual ~RuleRegistry() = default;
  /// As Find and Make, for a configuration that may name a user's own rule. This registry itself has none of
  /// those.
  virtual Result<const RuleInfo*> FindFor(const plan::RuleConfig& config) const { return Find(config.rule); }
  virtual Result<std::unique_ptr<Rule>> MakeFor(const plan::RuleConfig& config) const {
    return Make(config.rule, config.parameters);
  }

  void Add(RuleInfo info, RuleFactory factory);
  /// By class name or snake name. \error kNotFound  lists the nearest
  Result<const RuleInfo*> Find(std::string_view name) const;
  Result<std::unique_ptr<Rule>> Make(std::string_view name,
                                     const std::map<std::string, std::string>& parameters) const;
  std::vector<const RuleInfo*> All() const;  ///< only those with `listed`

 private:
  struct Entry {
    RuleInfo info;
    RuleFactory factory;
  };
  std::vector<Entry> entries_;
};

/// The whole list, in one function that a reader can scroll through: builtin/register.cc.
const RuleRegistry& BuiltinRules();

}  // namespace tdbg::rules
