#include "query/statistics.h"

#include <array>

namespace tdbg::query {
namespace {

using format::DrawnStatistic;
using format::SummaryColumn;
constexpr uint64_t Bit(SummaryColumn column) { return columns::Bit(column); }
constexpr uint64_t kAlways = columns::kFinite | columns::kCount | columns::kZeroCount;

constexpr std::array kStatistics{
    StatisticSpec{MatrixStatistic::kMeanAbs, "mean_abs", "mean |x|", kAlways | Bit(SummaryColumn::k_l1),
                  DrawnStatistic::k_mean_abs},
    StatisticSpec{MatrixStatistic::kL2, "l2", "l2 norm", kAlways | Bit(SummaryColumn::k_l2),
                  DrawnStatistic::k_l2},
    StatisticSpec{MatrixStatistic::kAbsMax, "abs_max", "largest |x|", kAlways | Bit(SummaryColumn::k_abs_max),
                  DrawnStatistic::k_abs_max},
    StatisticSpec{MatrixStatistic::kStd, "std", "standard deviation",
                  kAlways | Bit(SummaryColumn::k_variance), DrawnStatistic::k_std},
    StatisticSpec{MatrixStatistic::kMean, "mean", "mean", kAlways | Bit(SummaryColumn::k_mean),
                  DrawnStatistic::k_mean},
    StatisticSpec{MatrixStatistic::kMin, "min", "least element", kAlways | Bit(SummaryColumn::k_min),
                  DrawnStatistic::k_min},
    StatisticSpec{MatrixStatistic::kMax, "max", "greatest element", kAlways | Bit(SummaryColumn::k_max),
                  DrawnStatistic::k_max},
    StatisticSpec{MatrixStatistic::kZeroShare, "zero_share", "share of zeros", kAlways,
                  DrawnStatistic::k_zero_share},
    StatisticSpec{MatrixStatistic::kNonfiniteShare, "nonfinite_share", "share of NaN and infinity", kAlways,
                  DrawnStatistic::k_nonfinite_share},
};

}  // namespace

std::span<const StatisticSpec> MatrixStatistics() { return kStatistics; }

const StatisticSpec* FindStatistic(std::string_view name) {
  for (const StatisticSpec& spec : kStatistics) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

}  // namespace tdbg::query
