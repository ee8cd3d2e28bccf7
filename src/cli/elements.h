// Single elements of a tensor as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "cli/json_output.h"
#include "tdbg/trial.h"

namespace tdbg::cli {

/// Element `i` of C-ordered data: shortest text that names the value; float8 as its byte in hex.
std::string ElementText(DType dtype, const void* data, int64_t i);
/// The same for JSON: numbers, true/false, pairs for complex, strings for what JSON cannot hold.
Json ElementJson(DType dtype, const void* data, int64_t i);
/// NumPy's look: nested brackets, "..." where an axis is longer than `edge` * 2.
std::string FormatTensor(const TensorValue& value, int64_t edge);
/// Nested lists, complete.
Json TensorJson(const TensorValue& value);
/// Parses "A:B" (either may be missing; B exclusive), or one step. \error kInvalidArgument
struct StepRange {
  int64_t begin = 0;
  int64_t end = -1;  ///< exclusive; -1: no end
  bool Holds(int64_t step) const { return step >= begin && (end < 0 || step < end); }
};
Result<StepRange> ParseStepRange(const std::string& text);

}  // namespace tdbg::cli
