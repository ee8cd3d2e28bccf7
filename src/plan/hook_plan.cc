// What a hook saves -> the plan.
#include <fmt/format.h>

#include <algorithm>

#include "base/regex.h"
#include "plan/hook_config.h"

namespace tdbg::plan {
namespace {

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Collections that smdebug never reduces: they are kept for their values.
bool IsNeverReduced(const std::string& name) {
  static const std::vector<std::string> names = {"losses",       "metrics",    "feature_importance",
                                                 "average_shap", "sm_metrics", "tensorflow_summaries"};
  return Has(names, name);
}

/// Collections that have nothing to save in an evaluation, whatever the schedule says.
bool IsOfTrainingOnly(const std::string& name) {
  return name == "gradients" || name == "optimizer_variables";
}

/// The framework's own collection of that name, or null.
const HookCollection* FindDefault(const HookConfig& defaults, const std::string& name) {
  const auto found = std::find_if(defaults.collections.begin(), defaults.collections.end(),
                                  [&](const HookCollection& c) { return c.name == name; });
  return found == defaults.collections.end() ? nullptr : &*found;
}

CollectionPlan* FindOrAdd(Plan* plan, const std::string& name) {
  for (CollectionPlan& c : plan->collections) {
    if (c.name == name) return &c;
  }
  plan->collections.emplace_back().name = name;
  return &plan->collections.back();
}

void Append(std::vector<std::string>* to, const std::vector<std::string>& from) {
  for (const std::string& text : from) {
    if (!Has(*to, text)) to->push_back(text);
  }
}

/// The collection's own schedule for the mode, else the hook's, else smdebug's default.
Schedule ScheduleOf(const HookConfig& hook, const HookCollection& c, size_t mode) {
  if (c.save[mode]) return *c.save[mode];
  return hook.save[mode].value_or(Schedule{});
}

}  // namespace

Plan EmptyPlan() {
  Plan plan;
  plan.context = false;
  plan.record_end = false;
  plan.budget_bytes = 0;  // what was asked for by name is not thinned
  plan.black_box_bytes = 0;
  plan.overhead = 0;
  return plan;
}

Status ApplyHook(const HookConfig& hook_given, Plan* plan) {
  HookConfig hook = hook_given;
  std::vector<std::string> included = hook.include_collections;
  const auto collection = [&](const std::string& name) {
    for (HookCollection& c : hook.collections) {
      if (c.name == name) return &c;
    }
    hook.collections.emplace_back().name = name;
    return &hook.collections.back();
  };
  if (!hook.include_regex.empty()) {
    Append(&collection("default")->include_regex, hook.include_regex);
    Append(&included, {"default"});
  }
  if (hook.save_all) {
    Append(&collection("all")->include_regex, {".*"});
    Append(&included, {"all"});
  }
  for (const std::string& name : included) collection(name);

  plan->step_by = "forward";
  plan->empty_steps = false;
  plan->include_workers = hook.include_workers == "all" ? -1 : 0;
  const bool everything = Has(included, "all");
  const bool histograms = hook.export_tensorboard || !hook.tensorboard_dir.empty();
  HookConfig defaults;
  if (auto known = DefaultHook(hook.framework); known.ok()) defaults = *std::move(known);
  for (const HookCollection& c : hook.collections) {
    for (const std::string& pattern : c.include_regex) {
      const auto compiled = base::Regex::Compile(pattern);
      if (!compiled.ok())
        return compiled.status().Annotate(fmt::format("collection \"{}\": include_regex", c.name));
    }
    const HookCollection* frameworks = FindDefault(defaults, c.name);
    const bool builtin = c.name == "default" || c.name == "all" || frameworks != nullptr;
    CollectionPlan* target = FindOrAdd(plan, c.name);
    if (frameworks != nullptr && !frameworks->kinds.empty()) target->kinds = frameworks->kinds;
    if (!builtin && c.include_regex.empty() && c.tensor_names.empty() && target->kinds.empty()) {
      return InvalidArgument(fmt::format(
          "collection \"{}\" has neither include_regex nor tensor names, so nothing can be in it", c.name));
    }
    Append(&target->include_regex, c.include_regex);
    Append(&target->tensor_names, c.tensor_names);
    if (!(everything || Has(included, c.name)) || hook.dry_run) continue;

    HookReductions r;
    r.save_raw_tensor = true;
    if (!IsNeverReduced(c.name)) r = c.reductions.value_or(hook.reductions.value_or(r));
    target->reductions = r.reductions;
    target->save_shape = r.save_shape;
    target->raw_values = r.save_raw_tensor || Has(r.reductions, "prod") || Has(r.reductions, "abs_prod");
    const bool scalars = IsNeverReduced(c.name);
    target->summaries_when_saved =
        !r.reductions.empty() || r.save_shape || (histograms && c.save_histogram && !scalars);
    target->histogram = c.save_histogram && !scalars;
    if (!target->keep) target->summaries = false;  // else a launcher asked for them
    target->keep = true;
    for (size_t m = 1; m < kModes; ++m) {
      const bool evaluates = m == 2 || m == 3;
      if (evaluates && IsOfTrainingOnly(c.name)) continue;
      target->raw[m] = ScheduleOf(hook, c, m);
    }
  }
  const auto compiled = CompiledPlan::Compile(*plan);
  return compiled.ok() ? OkStatus() : compiled.status();
}

}  // namespace tdbg::plan
