#include "rules/run_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

namespace tdbg::rules {
namespace {

constexpr char kOfRules[] = "rule:";
constexpr char kValues[] = ":values";

bool IsOfRules(const plan::CollectionPlan& collection) { return collection.name.starts_with(kOfRules); }

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

SharedPlan::SharedPlan(plan::Plan plan) : plan_(std::move(plan)) {
  for (const plan::CollectionPlan& c : plan_.collections) {
    if (IsOfRules(c)) of_rules_.insert(c.name);
  }
  users_ = CompileIf(plan_, [](const auto& c) { return !IsOfRules(c); });
}

RunPlan::RunPlan(std::shared_ptr<const SharedPlan> plan, const plan::Need& need)
    : plan_(std::move(plan)), collection_(kOfRules + need.who) {
  const std::set<std::string>& of_rules = plan_->of_rules();
  const size_t mine = of_rules.count(collection_) + of_rules.count(collection_ + kValues);
  // For a rule that the run was not started with nothing was kept: it looks at everything there is.
  took_part_ = mine > 0;
  hides_ = (took_part_ || !need.collections_to_save.empty()) && of_rules.size() > mine;
}

bool RunPlan::IsMine(const std::string& collection) const {
  return collection == collection_ || collection == collection_ + kValues;
}

const std::optional<plan::CompiledPlan>& RunPlan::Own() const {
  if (!took_part_) return plan_->users();
  if (!own_) own_ = CompileIf(plan_->plan(), [&](const auto& c) { return !IsOfRules(c) || IsMine(c.name); });
  return *own_;
}

const std::optional<plan::CompiledPlan>& RunPlan::Others() const {
  if (!others_) {
    others_ = CompileIf(plan_->plan(), [&](const auto& c) { return IsOfRules(c) && !IsMine(c.name); });
  }
  return *others_;
}

bool RunPlan::KeepsEveryStep(const TensorInfo& tensor) const {
  return plan_->plan().summaries_every == 1 && Own() && (Resolve(*Own(), tensor).summary_groups & 1) != 0;
}

bool RunPlan::UserSavesValuesOf(const TensorInfo& tensor) const {
  return plan_->users() && Resolve(*plan_->users(), tensor).raw_groups != 0;
}

bool RunPlan::OnlyOthersAskedFor(TensorIndex index, const TensorInfo& tensor, const StepInfo& step) const {
  // A derived statistic is recorded as a tensor of its own, and for whoever asked first.
  if (!hides_ || !Own() || !Others() || tensor.kind == kStatisticKind) return false;
  if (groups_.size() <= index) groups_.resize(index + 1);
  Groups& groups = groups_[index];
  if (!groups.known)
    groups = {Resolve(*Own(), tensor).raw_groups, Resolve(*Others(), tensor).raw_groups, true};
  if (groups.others == 0) return false;
  const int mode = static_cast<int>(step.mode);
  // Values that no plan asked for (a script's own, those of `tdbg capture`) are for every rule.
  return (Others()->DueGroups(mode, step.mode_step) & groups.others) != 0 &&
         (Own()->DueGroups(mode, step.mode_step) & groups.own) == 0;
}

}  // namespace tdbg::rules
