// How a step is named to a person.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "tdbg/trial.h"

namespace tdbg {

/// "step 7", "steps 3 to 7": global ones.
std::string StepSpan(int64_t first, int64_t last);

/// Of one step by what it says itself: "step 140"; where its mode counts otherwise "TRAIN step 137 (global
/// 140)". For rules, which do not know what the run's later steps are.
std::string StepName(ModeKey mode, int64_t mode_step, int64_t global_step);

/// Of a run whose steps are all of one mode, and counted from 0: "step 140". Of any other by the mode's own
/// number, which is the one that the script counts, and the run's beside it where that is another: "TRAIN
/// step 137 (global 140)".
///
/// A value: it does not borrow the trial.
class StepNames {
 public:
  /// Names each step by its global number alone.
  StepNames() = default;
  /// Knows these global steps; any other is named by its global number.
  StepNames(const Trial& trial, std::span<const int64_t> steps);

  std::string Of(int64_t global_step) const;
  /// Mode and number of a step that it knows.
  std::optional<StepInfo> Find(int64_t global_step) const;

 private:
  bool by_mode_ = false;
  std::map<int64_t, StepInfo> known_;
};

}  // namespace tdbg
