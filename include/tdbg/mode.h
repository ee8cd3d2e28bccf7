// What a step was for.
#pragma once

#include <cstdint>

namespace tdbg {

/// Stored; never renumber. kGlobal: of no mode; in a question, of any.
enum class ModeKey : uint8_t { kTrain = 1, kEval = 2, kPredict = 3, kGlobal = 4 };

}  // namespace tdbg
