// Values of the library as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

#include "tdbg/trial.h"

namespace tdbg::python {

/// (array, name of the dtype). The bytes where they are (a mapped segment, or a private copy), read-only,
/// kept alive by the array. What NumPy has no type for comes as unsigned integers of its bits, texts as code
/// points on a last axis.
nanobind::tuple ArrayOf(TensorValue value);

}  // namespace tdbg::python
