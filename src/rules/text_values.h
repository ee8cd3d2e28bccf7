// Reads small tensors of texts, such as the node ids of a tree, and of numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tdbg/trial.h"

namespace tdbg::rules {

/// The texts of a tensor of dtype text (code points, the last axis is their width), as UTF-8. Nothing for
/// other types.
std::optional<std::vector<std::string>> TextElements(const TensorValue& value);

}  // namespace tdbg::rules
