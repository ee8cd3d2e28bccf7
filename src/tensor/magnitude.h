// Complex numbers as what statistics are taken of: their absolute values.
#pragma once

#include <vector>

#include "tdbg/tensor.h"

namespace tdbg {

inline bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

/// |x| of every element, in C order. As C and NumPy have it: infinite where either part is, whatever the
/// other; else NaN where either part is. In float64 for both types: of two float32 parts no |x| overflows.
/// Costs as much memory as a complex64 tensor has itself, half of a complex128 one's.
/// \pre IsComplex(view.dtype)
std::vector<double> Magnitudes(const TensorView& view);

}  // namespace tdbg
