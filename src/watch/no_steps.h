// What rules are asked about where a run never began.
#pragma once

#include <cstdlib>
#include <vector>

#include "rules/step_source.h"

namespace tdbg::watch {

/// No worker wrote anything, and the job is gone.
class NoSteps : public rules::StepSource {
 public:
  uint64_t overlay_generation() const override { return 0; }
  int64_t overlay_base() const override { return 0; }
  size_t complete_count() const override { return 0; }
  size_t step_count() const override { return 0; }
  StepInfo Info(size_t) const override { return {}; }
  int64_t AttemptOf(size_t) const override { return 0; }
  bool IsAwaited(size_t, const std::vector<rules::LostWorker>&) const override { return false; }
  const rules::StepContext& At(size_t, const std::vector<rules::LostWorker>&) override { std::abort(); }
  std::vector<DroppedInfo> dropped() const override { return {}; }
  std::vector<std::string> damage() const override { return {}; }
};

}  // namespace tdbg::watch
