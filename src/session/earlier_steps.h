// How far earlier attempts of a run came: where an attempt begins whose own beginning is not stated
// (docs/semantics.md, "Attempts").
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tdbg/mode.h"

namespace tdbg::session {

/// The step behind all that earlier attempts have reached, global and of each mode.
struct BehindEarlier {
  int64_t step = 0;  ///< 0: no earlier attempt has a step
  std::vector<std::pair<ModeKey, int64_t>> modes;
};

/// Takes the launcher's earlier_steps.json of this attempt; where there is none, what is left of the earlier
/// attempts' journals and segments: a mode then counts on from the global step, which none of its steps has
/// reached. Costs a few reads of some kilobytes per worker of an earlier attempt. Files that cannot be read
/// say nothing.
BehindEarlier BehindEarlierAttempts(const std::string& run_directory, int64_t attempt,
                                    base::FileSystem& files);

}  // namespace tdbg::session
