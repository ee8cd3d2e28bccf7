// One number out of a tensor's memory.
#pragma once

#include "tdbg/tensor.h"

namespace tdbg::python {

/// The element at `data`, of any alignment, as a double: exact but for integers beyond 2^53.
/// \pre `dtype` is a real type of 8 bits and more, no float8
double NumberAt(const void* data, DType dtype);

}  // namespace tdbg::python
