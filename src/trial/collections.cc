// What was to be saved, and for which tensors: the collections of the run's plan.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "format/version.h"
#include "tdbg/trial.h"
#include "trial/impl.h"
#include "trial/reductions.h"

namespace tdbg {

void Trial::Impl::ReadPlan() {
  if (plan && plan_attempts == attempts.size()) return;
  const auto json = base::LocalFileSystem().ReadFile(base::JoinPath(path, format::kPlanFile));
  if (!json.ok()) return;  // not written yet, or a run without one
  auto read = plan::Plan::FromJson(*json);
  if (!read.ok()) {
    const std::string line = std::string(format::kPlanFile) + ": " + read.status().message();
    if (std::find(own_damage.begin(), own_damage.end(), line) == own_damage.end()) own_damage.push_back(line);
    return;
  }
  plan = *std::move(read);
  plan_attempts = attempts.size();
  steps_are_forwards = plan->step_by == "forward";
  has_save_config = false;
  for (const plan::CollectionPlan& collection : plan->collections) {
    if (!Saves(collection)) continue;
    has_save_config |= !collection.reductions.empty() || collection.save_shape;
    for (const auto& schedule : collection.raw) has_save_config |= schedule.has_value();
  }
}

bool Trial::Impl::Saves(const plan::CollectionPlan& collection) {
  // Statistics of a rule's own steps (resolve.cc) are no value that anybody asked for.
  return collection.keep && (collection.raw_values || !collection.name.starts_with("rule:"));
}

bool Trial::Impl::ReductionsDue(const plan::CollectionPlan& collection, const StepInfo& step) {
  if (!collection.keep || (collection.reductions.empty() && !collection.save_shape)) return false;
  const bool scheduled = std::any_of(std::begin(collection.raw), std::end(collection.raw),
                                     [](const auto& schedule) { return schedule.has_value(); });
  // Without steps of their own they are due wherever statistics are.
  if (!scheduled) return true;
  const auto& schedule = collection.raw[static_cast<int>(step.mode)];
  return schedule && schedule->Due(step.mode_step);
}

bool Trial::Impl::SavesReductionsOf(const TensorInfo& info, int64_t global_step, bool shape) const {
  if (!plan) return false;
  const auto at = FindStep(global_step);
  return at &&
         std::any_of(plan->collections.begin(), plan->collections.end(), [&](const plan::CollectionPlan& c) {
           return (c.save_shape || !shape) && ReductionsDue(c, StepAt(*at).info) &&
                  std::binary_search(info.collections.begin(), info.collections.end(), c.name);
         });
}

std::vector<CollectionInfo> Trial::collections() const {
  std::map<std::string, CollectionInfo> by_name;
  impl_->SmdebugCollections(&by_name);
  if (impl_->plan) {
    for (const plan::CollectionPlan& c : impl_->plan->collections) {
      CollectionInfo& info = by_name[c.name];
      info.include_regex = c.include_regex;
      for (const std::string& name : c.reductions) info.reductions.push_back(ReductionName(name));
      info.save_histogram = c.keep && c.histogram;
      for (int mode = 1; mode < plan::kModes; ++mode) {
        const auto& schedule = c.raw[mode];
        if (!c.keep || !schedule) continue;
        info.save_raw = c.raw_values;
        info.save_shape = c.save_shape;
        info.save[mode] = {schedule->interval, schedule->start, schedule->end, schedule->steps};
      }
    }
  }
  for (size_t i = 0; i < impl_->tensors.size(); ++i) {
    const TensorInfo& tensor = impl_->tensors.at(static_cast<TensorIndex>(i));
    for (const std::string& name : tensor.collections) by_name[name].tensor_names.push_back(tensor.name);
  }
  std::vector<CollectionInfo> out;
  for (auto& [name, info] : by_name) {
    info.name = name;
    std::sort(info.tensor_names.begin(), info.tensor_names.end());
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace tdbg
