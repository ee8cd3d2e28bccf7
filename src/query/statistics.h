// The statistics that a matrix can show, each read straight from a batch's columns.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "format/level.h"
#include "trial/access.h"
#include "trial/columns.h"

namespace tdbg::query {

enum class MatrixStatistic : uint8_t {
  kMeanAbs,
  kL2,
  kAbsMax,
  kStd,
  kMean,
  kMin,
  kMax,
  kZeroShare,
  kNonfiniteShare,
};

struct StatisticSpec {
  MatrixStatistic id;
  std::string_view name;
  std::string_view title;        ///< for people
  uint64_t columns;              ///< which columns it reads (trial/columns.h)
  format::DrawnStatistic drawn;  ///< what coarse rows call it
};
/// All of them, in the order in which the page offers them.
std::span<const StatisticSpec> MatrixStatistics();
const StatisticSpec* FindStatistic(std::string_view name);

/// NaN where the row has no finite element.
template <MatrixStatistic kId>
double StatisticOfRow(const TrialAccess::RowSpan& span, uint32_t i) {
  const auto& b = *span.batch;
  const double count = static_cast<double>(b.count[i]);
  const uint64_t nonfinite = b.nan_count[i] + b.pos_inf_count[i] + b.neg_inf_count[i];
  if constexpr (kId == MatrixStatistic::kMeanAbs) {
    if (b.mean_abs && std::isfinite(b.mean_abs[i])) return b.mean_abs[i];
    return b.l1[i] / (count - static_cast<double>(nonfinite));
  }
  if constexpr (kId == MatrixStatistic::kL2) return b.l2[i];
  if constexpr (kId == MatrixStatistic::kAbsMax) return b.abs_max[i];
  if constexpr (kId == MatrixStatistic::kStd) return std::sqrt(b.variance[i]);
  if constexpr (kId == MatrixStatistic::kMean) return b.mean[i];
  if constexpr (kId == MatrixStatistic::kMin) return b.min[i];
  if constexpr (kId == MatrixStatistic::kMax) return b.max[i];
  if constexpr (kId == MatrixStatistic::kZeroShare) return static_cast<double>(b.zero_count[i]) / count;
  if constexpr (kId == MatrixStatistic::kNonfiniteShare) return static_cast<double>(nonfinite) / count;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tdbg::query
