// The job as a process: does it stand still? Asked by a clock, unlike all that detectors look at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rules/profile/digest.h"
#include "rules/rule.h"

namespace tdbg::rules::profile {

/// How long a job may be silent, by its own past. Depends on the steps that were judged alone, so that a
/// replay takes a recorded standstill for what the watcher took it for.
class Silence {
 public:
  void See(const Digest& step);
  /// Seconds; nothing once it was reported.
  std::optional<double> Threshold() const;
  std::optional<Finding> Judge(const Stall& stall);

 private:
  int64_t last_nanos_ = 0, attempt_ = 0;
  double longest_ = 0;  // seconds between two steps of one attempt
  std::string hold_;    // of the step that was held last, as the training told it
  bool told_ = false;
};

}  // namespace tdbg::rules::profile
