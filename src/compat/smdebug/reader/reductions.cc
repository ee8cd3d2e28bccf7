#include "compat/smdebug/reader/reductions.h"

#include <cmath>

#include "base/bytes.h"
#include "format/columns.h"
#include "store/reader/worker_reader.h"

namespace tdbg::compat::smdebug {
namespace {

using format::ColumnBit;
using format::SummaryColumn;

}  // namespace

void SavedNumbers::Add(const Operation& operation, const store::RawValue& value, Summarizer* summarizer) {
  Summary one;
  if (!HasStatistics(value.dtype)) return;
  if (!summarizer->Summarize({value.bytes.data(), value.dtype, value.shape, {}}, &one, nullptr).ok()) return;
  if (one.count != 1) return;
  double number = one.min;
  if (one.nan_count) number = Summary::kNaN;
  if (one.pos_inf_count) number = HUGE_VAL;
  if (one.neg_inf_count) number = -HUGE_VAL;
  const std::string& name = operation.name;
  if (name == "l1" || (name == "sum" && operation.absolute)) {
    l1_ = number;
  } else if (name == "l2") {
    l2_ = number;
  } else if (name == "min") {
    (operation.absolute ? abs_min_ : min_) = number;
  } else if (name == "max") {
    (operation.absolute ? abs_max_ : max_) = number;
  } else if (name == "mean") {
    (operation.absolute ? abs_mean_ : mean_) = number;
  } else if (name == "sum") {
    sum_ = number;
  } else if ((name == "variance" || name == "std") && !operation.absolute) {
    variance_ = name == "std" ? number * number : number;
    unbiased_ = value.shape.empty();
  }
}

uint64_t SavedNumbers::ToSummary(Summary* summary, double* mean_abs) const {
  uint64_t unknown = format::kStatisticColumns | store::kMeanAbsUnknown;
  const auto known = [&unknown](SummaryColumn column) { unknown &= ~ColumnBit(column); };

  std::optional<uint64_t> count;
  if (shape) {
    uint64_t elements = 1;
    bool fits = true;
    for (const int64_t extent : *shape) {
      fits &= !__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements);
    }
    if (fits) count = elements;
  }
  if (count) {
    summary->count = *count;
    known(SummaryColumn::k_count);
  }
  if (count && *count == 0) {
    *summary = Summary{};
    return 0;  // of no elements everything is known
  }

  bool finite = false;
  for (const auto& number : {mean_, sum_, l1_, l2_, abs_mean_, abs_max_})
    finite |= number && std::isfinite(*number);
  finite |= min_ && max_ && std::isfinite(*min_) && std::isfinite(*max_);
  bool nan = false, pos_inf = false, neg_inf = false;
  for (const auto& number : {mean_, l1_, l2_, abs_mean_, abs_min_, abs_max_, min_, max_, sum_}) {
    nan |= number && std::isnan(*number);
  }
  for (const auto& number : {max_, abs_max_, min_, mean_}) pos_inf |= number && *number == HUGE_VAL;
  for (const auto& number : {min_, max_, mean_}) neg_inf |= number && *number == -HUGE_VAL;
  if (finite || nan || pos_inf || neg_inf) {
    summary->nan_count = !finite && nan ? 1 : 0;
    summary->pos_inf_count = !finite && pos_inf ? 1 : 0;
    summary->neg_inf_count = !finite && neg_inf ? 1 : 0;
    known(SummaryColumn::k_nan_count);
    known(SummaryColumn::k_pos_inf_count);
    known(SummaryColumn::k_neg_inf_count);
  }
  if (!finite) return unknown;

  const auto take = [&](const std::optional<double>& number, double* to, SummaryColumn column) {
    if (!number || !std::isfinite(*number)) return;
    *to = *number;
    known(column);
  };
  take(min_, &summary->min, SummaryColumn::k_min);
  take(max_, &summary->max, SummaryColumn::k_max);
  take(mean_, &summary->mean, SummaryColumn::k_mean);
  take(l1_, &summary->l1, SummaryColumn::k_l1);
  take(l2_, &summary->l2, SummaryColumn::k_l2);
  take(abs_min_, &summary->abs_min, SummaryColumn::k_abs_min);
  take(abs_max_, &summary->abs_max, SummaryColumn::k_abs_max);
  if (variance_ && std::isfinite(*variance_) && (!unbiased_ || (count && *count > 1))) {
    const auto n = static_cast<double>(count.value_or(1));
    summary->variance = unbiased_ ? *variance_ * (n - 1) / n : *variance_;
    known(SummaryColumn::k_variance);
  }
  if (abs_mean_ && std::isfinite(*abs_mean_)) {
    *mean_abs = *abs_mean_;
    unknown &= ~store::kMeanAbsUnknown;
  } else if (count && l1_ && std::isfinite(*l1_)) {
    *mean_abs = *l1_ / static_cast<double>(*count);
    unknown &= ~store::kMeanAbsUnknown;
  }
  const auto is = [](const std::optional<double>& number, double value) {
    return number && *number == value;
  };
  const bool no_zero = (abs_min_ && *abs_min_ > 0) || (min_ && *min_ > 0) || (max_ && *max_ < 0);
  const bool all_zero = is(abs_max_, 0) || is(l1_, 0) || (is(min_, 0) && is(max_, 0));
  if (no_zero || (all_zero && count)) {
    summary->zero_count = no_zero ? 0 : *count;
    known(SummaryColumn::k_zero_count);
  }
  return unknown;
}

}  // namespace tdbg::compat::smdebug
