// Merging summaries, and reading NumPy's answers off one.
#include "tdbg/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stats/moments.h"

namespace tdbg {
namespace {

constexpr double kNaN = Summary::kNaN;
constexpr double kInf = std::numeric_limits<double>::infinity();

stats::Moments MomentsOf(const Summary& s) {
  const auto n = static_cast<double>(s.finite_count());
  return {n, s.mean, s.variance * n, s.m3 * n, s.m4 * n};
}

}  // namespace

Summary Merge(const Summary& a, const Summary& b) {
  Summary r = a.finite_count() == 0 ? b : a;
  if (a.finite_count() != 0 && b.finite_count() != 0) {
    const stats::Moments m = stats::MergeMoments(MomentsOf(a), MomentsOf(b));
    r.min = std::min(a.min, b.min);
    r.max = std::max(a.max, b.max);
    r.mean = m.mean;
    r.variance = m.m2 / m.n;
    r.m3 = m.m3 / m.n;
    r.m4 = m.m4 / m.n;
    r.l1 = a.l1 + b.l1;
    r.l2 = std::hypot(a.l2, b.l2);  // the squares of large doubles would overflow
    r.abs_min = std::min(a.abs_min, b.abs_min);
    r.abs_max = std::max(a.abs_max, b.abs_max);
  }
  r.count = a.count + b.count;
  r.nan_count = a.nan_count + b.nan_count;
  r.pos_inf_count = a.pos_inf_count + b.pos_inf_count;
  r.neg_inf_count = a.neg_inf_count + b.neg_inf_count;
  r.zero_count = a.zero_count + b.zero_count;
  return r;
}

double NumpyMean(const Summary& s) {
  if (s.count == 0 || s.nan_count != 0 || (s.pos_inf_count != 0 && s.neg_inf_count != 0)) return kNaN;
  if (s.pos_inf_count != 0) return kInf;
  if (s.neg_inf_count != 0) return -kInf;
  return s.mean;
}

double NumpyMeanAbs(const Summary& s) {
  if (s.count == 0 || s.nan_count != 0) return kNaN;
  if (s.pos_inf_count + s.neg_inf_count != 0) return kInf;
  return s.mean_abs();
}

double NumpyMin(const Summary& s) {
  if (s.count == 0 || s.nan_count != 0) return kNaN;
  if (s.neg_inf_count != 0) return -kInf;
  return s.finite_count() == 0 ? kInf : s.min;
}

double NumpyMax(const Summary& s) {
  if (s.count == 0 || s.nan_count != 0) return kNaN;
  if (s.pos_inf_count != 0) return kInf;
  return s.finite_count() == 0 ? -kInf : s.max;
}

double NumpyVariance(const Summary& s) { return s.finite_count() == s.count ? s.variance : kNaN; }

double NumpyL1(const Summary& s) {
  if (s.nan_count != 0) return kNaN;
  if (s.pos_inf_count + s.neg_inf_count != 0) return kInf;
  return s.count == 0 ? 0.0 : s.l1;
}

double NumpyL2(const Summary& s) {
  if (s.nan_count != 0) return kNaN;
  if (s.pos_inf_count + s.neg_inf_count != 0) return kInf;
  return s.count == 0 ? 0.0 : s.l2;
}

}  // namespace tdbg
