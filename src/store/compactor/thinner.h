// A segment without the rows and raw values of some of its steps. docs/format.md, "Levels".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "format/records.h"
#include "tdbg/status.h"

namespace tdbg::store {

struct Thinned {
  std::string file;             ///< empty: there was nothing to drop
  uint64_t steps = 0;           ///< of which something was dropped
  uint64_t rows = 0, raws = 0;  ///< dropped
};

/// The same segment: the same steps, scalars, definitions, contexts and sequences, under the same name.
/// Commits of which something was dropped have the flag kCommitThinned and count it as shed.
/// \param keeps_step  whether all of a global step stays. What is recorded outside of steps always does
/// \param keeps_row   of the steps that do not: whether the rows of this tensor stay all the same
/// \error kDataLoss  the segment is damaged: it is left alone, since nobody knows what would be lost
Result<Thinned> ThinSegment(std::span<const std::byte> file, std::string_view name,
                            const std::function<bool(int64_t global_step)>& keeps_step,
                            const std::function<bool(const format::TensorDef& tensor)>& keeps_row);

}  // namespace tdbg::store
