// Configuration + what the rules need -> the plan.
#include <fmt/format.h>

#include <algorithm>
#include <set>

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

/// SHAP values are computed only to be recorded, and a round's cost many times the round. With save keys they
/// are computed where those say and nowhere else: statistics at every step would have them computed at every
/// step.
bool ComputedToBeRecorded(std::string_view collection) {
  return collection == "average_shap" || collection == "full_shap";
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
  target->statistics.insert(target->statistics.end(), c.statistics.begin(), c.statistics.end());
  target->summaries = c.summaries.value_or(true);
  target->histogram = c.histogram.value_or(target->histogram);

  const bool raw = c.raw.value_or(!c.save.empty() && c.reductions.empty());
  if (!raw && !c.save.empty() && c.reductions.empty()) {
    return Refuse(c.where, what,
                  "save keys say when raw tensors are kept, and raw: false says never; drop one of them "
                  "(statistics follow summaries.every)");
  }
  if (raw && !c.summaries.has_value() && ComputedToBeRecorded(c.name)) {
    target->summaries = false;
    target->summaries_when_saved = true;
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
  if (!c.statistics.empty() && plan->summaries_every == 0) {
    return Refuse(c.where, what + ".statistics",
                  "derived statistics are taken at summaries.every, and 0 switches them off");
  }
  for (int m = 1; m < kModes; ++m) {
    target->raw[m].reset();
    if (!raw) continue;
    TDBG_ASSIGN_OR_RETURN(target->raw[m], ScheduleOf(c, SaveModes()[static_cast<size_t>(m - 1)]));
  }
  target->keep = target->summaries || raw || !target->statistics.empty();
  return OkStatus();
}

// What was asked for with a rule adds to what is there and takes nothing from it: smdebug lets the last one
// win, and which that is depends on a hash seed of SageMaker's SDK.
Status AddSaved(const CollectionConfig& c, const std::string& who, Plan* plan) {
  const CollectionPlan* const known = FindCollection(plan, c.name);
  const std::optional<CollectionPlan> before = known ? std::optional(*known) : std::nullopt;
  if (const Status status = AddCollection(c, plan); !status.ok())
    return c.where.empty() ? status.Annotate("rule " + who) : status;
  if (!before) return OkStatus();
  CollectionPlan* const after = FindCollection(plan, c.name);
  after->summaries |= before->summaries;
  after->histogram |= before->histogram;
  after->keep |= before->keep;
  for (const std::string& reduction : before->reductions) {
    if (std::ranges::count(after->reductions, reduction) == 0) after->reductions.push_back(reduction);
  }
  for (int m = 1; m < kModes; ++m) {
    if (before->raw[m])
      after->raw[m] = after->raw[m] ? MoreOf(*before->raw[m], *after->raw[m]) : before->raw[m];
  }
  return OkStatus();
}

// Histograms with a rule's statistics. Without it they come with every tenth of them.
Status AddHistograms(const Need& need, Plan* plan) {
  if (need.histogram_collections.empty() && !need.histograms_of_regex) return OkStatus();
  if (plan->histograms_every == 0) {
    return Refuse("", "rule " + need.who,
                  "it judges histograms, and summaries.histograms: false switches them off");
  }
  if (plan->summaries_every == 0 || plan->histograms_every <= plan->summaries_every) return OkStatus();
  CollectionPlan own;
  own.name = "rule:" + need.who + ":histograms";
  own.keep = own.summaries_when_saved = true;
  own.summaries = own.raw_values = false;
  if (need.histograms_of_regex) own.include_regex = need.tensor_regex;
  for (const std::string& name : need.histogram_collections) {
    if (FindCollection(plan, name) == nullptr)
      return Refuse("", "rule " + need.who, UnknownName("collection", name, CollectionNames(*plan)));
    own.kinds.push_back("@" + name);
  }
  Schedule with_statistics{.interval = plan->summaries_every};
  if (need.histogram_steps >= 0) with_statistics.end = need.histogram_steps * plan->summaries_every;
  for (int m = 1; m < kModes; ++m) own.raw[m] = with_statistics;
  plan->collections.push_back(std::move(own));
  return OkStatus();
}

Status AddNeed(Need need, Plan* plan) {
  const bool wants_values = need.raw;
  for (const CollectionConfig& c : need.collections_to_save) {
    TDBG_RETURN_IF_ERROR(AddSaved(c, need.who, plan));
    if (std::ranges::none_of(FindCollection(plan, c.name)->raw,
                             [](const auto& raw) { return raw.has_value(); }))
      continue;
    need.raw = false;
    need.raw_collections.clear();
  }
  TDBG_RETURN_IF_ERROR(CheckRegexes(need.tensor_regex, "rule " + need.who, "tensor_regex"));
  if (!wants_values && plan->summaries_every == 0) {
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
    if (!wants_values && !named->summaries) {
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
  TDBG_RETURN_IF_ERROR(AddHistograms(need, plan));
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

namespace {

// The kinds of tensors in a collection, members of other collections included. False if a pattern decides,
// too: then it may be anything.
bool KindsOf(const Plan& plan, const CollectionPlan& c, std::set<std::string>* kinds) {
  if (!c.include_regex.empty() || !c.tensor_names.empty()) return false;
  for (const std::string& entry : c.kinds) {
    if (entry == "*") return false;
    if (entry.starts_with('@')) {
      const auto named = std::ranges::find(plan.collections, entry.substr(1), &CollectionPlan::name);
      if (named != plan.collections.end() && !KindsOf(plan, *named, kinds)) return false;
    } else if (!entry.starts_with('?')) {
      kinds->insert(entry.substr(0, entry.find_first_of(":?")));
    }
  }
  return true;
}

}  // namespace

std::string WhyNeverThere(const Need& need, const Plan& plan) {
  if (need.collections.empty() || !need.tensor_regex.empty() || !need.statistics.empty()) return "";
  std::set<std::string> kept, kept_raw, wanted;
  bool any_raw = false, raw_may_be_anything = false;
  for (const CollectionPlan& c : plan.collections) {
    if (!c.keep) continue;
    if (!KindsOf(plan, c, &kept)) return "";
    const bool raw = std::ranges::any_of(c.raw, [](const auto& schedule) { return schedule.has_value(); });
    any_raw |= raw;
    if (raw) raw_may_be_anything |= !KindsOf(plan, c, &kept_raw);
  }
  for (const std::string& name : need.collections) {
    const auto named = std::ranges::find(plan.collections, name, &CollectionPlan::name);
    if (named == plan.collections.end() || !KindsOf(plan, *named, &wanted)) return "";
  }
  const std::string names = JoinNames(need.collections);
  const auto meets = [&](const std::set<std::string>& there) {
    return std::ranges::any_of(wanted, [&](const std::string& kind) { return there.contains(kind); });
  };
  if (!meets(kept))
    return fmt::format("the run's plan keeps nothing of the collection{} {} (tdbg run --collect {})",
                       need.collections.size() > 1 ? "s" : "", names, need.collections[0]);
  // Numbers are kept exactly by their statistics.
  const bool numbers = wanted.contains("loss") || wanted.contains("metric") || wanted.contains("scalar") ||
                       wanted.contains("sm_metric") || wanted.contains("feature_importance");
  if (need.raw && !numbers && !raw_may_be_anything && (!any_raw || !meets(kept_raw)))
    return fmt::format("the run's plan keeps statistics of {} and no values (tdbg run --collect {}:INTERVAL)",
                       names, need.collections[0]);
  return "";
}

Result<Plan> ResolvePlan(const Config& config, const std::vector<Need>& needs) {
  Plan plan = Plan::Default();
  if (config.hook) {
    plan = EmptyPlan();
    plan.collections = BuiltinCollections();
    const Status applied = ApplyHook(*config.hook, &plan);
    if (!applied.ok()) return applied.Annotate("smdebug's configuration");
  }
  plan.summaries_every = config.summaries_every.value_or(plan.summaries_every);
  plan.histograms_every = config.histograms_every.value_or(plan.histograms_every);
  plan.context = config.context.value_or(plan.context);
  plan.black_box_bytes = config.black_box_bytes.value_or(plan.black_box_bytes);
  plan.overhead = config.overhead.value_or(plan.overhead);
  plan.flight = config.flight.value_or(plan.flight);
  plan.verify_every = config.verify_every.value_or(plan.verify_every);
  plan.record_end = config.record_end.value_or(plan.record_end);
  plan.shap_rows = config.shap_rows.value_or(plan.shap_rows);
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
