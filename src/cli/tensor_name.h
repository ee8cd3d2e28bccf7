// TENSOR on the command line -> a tensor of a run.
#pragma once

#include <string>

#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::cli {

/// A tensor by its name, its short name where that is unambiguous, or a part of the name that only one tensor
/// has. What a script records of its context (the learning rate, the batch) counts only where nothing else
/// has it. That a part was taken for a name is said on standard error.
/// \error kNotFound  no tensor has it, or several: names them
Result<TensorInfo> ResolveTensor(const Trial& trial, const std::string& text);

}  // namespace tdbg::cli
