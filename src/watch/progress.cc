#include "watch/progress.h"

#include <algorithm>
#include <optional>

#include "trial/step_name.h"

namespace tdbg::watch {
namespace {

constexpr size_t kStepsBackForLoss = 64;

std::optional<double> LatestLoss(const TrialAccess& access, Selection* losses) {
  losses->Update(access);
  if (losses->tensors().empty()) return std::nullopt;
  const size_t end = access.steps().size();
  for (size_t back = 1; back <= std::min(end, kStepsBackForLoss); ++back) {
    if (const auto loss = access.ScalarAt(losses->tensors().front(), end - back)) return loss;
  }
  return std::nullopt;
}

}  // namespace

Progress ProgressOf(const Trial& trial, Selection* losses, const std::vector<rules::RuleStatus>& statuses) {
  const TrialAccess access(trial);
  Progress progress;
  progress.global_step = access.steps().empty() ? -1 : access.steps().back().info.global_step;
  if (const int64_t last = progress.global_step; last >= 0)
    progress.step = StepNames(trial, {&last, 1}).Of(last);
  progress.steps_seen = static_cast<int64_t>(access.steps().size());
  progress.loss = LatestLoss(access, losses);
  progress.bytes = trial.bytes_on_disk();
  progress.state = trial.state();
  progress.statuses = &statuses;
  return progress;
}

}  // namespace tdbg::watch
