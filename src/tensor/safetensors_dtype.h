// What safetensors calls an element type.
#pragma once

#include <string_view>

#include "tdbg/tensor.h"

namespace tdbg {

/// Empty where the stock library has no name for it, or learned it late (C64, the FNUZ types): a library of
/// last year must open our files. Texts have none either: how they are laid out is the writer's choice.
std::string_view SafetensorsDType(DType dtype);

}  // namespace tdbg
