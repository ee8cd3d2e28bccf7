// What the questions `matrix` and `ratio` ask for: rows of tensors, buckets of steps, a statistic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "query/question.h"
#include "query/statistics.h"
#include "tdbg/status.h"
#include "trial/access.h"

namespace tdbg::query {

struct MatrixRequest {
  const StatisticSpec* spec = nullptr;
  std::vector<std::vector<uint32_t>> rows;  ///< each: places in `tensors`
  std::vector<TensorIndex> tensors;         ///< that some row names, each once
  size_t first = 0, last = 0;               ///< step positions: from, and up to but not including
  size_t width = 1;                         ///< step positions of a bucket

  size_t buckets() const { return (last - first + width - 1) / width; }
  /// A bucket's step positions: from, and up to but not including.
  std::pair<size_t, size_t> positions(size_t bucket, size_t complete) const {
    const size_t from = first + bucket * width;
    return {from, std::min(from + width, complete)};
  }
};

/// \error kInvalidArgument  a parameter that is none, or has no such value
Result<MatrixRequest> ReadMatrixRequest(const Question& question, const TrialAccess& access);

/// The position of the first complete step that is at least this one; their number if there is none.
size_t FirstStepFrom(const TrialAccess& access, int64_t global_step);

}  // namespace tdbg::query
