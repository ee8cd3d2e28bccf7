// smdebug's reductions, by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tdbg/summary.h"

namespace tdbg {

/// "min max mean std variance sum l1 l2", each also with "abs_" in front, as NumPy has them for the whole
/// array, non-finite elements included. Nothing for another name: "prod" too, no statistic gives a product.
std::optional<double> ReductionOf(const Summary& summary, std::string_view name);
/// A configuration's name of a reduction ("abs_l2_norm") as values have it ("abs_l2").
std::string ReductionName(std::string_view configured);

}  // namespace tdbg
