// Tensors as a tree of modules, in the model's order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "query/answer.h"
#include "trial/access.h"

namespace tdbg::query {

/// A canonical name taken apart: "gradient/Net_l1.weight" -> module "Net_l1", leaf "gradient of weight".
struct NameParts {
  std::string module;  ///< empty: the tensor belongs to none
  std::string leaf;
};
NameParts PartsOfName(std::string_view name);

/// {"nodes": [{"name", "parent", "first": least order below}], "tensors": [{"id", "name", "leaf", "node",
/// ...}]}: nodes come before their children, children are in the model's order. A chain of modules of which
/// each has one child only is one node.
Json TreeOf(const TrialAccess& access);

}  // namespace tdbg::query
