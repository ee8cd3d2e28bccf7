#include "trial/step_name.h"

#include <fmt/format.h>

#include "trial/mode_name.h"

namespace tdbg {

std::string StepSpan(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

std::string StepName(ModeKey mode, int64_t mode_step, int64_t global_step) {
  if (mode_step == global_step) return fmt::format("step {}", global_step);
  return fmt::format("{} step {} (global {})", ModeName(mode), mode_step, global_step);
}

StepNames::StepNames(const Trial& trial, std::span<const int64_t> steps)
    : by_mode_(trial.modes().size() > 1) {
  for (const int64_t step : steps) {
    if (const auto info = trial.step(step)) {
      known_.emplace(step, *info);
      by_mode_ |= info->mode_step != info->global_step;
    }
  }
}

std::optional<StepInfo> StepNames::Find(int64_t global_step) const {
  const auto it = known_.find(global_step);
  return it == known_.end() ? std::nullopt : std::optional(it->second);
}

std::string StepNames::Of(int64_t global_step) const {
  if (!by_mode_) return fmt::format("step {}", global_step);
  const auto it = known_.find(global_step);
  if (it == known_.end()) return fmt::format("global step {}", global_step);
  const StepInfo& step = it->second;
  std::string name = fmt::format("{} step {}", ModeName(step.mode), step.mode_step);
  if (step.mode_step != global_step) name += fmt::format(" (global {})", global_step);
  return name;
}

}  // namespace tdbg
