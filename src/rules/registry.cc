#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/text.h"
#include "rules/rule.h"

namespace tdbg::rules {
namespace {

// Lists of rules come over from SageMaker whole; these judge a machine and not a training.
constexpr std::string_view kProfilerRules[] = {
    "BatchSize",          "CPUBottleneck",         "Dataloader",
    "GPUMemoryIncrease",  "IOBottleneck",          "LoadBalancing",
    "LowGPUUtilization",  "MaxInitializationTime", "OverallFrameworkMetrics",
    "OverallSystemUsage", "ProfilerReport",        "StepOutlier"};

}  // namespace

void RuleRegistry::Add(RuleInfo info, RuleFactory factory) {
  TDBG_CHECK(!Find(info.class_name).ok() && !Find(info.snake_name).ok());
  entries_.push_back({std::move(info), std::move(factory)});
}

Result<const RuleInfo*> RuleRegistry::Find(std::string_view name) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (name == entry.info.class_name || name == entry.info.snake_name) return &entry.info;
    names.push_back(entry.info.snake_name);
  }
  if (std::ranges::find(kProfilerRules, name) != std::end(kProfilerRules)) {
    return NotFound(
        fmt::format("rule '{}' is one of SageMaker's profiler; tdbg judges tensors and has none of those: "
                    "leave it out",
                    name));
  }
  std::vector<std::string> spellings = names;
  for (const Entry& entry : entries_) spellings.push_back(entry.info.class_name);
  const auto nearest = base::Nearest(name, spellings);
  return NotFound(fmt::format("unknown rule '{}'{} there are {}", name,
                              nearest ? fmt::format(", did you mean {}?", *nearest) : std::string(";"),
                              fmt::join(names, ", ")));
}

Result<std::unique_ptr<Rule>> RuleRegistry::Make(std::string_view name,
                                                 const std::map<std::string, std::string>& parameters) const {
  TDBG_ASSIGN_OR_RETURN(const RuleInfo* const info, Find(name));
  TDBG_ASSIGN_OR_RETURN(const Parameters parsed, Parameters::Parse(*info, parameters));
  for (const Entry& entry : entries_) {
    if (&entry.info != info) continue;
    auto rule = entry.factory(parsed);
    if (!rule.ok()) return rule.status().Annotate("rule " + info->class_name);
    return rule;
  }
  return Internal("a rule that was found cannot be made");
}

std::vector<const RuleInfo*> RuleRegistry::All() const {
  std::vector<const RuleInfo*> all;
  for (const Entry& entry : entries_) {
    if (entry.info.listed) all.push_back(&entry.info);
  }
  return all;
}

}  // namespace tdbg::rules
