// `--rule all` and `--rule recommended`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/configuration.h"
#include "cli/output.h"
#include "rules/engine.h"

namespace tdbg::cli {
namespace {

constexpr char kAll[] = "all", kRecommended[] = "recommended";

// Does the rule need only what every run keeps: no values, no outputs of modules, no derived statistics?
bool NeedsNothingMore(const plan::Need& need) {
  static const plan::Plan* const plan = new plan::Plan(plan::Plan::Default());
  return !need.raw && need.raw_collections.empty() && need.statistics.empty() && need.tensor_regex.empty() &&
         plan::WhyNeverThere(need, *plan).empty();
}

// Built-in rules that can be made without a parameter; the others' names go to `left_out`.
std::vector<plan::RuleConfig> RulesOf(const plan::RuleConfig& group, std::vector<std::string>* left_out) {
  std::vector<plan::RuleConfig> rules;
  for (const rules::RuleInfo* info : rules::BuiltinRules().All()) {
    plan::RuleConfig rule = group;  // its actions, and where it was written
    rule.rule = info->class_name;
    rule.optional = true;
    const auto engine = rules::Engine::Create({rule});
    if (!engine.ok()) {
      left_out->push_back(info->snake_name);
    } else if (group.rule == kAll || NeedsNothingMore((*engine)->Needs().front())) {
      rules.push_back(std::move(rule));
    }
  }
  return rules;
}

bool IsGroup(const plan::RuleConfig& rule) {
  return rule.file.empty() && (rule.rule == kAll || rule.rule == kRecommended);
}

}  // namespace

Status ExpandGroups(std::vector<plan::RuleConfig>* rules) {
  std::vector<plan::RuleConfig> expanded;
  const auto is_there = [](const std::vector<plan::RuleConfig>& among, const plan::RuleConfig& rule) {
    return std::any_of(among.begin(), among.end(), [&](const plan::RuleConfig& other) {
      if (IsGroup(other) || !other.file.empty()) return other.name == rule.rule;
      const auto info = rules::BuiltinRules().Find(other.rule);
      return (info.ok() && (*info)->class_name == rule.rule) || other.name == rule.rule;
    });
  };
  for (const plan::RuleConfig& given : *rules) {
    if (!IsGroup(given)) {
      expanded.push_back(given);
      continue;
    }
    if (!given.parameters.empty() || !given.name.empty() || !given.collections_to_save.empty()) {
      return InvalidArgument(
          (given.where.empty() ? "" : given.where + ": ") + "rule " + given.rule +
          " stands for several rules and takes only on_issue; give a rule its parameters by "
          "its own name, beside it");
    }
    std::vector<std::string> left_out;
    for (plan::RuleConfig& rule : RulesOf(given, &left_out)) {
      if (!is_there(*rules, rule) && !is_there(expanded, rule)) expanded.push_back(std::move(rule));
    }
    if (given.rule == kAll && !left_out.empty()) {
      Note(fmt::format("rule all leaves out what needs a parameter: {}", fmt::join(left_out, ", ")));
    }
  }
  *rules = std::move(expanded);
  return OkStatus();
}

}  // namespace tdbg::cli
