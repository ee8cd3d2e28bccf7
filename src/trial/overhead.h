// What workers say of looking less often than the plan wants (src/format/overhead.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/overhead.h"
#include "trial/access.h"

namespace tdbg {

inline constexpr std::string_view kOverheadTopic = format::kOverhead;

/// Of a record of the topic: "of the steps since 256 one in 16 was seen (overhead)"; empty: all were, or
/// there is none.
std::string SawLessText(const std::string* json);

struct WorkersOverhead {
  std::string worker;
  format::Overhead overhead;
};

/// Of each worker what it said last, where that leaves anything out.
std::vector<WorkersOverhead> OverheadsOf(const TrialAccess& access);

}  // namespace tdbg
