// Our signed log-scale histograms as TensorBoard's.
#pragma once

#include <span>

#include "tdbg/summary.h"
#include "tfevents/event.h"

namespace tdbg::ship {

/// Every finite element is counted, in a bucket whose limits hold it: a bucket of ours, or, for zeros, one of
/// its own around 0 that is no wider than 1/1024 of the largest magnitude. Non-finite elements are left out
/// (they are a scalar). min, max are exact; the sum's error is the mean's. So a quantile that TensorBoard
/// interpolates is off by a bucket's width at most: a quarter of the value (docs/statistics.md).
/// \pre summary.finite_count() > 0
tfevents::HistogramProto MakeTensorBoardHistogram(const Summary& summary,
                                                  std::span<const HistogramBucket> buckets);

}  // namespace tdbg::ship
