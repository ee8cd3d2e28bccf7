// What a rule is to the engine. A rule declares what it needs, looks at steps, and returns findings; it does
// not act, store, or know who hears of it. Adding one: a folder under builtin/ and a line in
// builtin/register.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::rules {

/// One reason to say "condition met": a tensor at a step, a value against a threshold.
struct Finding {
  int64_t global_step = 0;
  std::string tensor;  ///< canonical name; empty if the finding is not about one tensor
  std::string worker;
  std::string measure;  ///< what was measured: "mean_abs"
  double value = 0;
  std::string comparison;  ///< "<", ">", ...
  double threshold = 0;
  std::string text;  ///< one sentence for a person, without the above repeated
};

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
  bool any_parameter = false;  ///< takes what it did not declare, too, as text (a Python rule with **kwargs)
};

/// Parsed and checked parameters; every ParameterSpec's default is in it.
class Parameters {
 public:
  /// Besides the rule's own, every rule accepts rule_to_invoke, start_step, end_step (exclusive), base_trial,
  /// other_trials, other_trial_<number>, source_s3_uri and action_json.
  /// \error kInvalidArgument  unknown (names the nearest), malformed, missing: names rule, parameter, what
  /// was found, accepted form
  static Result<Parameters> Parse(const RuleInfo& info, const std::map<std::string, std::string>& given);
  double Float(const std::string& name) const;
  int64_t Int(const std::string& name) const;
  bool Bool(const std::string& name) const;
  std::string Text(const std::string& name) const;
  std::vector<std::string> List(const std::string& name) const;
  bool Has(const std::string& name) const;  ///< given, or has a default
  /// What other_trials lists and, by their numbers, what other_trial_0, other_trial_1, ... name.
  std::vector<std::string> OtherTrials() const;
  const std::map<std::string, std::string>& all() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
};

/// What a rule may look at while it judges: the trial up to `step` (docs/semantics.md, "Causality").
class StepContext;  // src/rules/step_context.h
class RunPlan;      // src/rules/run_plan.h
struct LostWorker;  // src/rules/step_source.h

/// What a rule may reach beyond its run's steps, given by whoever runs the engine.
struct RuleEnvironment {
  /// Opens another run: by its path, or by the name of a run that lies beside the judged one. Empty: no other
  /// run can be had. \error kNotFound
  std::function<Result<std::unique_ptr<Trial>>(const std::string& path)> open_trial = {};
};

/// The heartbeat of a run stood still. Found by a clock, so it is an event, and replay obeys the event.
struct Stall {
  int64_t attempt = 0;
  int64_t after_step = -1;  ///< global; -1: before the first
  double seconds = 0;       ///< how long it had stood still when it was found
};

/// A rule that judges in a process of its own ran into its time limit. Found by a clock, so it is an event,
/// and replay obeys the event.
struct TimeLimitReached {
  enum class Asked : uint8_t { kStart = 0, kStep = 1, kEnd = 2 };
  std::string rule;  ///< configuration name
  std::string code;  ///< of what ran: another file, class or parameters are another rule
  Asked asked = Asked::kStep;
  int64_t global_step = 0;  ///< kStart: the first step that waited; kEnd: the last one
  double seconds = 0;       ///< the limit
  std::string details;
};

/// A document that a rule made of what it has seen so far.
struct Report {
  std::string file_name;  ///< "xgboost_report.html"
  std::string text;
};

/// How the judging of one step went.
enum class Judged : uint8_t {
  kNotDue = 0,  ///< nothing to judge here (cadence, other mode, inputs absent)
  kJudged = 1,
  kIncomplete = 2,  ///< its input was shed or damaged: never a clean verdict
  kPending = 3,     ///< handed over; AsyncRule::TakeAnswer will say
};

