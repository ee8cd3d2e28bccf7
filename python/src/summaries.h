// A Summary as a row of numbers, in the order of the list in format/columns.h: how it crosses the border to
// Python and back.
#pragma once

#include <cstddef>
#include <vector>

#include "format/columns.h"
#include "tdbg/summary.h"

namespace tdbg::python {

#define TDBG_COLUMN(...) +1
inline constexpr size_t kSummaryNumbers = 0 TDBG_STATISTICS(TDBG_COLUMN);
#undef TDBG_COLUMN

/// \pre numbers has kSummaryNumbers
inline Summary SummaryOf(const double* numbers) {
  Summary s;
#define TDBG_COLUMN(name, ...) s.name = static_cast<decltype(s.name)>(*numbers++);
  TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  return s;
}

inline std::vector<double> NumbersOf(const Summary& s) {
  return {
#define TDBG_COLUMN(name, ...) static_cast<double>(s.name),
      TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  };
}

}  // namespace tdbg::python
