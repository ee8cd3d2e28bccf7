#include "rules/run_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

namespace tdbg::rules {
namespace {

constexpr char kOfRules[] = "rule:";

std::optional<plan::CompiledPlan> CompileIf(plan::Plan plan,
                                            const std::function<bool(const plan::CollectionPlan&)>& keeps) {
  for (plan::CollectionPlan& c : plan.collections) c.keep = c.keep && keeps(c);  // members stay members
  auto compiled = plan::CompiledPlan::Compile(std::move(plan));
  return compiled.ok() ? std::optional(*std::move(compiled)) : std::nullopt;
}

plan::TensorPlan Resolve(const plan::CompiledPlan& plan, const TensorInfo& tensor) {
  // The sizes of a sharded tensor's parts are not known here.
  const int64_t count = tensor.in_parts ? 1
                                        : std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                                          int64_t{1}, std::multiplies<>());
  return plan.Resolve({tensor.name, tensor.kind, tensor.module_kind, &tensor.collections, count});
}

}  // namespace

RunPlan::RunPlan(const plan::Plan& plan, const plan::Need& need) : summaries_every_(plan.summaries_every) {
  const std::string name = kOfRules + need.who;
  const auto of_rules = [](const plan::CollectionPlan& c) { return c.name.starts_with(kOfRules); };
  const auto mine = [&](const plan::CollectionPlan& c) {
    return c.name == name || c.name == name + ":values";
  };
  const auto any = [&](const auto& predicate) {
    return std::any_of(plan.collections.begin(), plan.collections.end(), predicate);
  };
  // For a rule that the run was not started with nothing was kept: it looks at everything there is.
  const bool took_part = any(mine) || !need.collections_to_save.empty();
  hides_ = took_part && any([&](const auto& c) { return of_rules(c) && !mine(c); });
  users_ = CompileIf(plan, [&](const auto& c) { return !of_rules(c); });
  own_ = CompileIf(plan, [&](const auto& c) { return !of_rules(c) || mine(c); });
  if (hides_) others_ = CompileIf(plan, [&](const auto& c) { return of_rules(c) && !mine(c); });
}

bool RunPlan::KeepsEveryStep(const TensorInfo& tensor) const {
  return own_ && summaries_every_ == 1 && (Resolve(*own_, tensor).summary_groups & 1) != 0;
}

bool RunPlan::UserSavesValuesOf(const TensorInfo& tensor) const {
  return users_ && Resolve(*users_, tensor).raw_groups != 0;
}

bool RunPlan::OnlyOthersAskedFor(TensorIndex index, const TensorInfo& tensor, const StepInfo& step) const {
  // A derived statistic is recorded as a tensor of its own, and for whoever asked first.
  if (!hides_ || !own_ || !others_ || tensor.kind == kStatisticKind) return false;
  if (groups_.size() <= index) groups_.resize(index + 1);
  Groups& groups = groups_[index];
  if (!groups.known) groups = {Resolve(*own_, tensor).raw_groups, Resolve(*others_, tensor).raw_groups, true};
  if (groups.others == 0) return false;
  const int mode = static_cast<int>(step.mode);
  // Values that no plan asked for (a script's own, those of `tdbg capture`) are for every rule.
  return (others_->DueGroups(mode, step.mode_step) & groups.others) != 0 &&
         (own_->DueGroups(mode, step.mode_step) & groups.own) == 0;
}

}  // namespace tdbg::rules
