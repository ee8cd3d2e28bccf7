// Any values, sums in double: what the fast kernels leave, and what they are held against.
#include <cstring>
#include <limits>

#include "stats/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/exact_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<double>;
using V64 = hn::Vec<D64>;

HWY_INLINE V64 LoadAsDouble(const double* x) { return hn::LoadU(D64(), x); }
HWY_INLINE V64 LoadAsDouble(const float* x) {
  const hn::Rebind<float, D64> half;
  return hn::PromoteTo(D64(), hn::LoadU(half, x));
}

template <typename T>
HWY_INLINE void Exact(const T* HWY_RESTRICT x, size_t n, double pivot, double scale, Partial* out) {
  const D64 d;
  const size_t lanes = hn::Lanes(d);
  const V64 largest = hn::Set(d, std::numeric_limits<double>::max());
  const V64 infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  const V64 zero = hn::Zero(d);
  const V64 v_scale = hn::Set(d, scale);
  const V64 v_pivot = hn::Set(d, pivot);
  V64 s1 = zero, s2 = zero, s3 = zero, s4 = zero, l1 = zero;
  V64 v_min = hn::Set(d, out->min), v_max = hn::Set(d, out->max);
  V64 abs_min = hn::Set(d, out->abs_min_nonzero), abs_max = hn::Set(d, out->abs_max);
  size_t zeros = 0, nans = 0, pos_infs = 0, neg_infs = 0;

  const auto step = [&](const T* at) HWY_ATTR {
    const V64 v = LoadAsDouble(at);
    const V64 magnitude = hn::Abs(v);
    const auto finite = hn::Le(magnitude, largest);  // false for NaN as well
    if (HWY_UNLIKELY(!hn::AllTrue(d, finite))) {
      nans += hn::CountTrue(d, hn::IsNaN(v));
      pos_infs += hn::CountTrue(d, hn::Eq(v, infinity));
      neg_infs += hn::CountTrue(d, hn::Eq(v, hn::Neg(infinity)));
    }
    const V64 a = hn::IfThenElseZero(finite, magnitude);
    const V64 delta = hn::IfThenElseZero(finite, hn::MulSub(v, v_scale, v_pivot));
    zeros += hn::CountTrue(d, hn::Eq(magnitude, zero));
    v_min = hn::Min(v_min, hn::IfThenElse(finite, v, infinity));
    v_max = hn::Max(v_max, hn::IfThenElse(finite, v, hn::Neg(infinity)));
    abs_max = hn::Max(abs_max, a);
    abs_min = hn::Min(abs_min, hn::IfThenElse(hn::Gt(a, zero), a, infinity));
    l1 = hn::MulAdd(a, v_scale, l1);
    const V64 square = hn::Mul(delta, delta);
    s1 = hn::Add(s1, delta);
    s2 = hn::Add(s2, square);
    s3 = hn::MulAdd(square, delta, s3);
    s4 = hn::MulAdd(square, square, s4);
  };

  size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(x + i);
  if (i < n) {
    // Filled up with NaN: those are left out of everything and easy to take off the count again.
    HWY_ALIGN T tail[hn::MaxLanes(D64())];
    const size_t rest = n - i;
    for (size_t j = rest; j < lanes; ++j) tail[j] = std::numeric_limits<T>::quiet_NaN();
    std::memcpy(tail, x + i, rest * sizeof(T));
    step(tail);
    nans -= lanes - rest;
  }

  out->nan += nans;
  out->pos_inf += pos_infs;
  out->neg_inf += neg_infs;
  out->zero += zeros;
  out->min = hn::GetLane(hn::MinOfLanes(d, v_min));
  out->max = hn::GetLane(hn::MaxOfLanes(d, v_max));
  out->abs_min_nonzero = hn::GetLane(hn::MinOfLanes(d, abs_min));
  out->abs_max = hn::GetLane(hn::MaxOfLanes(d, abs_max));
  out->s1 += hn::GetLane(hn::SumOfLanes(d, s1));
  out->s2 += hn::GetLane(hn::SumOfLanes(d, s2));
  out->s3 += hn::GetLane(hn::SumOfLanes(d, s3));
  out->s4 += hn::GetLane(hn::SumOfLanes(d, s4));
  out->l1 += hn::GetLane(hn::SumOfLanes(d, l1));
}

void ExactF32Kernel(const float* x, size_t n, double pivot, Partial* out) { Exact(x, n, pivot, 1.0, out); }
void ExactF64Kernel(const double* x, size_t n, double pivot, double scale, Partial* out) {
  Exact(x, n, pivot, scale, out);
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(ExactF32Kernel);
HWY_EXPORT(ExactF64Kernel);

void ExactF32(const float* x, size_t n, double pivot, Partial* out) {
  HWY_DYNAMIC_DISPATCH(ExactF32Kernel)(x, n, pivot, out);
}
void ExactF64(const double* x, size_t n, double pivot, double scale, Partial* out) {
  HWY_DYNAMIC_DISPATCH(ExactF64Kernel)(x, n, pivot, scale, out);
}

}  // namespace tdbg::stats
#endif
