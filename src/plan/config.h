// A user's configuration: one strict schema for flags, YAML, JSON and the environment. docs/configuration.md.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tdbg/status.h"

namespace tdbg::plan {

/// Where a document came from, for messages: "debug.yaml:12: rules[0].parameters.threshold: ...".
struct Source {
  std::string name;                                                  ///< file, "--collect", "$TDBG_CONFIG"
  std::function<int(const std::string& json_pointer)> line_of = {};  ///< 0 or absent: not known
};

/// One entry of `collections:` or one --collect flag. Unset values inherit the built-in's or the defaults.
struct CollectionConfig {
  std::string name;
  std::vector<std::string> include_regex, tensor_names, reductions;
  std::vector<Statistic> statistics;  ///< derived ones, at summaries.every
  std::map<std::string, std::string>
      save;  ///< save_interval, start_step, end_step, save_steps, with mode prefixes "train."
  std::optional<bool> raw, summaries, histogram;
  std::string where;
};

struct HookConfig;  // plan/hook_config.h
/// One entry of `rules:`, one --rule or one --rule-file flag. Parameters stay strings: the rule parses them,
/// strictly.
struct RuleConfig {
  std::string rule;  ///< as written: vanishing_gradient or VanishingGradient; of a file: the class in it
  std::string
      file;  ///< the user's own rule: a Python source (*.py) or a shared library; empty: a built-in one
  std::string name;  ///< RuleConfigurationName; empty: the class name
  std::map<std::string, std::string> parameters;
  std::vector<std::string> on_issue;  ///< "stop", "exec:CMD", "webhook:URL"; empty: the run's
  /// A rule that hits again so soon (the job's next attempt) does not send the same webhook, mail or command
  /// again. Nothing: the run's, else five minutes.
  std::optional<int64_t> action_cooldown_seconds;
  /// The rule was not asked for by name: a run that holds nothing for it is not an error.
  bool optional = false;
  /// Instead of the values the rule would have kept by itself; beside what the user's own collections keep.
  std::vector<CollectionConfig> collections_to_save;
  std::string where;  ///< "debug.yaml:12", "--rule", for messages
  /// Limits of a rule from a file, which runs in a process of its own: seconds for a step, seconds until it
  /// is ready for its first step, bytes of private memory.
  std::optional<int64_t> limit_seconds, limit_start_seconds;
  std::optional<uint64_t> limit_memory;
};

/// FILE:CLASS into its parts. \error kInvalidArgument  with what is accepted
Status ParseRuleFile(const std::string& text, RuleConfig* rule);

struct Config {
  std::string dir, upload;
  std::optional<bool> shared;  ///< the run is for whom the umask lets in, and not for its user alone
  /// The document was smdebug's: exactly what it says is kept, and no default rule judges.
  std::shared_ptr<const HookConfig> hook;
  std::vector<std::string> warnings;  ///< what was passed over in smdebug's documents
  std::optional<int64_t> summaries_every, histograms_every;
  std::optional<bool> context, record_end;
  std::optional<std::string> step_by, when_full, journal_directory;
  std::optional<uint64_t> journal_bytes, budget_bytes, black_box_bytes;
  std::optional<double> overhead;  ///< a share of a step's time; 0: no limit
  std::optional<int64_t> shap_rows, verify_every, flight;
  std::vector<CollectionConfig> collections;
  std::vector<RuleConfig> rules;
  bool rules_said = false;            ///< `rules:` was written, if only as an empty list: no default rule
  std::vector<std::string> on_issue;  ///< for all rules
  std::optional<int64_t> action_cooldown_seconds;
  std::optional<int64_t> stop_grace_seconds;
  /// TensorBoard files during the run: their directory; "" for <run>/tensorboard.
  std::optional<std::string> tensorboard_directory;
  std::optional<int64_t> tensorboard_every;  ///< per-tensor statistics at such mode steps
  /// smdebug's layout during the run: its directory; "" for <run>/smdebug.
  std::optional<std::string> smdebug_directory;
};

/// Strict: an unknown key, wrong type, bad number or contradiction is an error that names source, line where
/// known, key, what was found, what is accepted, and the nearest valid name. A hook configuration of smdebug
/// is recognised by its keys and read as smdebug reads it.
Result<Config> ParseConfig(const nlohmann::json& document, const Source& source);
/// `later` wins key by key; lists (rules, collections, on_issue) are appended, a collection of the same name
/// merged.
Config MergeConfigs(Config earlier, const Config& later);
/// "--collect NAME[:interval]". \error kInvalidArgument
Result<CollectionConfig> ParseCollectFlag(const std::string& text);

/// A derived statistic of the tensors of these collections, and of those that match a regex.
struct StatisticNeed {
  std::vector<std::string> collections = {};
  std::vector<std::string> tensor_regex = {};
  Statistic statistic = {};
};

/// What one rule needs captured, in the plan's words. Rules declare it (src/rules/rule.h), the command line
/// passes it here.
struct Need {
  std::vector<std::string> collections = {};   ///< built-in or user's collections whose statistics it reads
  std::vector<std::string> tensor_regex = {};  ///< and tensors by name
  bool raw = false;                            ///< it needs values of all these, not only statistics
  /// Beside the statistics above: values of these collections' tensors, of at most `raw_max_elements` (-1:
  /// any).
  std::vector<std::string> raw_collections = {};
  int64_t raw_max_elements = -1;
  std::optional<Schedule> raw_schedule = {};
  /// Tensors of these collections, and those that `tensor_regex` finds if `histograms_of_regex` is set, need
  /// a histogram with each row of statistics in the first `histogram_steps` steps of a mode (-1: in all).
  std::vector<std::string> histogram_collections = {};
  bool histograms_of_regex = false;
  int64_t histogram_steps = -1;
  std::vector<StatisticNeed> statistics = {};  ///< instead of summaries, for tensors of their own
  /// Collections that were asked for with the rule; if one of them keeps values, the rule asks for none
  /// itself.
  std::vector<CollectionConfig> collections_to_save = {};
  std::string who = {};  ///< rule configuration name
};
/// Why a rule that needs this can never see it in a run of this plan, as a sentence; empty where it may.
/// Certain only of what the plan's own kinds say: a pattern may match anything.
std::string WhyNeverThere(const Need& need, const Plan& plan);
/// Built-in collections + the user's + the rules' needs -> the plan.
/// \error kInvalidArgument  unknown collection without regex or names, bad regex, contradictions; with
/// `where`.
Result<Plan> ResolvePlan(const Config& config, const std::vector<Need>& needs);

/// The built-in collections: weights, biases, gradients, losses, outputs, inputs, relu_output, relu_input,
/// tanh_input, sigmoid_input, model_input, embedding_input, optimizer_variables, metrics, scalars, labels,
/// predictions, all, default ...
const std::vector<CollectionPlan>& BuiltinCollections();

}  // namespace tdbg::plan
