// The live line of `run` and `watch`: the watcher's latest state as text.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/terminal.h"
#include "rules/engine.h"
#include "watch/found.h"
#include "watch/watcher.h"

namespace tdbg::cli {

/// Filled by the watcher's thread, read by the one that draws.
class LiveStatus {
 public:
  void Update(const watch::Progress& progress);
  /// "step 120  8.3 steps/s  loss 0.412  1.2 MB  VanishingGradient ok  LossNotDecreasing ok"; if no step
  /// came for a while, "step 120  no step for 42 s  loss ...".
  std::string Line(int64_t monotonic_nanos);

 private:
  std::mutex mutex_;
  // All guarded by mutex_.
  std::string step_;
  int64_t steps_seen_ = 0;
  std::optional<double> loss_;
  bool any_ = false;
  uint64_t bytes_ = 0;
  std::vector<std::pair<std::string, rules::RuleState>> rules_;
  int64_t rate_nanos_ = 0;  ///< when steps_at_rate_ was looked at
  int64_t steps_at_rate_ = 0;
  double steps_per_second_ = 0;
  int64_t steps_at_change_ = 0;
  int64_t change_nanos_ = 0;  ///< when steps_seen_ was first seen to be steps_at_change_
};

/// Says on stderr, above the live line, what was found, on a line of its own even where the script has left
/// one unfinished. Behind a pipe that cannot be seen, and it may follow such a line. Any thread.
void TellFound(const watch::Found& found);
/// That line: on a terminal, lines of 100 columns at most; else one, whatever its length.
std::string FoundLine(const watch::Found& found, const Terminal& terminal);

}  // namespace tdbg::cli
