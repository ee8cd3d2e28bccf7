// Sequences that consist mostly of one token, such as padding. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "rules/derived_totals.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

constexpr const char* kDocumented = ".*embedding0_input_0";
constexpr int64_t kMaxExact = int64_t{1} << 53;

/// What one worker has seen of one input.
struct Seen {
  std::vector<double> counts;  // per token that is looked for
  double tokens = 0;
};

class NLPSequenceRatio : public DerivedTotals {
 public:
  NLPSequenceRatio(Selector inspected, const Statistic& counts, std::vector<double> thresholds)
      : DerivedTotals(std::move(inspected), counts), thresholds_(std::move(thresholds)) {}

  std::string WouldHaveNeeded() const override {
    return fmt::format("{}, or raw values, of at least one token ({})", statistic().Id(),
                       inspected().Describe());
  }

 private:
  bool Add(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const StatisticValue& value,
           std::vector<Finding>* findings) override {
    if (value.values.size() != thresholds_.size()) return false;
    Seen& seen = seen_[{tensor, worker}];
    seen.counts.resize(thresholds_.size());
    for (size_t i = 0; i < thresholds_.size(); ++i) seen.counts[i] += value.values[i];
    seen.tokens += static_cast<double>(value.elements);
    Judge(step, tensor, worker, seen, findings);
    return true;
  }

  void Judge(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const Seen& seen,
             std::vector<Finding>* findings) const {
    for (size_t i = 0; i < thresholds_.size(); ++i) {
      if (!(100.0 * seen.counts[i] > thresholds_[i] * seen.tokens)) continue;  // 1 of 2 is exactly 50 %
      Finding finding = FindingAt(step, tensor, worker);
      finding.measure = fmt::format("token_{:.0f}_percent", statistic().parameters[i]);
      finding.value = 100.0 * seen.counts[i] / seen.tokens;
      finding.comparison = ">";
      finding.threshold = thresholds_[i];
      finding.text = fmt::format("{:.0f} of {:.0f} tokens so far", seen.counts[i], seen.tokens);
      findings->push_back(std::move(finding));
    }
  }

  std::vector<double> thresholds_;  // percent, by the statistic's values
  std::map<std::pair<TensorIndex, WorkerIndex>, Seen> seen_;
};

Result<std::vector<double>> TokensOf(const Parameters& parameters) {
  std::vector<double> tokens;
  for (const std::string& text : parameters.List("token_values")) {
    const auto token = base::ParseInt(text);
    if (!token || *token > kMaxExact || *token < -kMaxExact) {
      return InvalidArgument(
          fmt::format("parameter token_values: '{}' is not a whole number; accepted are token numbers, "
                      "separated by commas",
                      text));
    }
    const auto number = static_cast<double>(*token);
    if (std::find(tokens.begin(), tokens.end(), number) != tokens.end())
      return InvalidArgument(fmt::format("parameter token_values: {} is named twice", *token));
    tokens.push_back(number);
  }
  return tokens;
}

Result<std::vector<double>> ThresholdsOf(const Parameters& parameters) {
  std::vector<double> thresholds;
  for (const std::string& text : parameters.List("token_thresholds_percent")) {
    const auto percent = base::ParseDouble(text);
    if (!percent || !(*percent >= 0 && *percent <= 100)) {
      return InvalidArgument(fmt::format(
          "parameter token_thresholds_percent: '{}' is not a number from 0 to 100 (percent)", text));
    }
    thresholds.push_back(*percent);
  }
  return thresholds;
}

}  // namespace

void RegisterNLPSequenceRatio(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "NLPSequenceRatio";
  info.snake_name = "nlp_sequence_ratio";
  info.scope = "deep learning";
  info.summary = "One token, such as padding, makes up too much of the sequences.";
  info.parameters = {
      DocumentedRegexParameter(
          "tensor_regex", kDocumented,
          "Inputs to inspect by name; the default means the collection embedding_input."),
      TextParameter("token_values", "0", "The tokens that are counted: whole numbers, separated by commas."),
      TextParameter(
          "token_thresholds_percent", "50",
          "A token with a larger share is a hit: as many numbers as token_values, in the same order.",
          "percent"),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(std::vector<double> tokens, TokensOf(parameters));
    TDBG_ASSIGN_OR_RETURN(std::vector<double> thresholds, ThresholdsOf(parameters));
    if (tokens.empty() || tokens.size() != thresholds.size()) {
      return InvalidArgument(
          fmt::format("parameters token_values and token_thresholds_percent pair up: {} and {} were given",
                      tokens.size(), thresholds.size()));
    }
    if (tokens.size() > 1024) return InvalidArgument("parameter token_values: at most 1024 tokens");
    TDBG_ASSIGN_OR_RETURN(Selector selector, Selector::MakeDocumented(parameters, "tensor_regex", kDocumented,
                                                                      {"embedding_input"}));
    const Statistic counts{Statistic::Kind::kValueCounts, std::move(tokens)};
    return MakeRule<NLPSequenceRatio>(std::move(selector), counts, std::move(thresholds));
  });
}

}  // namespace tdbg::rules
