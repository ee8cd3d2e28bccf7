// A scenario: a small run, a rule with parameters, and what the rule must say of it. The syntax is in
// README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rules/engine.h"
#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::scenarios {

/// `offset + slope * mode_step`: most are constants, losses have a slope. Or a text.
struct Value {
  double offset = 0, slope = 0;
  std::string text = {};
  double At(int64_t mode_step) const { return offset + slope * static_cast<double>(mode_step); }
};

/// One line of a step: a tensor's elements there.
struct Assignment {
  std::string tensor;
  int64_t worker = -1;                 ///< -1: all
  uint16_t sub = 0;                    ///< n: micro-step n-1
  std::vector<int64_t> shape;          ///< empty: of rank 1
  std::optional<Statistic> statistic;  ///< `values` are a derived statistic's entries
  uint64_t per = 0, samples = 1;       ///< of the statistic: elements per entry, extent of the first axis
  std::vector<Value> values;
  int64_t columns = 0;  ///< n: the values are rows of n; 0: one axis
};

struct Step {
  int64_t global_step = 0, mode_step = 0;
  ModeKey mode = ModeKey::kTrain;
  bool skipped = false, shed = false;
  bool raw = false, raw_shed = false;  ///< raw values were kept beside the statistics, or due and lost
  int64_t wall_millis = 0;             ///< of its commit, since the run began
  std::vector<Assignment> assignments;
  std::map<std::string, std::string> context = {};  ///< topic -> JSON, recorded at this step
};

struct Tensor {
  std::string name, kind, module_kind;
  std::vector<std::string> collections;
  bool scalar = false;  ///< a numeric series, not a tensor
  int unit_axis = -1;
  std::vector<int64_t> shape = {};  ///< as it is first seen; empty: of rank 1
  DType dtype = DType::kFloat64;
  std::vector<std::string> statistics = {};  ///< ids of the derived ones that its assignments name
};

struct Expectation {
  bool refused = false;  ///< the configuration is an error
  rules::RuleState state = rules::RuleState::kInProgress;
  int64_t step = -1;     ///< of the hit; -1: not said
  int64_t judged = -1;   ///< steps judged; -1: not said
  std::string contains;  ///< part of the details or of the refusal
  std::vector<std::string>
      findings;  ///< "tensor measure value comparison threshold [worker]", all of them in order
};

struct Scenario {
  std::string name, rule;
  std::map<std::string, std::string> parameters;
  int64_t workers = 1;
  /// A configuration, as JSON: the run has the plan that it and the rule make. Empty: the run says nothing of
  /// how it was meant to be kept.
  std::string config;
  std::vector<Tensor> tensors;
  std::vector<Step> steps;
  std::vector<Step> other_steps;  ///< of a finished run beside this one, called "other"; empty: there is none
  std::vector<rules::Stall> stalls;
  rules::JobEnd end = rules::JobEnd::kCompleted;
  Expectation expected;
};

/// All scenarios of a file's text. \error kInvalidArgument  "line 12: ..."
Result<std::vector<Scenario>> ParseScenarios(const std::string& text);

/// A finding as scenarios write it.
std::string FindingText(const rules::Finding& finding);

}  // namespace tdbg::scenarios
