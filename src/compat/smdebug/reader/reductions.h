// What the reductions that smdebug saved of one tensor at one step say about its summary, and what they do
// not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compat/smdebug/reader/part.h"
#include "store/reader/worker_reader.h"
#include "tdbg/summary.h"

namespace tdbg::compat::smdebug {

struct SavedNumbers {
  const std::vector<int64_t>* shape = nullptr;  ///< where it was saved too

  /// Values of more than one element, and operations we do not know, say nothing.
  void Add(const Operation& operation, const store::RawValue& value, Summarizer* summarizer);

  /// Fills what follows from the numbers without a doubt; returns SummaryBatch::unknown for the rest.
  ///
  /// A finite mean, sum, norm, minimum or maximum was computed over every element, so there was no NaN and no
  /// infinity; one that is not finite is kept out of the moments (they cover finite elements) and counted
  /// once. PyTorch's hook saves std and variance with n - 1 in the denominator and as arrays of no axes; the
  /// others divide by n and save arrays of one element: Summary::variance divides by n, so PyTorch's need the
  /// count.
  uint64_t ToSummary(Summary* summary, double* mean_abs) const;

 private:
  std::optional<double> min_, max_, mean_, sum_, l1_, l2_, abs_min_, abs_max_, abs_mean_;
  std::optional<double> variance_;
  bool unbiased_ = false;
};

}  // namespace tdbg::compat::smdebug