/// What an AsyncRule says of one step that it was handed.
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
  /// What must be captured for it. Called before training.
  virtual plan::Need Needs() const = 0;
  /// The numbers of a row it reads (trial/columns.h). In a directory of smdebug's with saved reductions not
  /// all are known: rows without one of these are not among StepContext::rows(), and where a tensor of
  /// Needs() has such a row the step is incomplete. Whoever names columns::kFinite looks at that first: a row
  /// that is known not to be finite is shown whatever else of it is unknown. By default all of a row.
  virtual uint64_t Columns() const { return ~uint64_t{0}; }
  /// How the run was meant to be kept, before the first Invoke. Not called where the run does not say: a
  /// directory of smdebug's has no plan of ours. `plan` outlives the rule.
  virtual void OnPlan(const RunPlan& plan) { (void)plan; }
  /// So many steps of the mode it judges must pass before its first verdict; 0: it judges the first step that
  /// has its inputs. What a user is told before a training that may be shorter.
  virtual int64_t LeastSteps() const { return 0; }
  /// Called for every complete step in order, live and in replay alike. Appends findings; the engine ends the
  /// rule at its first hit.
  virtual Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) = 0;
  /// After the last step (or when the job was stopped): rules that judge at the end do it here.
  virtual Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) {
    (void)last;
    (void)findings;
    return Judged::kNotDue;
  }
  /// After so many seconds without a heartbeat the rule wants to hear of it; nothing: never.
  virtual std::optional<double> StallThreshold() const { return std::nullopt; }
  virtual void OnStall(const Stall& stall, std::vector<Finding>* findings) {
    (void)stall;
    (void)findings;
  }
  /// True: the rule's parameters ask to stop the job at a finding, whatever the configuration says.
  virtual bool StopsJob() const { return false; }
  /// Asked now and then while the run grows, and at its end. Nothing: no document, or none that is new.
  virtual std::optional<Report> MakeReport() { return std::nullopt; }
  /// For a rule that ends without a finding: what it left out, and why, or which of its inputs it judged.
  virtual std::string Remarks() const { return {}; }
  /// For a rule never judged: what it would have needed, as a sentence (docs/semantics.md, "Never judged").
  virtual std::string WouldHaveNeeded() const = 0;
};

/// A rule that judges in another process, so that nobody waits for it: Invoke and AtEnd say kPending, and the
/// verdict comes later. It sees the run with its own eyes.
class AsyncRule : public Rule {
 public:
  /// `answered` is called, from any thread, when TakeAnswer has something new.
  virtual void OnAnswer(std::function<void()> answered) = 0;
  /// The next answer to a call of Invoke or AtEnd that returned kPending, in the order of those calls;
  /// nothing while the answer has not come. The rule bounds its own time: every such call gets an answer, or
  /// an error that ends the rule.
  virtual std::optional<Answer> TakeAnswer() = 0;
  /// Was the last answer's error the clock's? `rule` is left for the engine to fill in.
  virtual std::optional<TimeLimitReached> ReachedTimeLimit() const = 0;
  /// Tells a replay that the rule ran into its limit when the run was watched. The same rule with no more
  /// time than it had then ends at that step, in the same words.
  virtual void OnTimeLimitReached(const TimeLimitReached& reached) = 0;
  /// From its from_step on, steps are shown without this worker.
  virtual void OnWorkerLost(const LostWorker& worker) = 0;
  /// The rule has ended and is not called again: it may end its process.
  virtual void Ended() = 0;
  /// What it wrote to its standard streams, the last few kilobytes; for whoever debugs it.
  virtual std::string Output() const = 0;
};

using RuleFactory = std::function<Result<std::unique_ptr<Rule>>(const Parameters&)>;

class RuleRegistry {
 public:
  virtual ~RuleRegistry() = default;
  /// As Find and Make, for a configuration that may name a user's own rule; this registry has none of those.
  virtual Result<const RuleInfo*> FindFor(const plan::RuleConfig& config) const { return Find(config.rule); }
  virtual Result<std::unique_ptr<Rule>> MakeFor(const plan::RuleConfig& config) const {
    return Make(config.rule, config.parameters);
  }

  void Add(RuleInfo info, RuleFactory factory);
  /// By class name or snake name. \error kNotFound  lists the nearest
  Result<const RuleInfo*> Find(std::string_view name) const;
  Result<std::unique_ptr<Rule>> Make(std::string_view name,
                                     const std::map<std::string, std::string>& parameters) const;
  std::vector<const RuleInfo*> All() const;

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
