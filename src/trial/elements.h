// One element as bytes: the value of a one-element tensor, reconstructed from its summary.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "tdbg/summary.h"
#include "tdbg/tensor.h"
#include "tdbg/trial.h"

namespace tdbg {

/// The exact value of a one-element tensor. Nothing if it has several elements, or is an integer beyond 2^53.
std::optional<double> OnlyElement(const Summary& summary, DType dtype);
/// The element in the tensor's own type. \pre the value came from OnlyElement of the same dtype
TensorValue ElementValue(double value, DType dtype, std::vector<int64_t> shape);
/// Element `i` of a real tensor; nothing for complex and float8.
std::optional<double> ElementAsDouble(const TensorValue& value, size_t i);

}  // namespace tdbg
