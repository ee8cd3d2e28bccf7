// Configuration + what the rules need -> the plan.
#include <fmt/format.h>

#include <algorithm>

#include "base/regex.h"
#include "base/text.h"
#include "plan/config.h"
#include "plan/config_reader.h"
#include "plan/hook_config.h"

namespace tdbg::plan {
namespace {

Status Refuse(const std::string& where, const std::string& what, const std::string& message) {
  return InvalidArgument(fmt::format("{}{}{}: {}", where, where.empty() ? "" : ": ", what, message));
}

CollectionPlan* FindCollection(Plan* plan, const std::string& name) {
  for (CollectionPlan& c : plan->collections) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

std::vector<std::string> CollectionNames(const Plan& plan) {
  std::vector<std::string> names;
  for (const CollectionPlan& c : plan.collections) names.push_back(c.name);
  return names;
}

Status CheckRegexes(const std::vector<std::string>& patterns, const std::string& where,
                    const std::string& what) {
  for (const std::string& pattern : patterns) {
    const auto compiled = base::Regex::Compile(pattern);
    if (!compiled.ok()) return Refuse(where, what, compiled.status().message());
  }
  return OkStatus();
}

/// A mode's own keys win over those without a mode; what neither sets is smdebug's default.
Result<Schedule> ScheduleOf(const CollectionConfig& c, const std::string& mode) {
  const std::string what = "collections." + c.name;
  const auto value = [&](const char* key) -> const std::string* {
    for (const std::string& full : {mode + "." + key, std::string(key)}) {
      if (const auto it = c.save.find(full); it != c.save.end()) return &it->second;
    }
    return nullptr;
  };
  for (const auto& [key, text] : c.save) {
    // Configurations can be made without ParseConfig.
    if (const std::string accepted = CheckSaveValue(key, text); !accepted.empty()) {
      return Refuse(c.where, what + "." + key, fmt::format("found \"{}\", expected {}", text, accepted));
    }
  }
  Schedule s;
  if (const std::string* v = value("save_interval")) s.interval = *base::ParseInt(*v);
  if (const std::string* v = value("start_step")) s.start = *base::ParseInt(*v);
  if (const std::string* v = value("end_step")) s.end = *base::ParseInt(*v);
  if (const std::string* v = value("save_steps")) {
    for (const std::string& step : base::SplitList(*v)) s.steps.push_back(*base::ParseInt(step));
    std::sort(s.steps.begin(), s.steps.end());
    s.steps.erase(std::unique(s.steps.begin(), s.steps.end()), s.steps.end());
  }
  if (s.end > 0 && s.end < s.start) {
    return Refuse(c.where, what,
                  fmt::format("end_step {} is before start_step {} ({}): nothing would ever be kept; "
                              "end_step: 0 switches raw tensors off",
                              s.end, s.start, mode));
  }
  return s;
}

Status AddCollection(const CollectionConfig& c, Plan* plan) {
  const std::string what = "collections." + c.name;
  TDBG_RETURN_IF_ERROR(CheckRegexes(c.include_regex, c.where, what + ".include_regex"));
  CollectionPlan* target = FindCollection(plan, c.name);
  if (target == nullptr) {
    if (c.include_regex.empty() && c.tensor_names.empty()) {
      return Refuse(c.where, "collections",
                    UnknownName("collection", c.name, CollectionNames(*plan)) +
                        "; a new collection needs include_regex or tensor_names");
    }
    CollectionPlan made;
    made.name = c.name;
    plan->collections.push_back(std::move(made));
    target = &plan->collections.back();
  }
  for (const std::string& r : c.reductions) {
    if (std::find(Reductions().begin(), Reductions().end(), r) == Reductions().end()) {
      return Refuse(c.where, what + ".reductions", UnknownName("reduction", r, Reductions()));
    }
  }
  target->include_regex.insert(target->include_regex.end(), c.include_regex.begin(), c.include_regex.end());
  target->tensor_names.insert(target->tensor_names.end(), c.tensor_names.begin(), c.tensor_names.end());
  target->reductions = c.reductions;
  target->summaries = c.summaries.value_or(true);
  target->histogram = c.histogram.value_or(target->histogram);

  const bool raw = c.raw.value_or(!c.save.empty() && c.reductions.empty());
  if (!raw && !c.save.empty() && c.reductions.empty()) {
    return Refuse(c.where, what,
                  "save keys say when raw tensors are kept, and raw: false says never; drop one of them "
                  "(statistics follow summaries.every)");
  }
  const bool statistics = target->summaries && plan->summaries_every > 0;
  for (const std::string& r : c.reductions) {
    if (raw) break;
    if (r == "prod" || r == "abs_prod") {
      return Refuse(c.where, what + ".reductions",
                    fmt::format("\"{}\" cannot be computed from the statistics that are "
                                "kept; add raw: true",
                                r));
    }
    if (!statistics) {
      return Refuse(c.where, what + ".reductions",
                    "reductions are answered from statistics, and those are switched off");
    }
  }
  for (int m = 1; m < kModes; ++m) {
    target->raw[m].reset();
    if (!raw) continue;
    TDBG_ASSIGN_OR_RETURN(target->raw[m], ScheduleOf(c, SaveModes()[static_cast<size_t>(m - 1)]));
  }
  target->keep = target->summaries || raw;
  return OkStatus();
}

Status AddNeed(const Need& need, Plan* plan) {
  TDBG_RETURN_IF_ERROR(CheckRegexes(need.tensor_regex, "rule " + need.who, "tensor_regex"));
  if (!need.raw && plan->summaries_every == 0) {
    return Refuse("", "rule " + need.who, "it judges statistics, and summaries.every: 0 switches them off");
  }
  for (const StatisticNeed& wanted : need.statistics) {
    TDBG_RETURN_IF_ERROR(CheckRegexes(wanted.tensor_regex, "rule " + need.who, "tensor_regex"));
    CollectionPlan own;
    own.name = "rule:" + need.who;
    own.include_regex = wanted.tensor_regex;
    for (const std::string& name : wanted.collections) {
      if (FindCollection(plan, name) == nullptr) {
        return Refuse("", "rule " + need.who, UnknownName("collection", name, CollectionNames(*plan)));
      }
      own.kinds.push_back("@" + name);
    }
    own.keep = true;
    own.summaries = own.histogram = false;
    own.statistics = {wanted.statistic};
    plan->collections.push_back(std::move(own));
  }
  CollectionPlan own;  // what the named collections do not keep by themselves
  own.name = "rule:" + need.who;
  own.include_regex = need.tensor_regex;
  for (const std::string& name : need.collections) {
    CollectionPlan* named = FindCollection(plan, name);
    if (named == nullptr) {
      return Refuse("", "rule " + need.who, UnknownName("collection", name, CollectionNames(*plan)));
    }
    if (!plan->empty_steps) named->summaries |= !need.raw;  // smdebug's configuration does not speak of them
    if (!need.raw && !named->summaries) {
      return Refuse("", "rule " + need.who,
                    fmt::format("it judges statistics of \"{}\", and collections.{}.summaries: "
                                "false switches them off",
                                name, name));
    }
    if (!need.raw) named->keep = true;
    // By membership, not by the collection's own patterns: what an adaptor puts there counts too.
    if (need.raw) own.kinds.push_back("@" + name);
  }
  const auto keep_values = [&](CollectionPlan* c) {
    for (int m = 1; m < kModes; ++m) c->raw[m] = need.raw_schedule.value_or(Schedule{});
  };
  if (need.raw || !own.include_regex.empty()) {
    own.keep = true;
    if (need.raw) keep_values(&own);
    plan->collections.push_back(own);
  }
  if (need.raw_collections.empty()) return OkStatus();
  CollectionPlan values;
  values.name = own.name + ":values";
  values.keep = true;
  values.raw_max_elements = need.raw_max_elements;
  for (const std::string& name : need.raw_collections) {
    if (FindCollection(plan, name) == nullptr)
      return Refuse("", "rule " + need.who, UnknownName("collection", name, CollectionNames(*plan)));
    values.kinds.push_back("@" + name);
  }
  keep_values(&values);
  plan->collections.push_back(std::move(values));
  return OkStatus();
}

}  // namespace

Result<Plan> ResolvePlan(const Config& config, const std::vector<Need>& needs) {
  Plan plan = Plan::Default();
  if (config.hook) {
    plan = EmptyPlan();
    plan.collections = BuiltinCollections();
    const Status applied = ApplyHook(*config.hook, &plan);
    if (!applied.ok()) return applied.Annotate("smdebug's configuration");
  }
  plan.summaries_every = config.summaries_every.value_or(plan.summaries_every);
  plan.histograms = config.histograms.value_or(plan.histograms);
  plan.context = config.context.value_or(plan.context);
  plan.record_end = config.record_end.value_or(plan.record_end);
  plan.step_by = config.step_by.value_or(plan.step_by);
  plan.when_full = config.when_full.value_or(plan.when_full);
  plan.journal_bytes = config.journal_bytes.value_or(plan.journal_bytes);
  plan.journal_directory = config.journal_directory.value_or(plan.journal_directory);
  if (plan.when_full == "block") {
    if (config.budget_bytes.value_or(0) > 0) {
      return InvalidArgument(
          "when_full: block keeps everything, and budget drops what exceeds it; choose one "
          "(budget: 0 is no limit)");
    }
    plan.budget_bytes = 0;
  } else {
    plan.budget_bytes = config.budget_bytes.value_or(plan.budget_bytes);
  }
  if (plan.summaries_every < 0) return InvalidArgument("summaries.every: expected an integer of at least 0");
  for (const CollectionConfig& c : config.collections) TDBG_RETURN_IF_ERROR(AddCollection(c, &plan));
  for (const Need& need : needs) TDBG_RETURN_IF_ERROR(AddNeed(need, &plan));
  const auto compiled = CompiledPlan::Compile(plan);
  if (!compiled.ok()) return compiled.status();
  return plan;
}

}  // namespace tdbg::plan
