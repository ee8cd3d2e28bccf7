// Modes as people and files write them.
#pragma once

#include <string_view>

#include "tdbg/trial.h"

namespace tdbg {

/// "TRAIN", "EVAL", "PREDICT", "GLOBAL".
std::string_view ModeName(ModeKey mode);

}  // namespace tdbg
