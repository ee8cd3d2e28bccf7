// Any values, sums in double: what the fast kernels leave, and what they are held against.
#include <cstring>
#include <limits>

#include "stats/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/exact_kernels.cc"
#include <hwy/cache_control.h>
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

// Zeros and the smallest of the others, of a stretch that holds some zeros.
HWY_INLINE void LookPastZeros(const double* HWY_RESTRICT x, size_t n, V64* abs_min, V64* zeros) {
  const D64 d;
  const V64 one = hn::Set(d, 1.0);
  const V64 infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const V64 a = hn::Abs(hn::LoadU(d, x + i));
    const auto is_zero = hn::Eq(a, hn::Zero(d));
    *zeros = hn::Add(*zeros, hn::IfThenElseZero(is_zero, one));
    *abs_min = hn::Min(*abs_min, hn::IfThenElse(is_zero, infinity, a));
  }
}

// Half of Exact's instructions ask about what is rarely there. Here NaN and infinities show in the sum of |x|
// alone, and zeros in the smallest |x| of a stretch, which is then looked at again while it is in the cache.
bool FastF64Kernel(const double* HWY_RESTRICT x, size_t n, double pivot, Partial* out) {
  constexpr size_t kStretch = 1024;
  constexpr size_t kAhead = 8192;  // bytes, as in kernels.cc
  const D64 d;
  const size_t lanes = hn::Lanes(d);
  const V64 infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  const V64 zero = hn::Zero(d);
  const V64 v_pivot = hn::Set(d, pivot);
  V64 s1 = zero, s2 = zero, s3a = zero, s3b = zero, s4a = zero, s4b = zero, l1 = zero, zeros = zero;
  V64 v_min = infinity, v_max = hn::Neg(infinity), abs_min = infinity;
  const size_t done = n - n % (2 * lanes);
  for (size_t from = 0; from < done;) {
    const size_t to = HWY_MIN(from + kStretch, done);
    V64 smallest = infinity;
    for (size_t i = from; i < to; i += 2 * lanes) {
      for (size_t j = 0; j < 2 * lanes * sizeof *x; j += 64)
        hwy::Prefetch(reinterpret_cast<const char*>(x + i) + kAhead + j);
      const V64 a = hn::LoadU(d, x + i);
      const V64 b = hn::LoadU(d, x + i + lanes);
      const V64 abs_a = hn::Abs(a);
      const V64 abs_b = hn::Abs(b);
      v_min = hn::Min(v_min, hn::Min(a, b));
      v_max = hn::Max(v_max, hn::Max(a, b));
      smallest = hn::Min(smallest, hn::Min(abs_a, abs_b));
      l1 = hn::Add(l1, hn::Add(abs_a, abs_b));
      const V64 da = hn::Sub(a, v_pivot);
      const V64 db = hn::Sub(b, v_pivot);
      const V64 qa = hn::Mul(da, da);
      const V64 qb = hn::Mul(db, db);
      s1 = hn::Add(s1, hn::Add(da, db));
      s2 = hn::Add(s2, hn::Add(qa, qb));
      s3a = hn::MulAdd(qa, da, s3a);
      s3b = hn::MulAdd(qb, db, s3b);
      s4a = hn::MulAdd(qa, qa, s4a);
      s4b = hn::MulAdd(qb, qb, s4b);
    }
    if (HWY_LIKELY(hn::AllFalse(d, hn::Eq(smallest, zero)))) {
      abs_min = hn::Min(abs_min, smallest);
    } else {
      LookPastZeros(x + from, to - from, &abs_min, &zeros);
    }
    from = to;
  }
  const double sum = hn::GetLane(hn::SumOfLanes(d, l1));
  if (!(sum <= std::numeric_limits<double>::max())) return false;
  Partial rest;
  if (done != n) {
    Exact(x + done, n - done, pivot, 1.0, &rest);
    if (rest.nan + rest.pos_inf + rest.neg_inf != 0) return false;
  }
  const double most = hn::GetLane(hn::MaxOfLanes(d, v_max));
  const double least = hn::GetLane(hn::MinOfLanes(d, v_min));
  const double smallest = hn::GetLane(hn::MinOfLanes(d, abs_min));
  out->zero += rest.zero + static_cast<uint64_t>(hn::GetLane(hn::SumOfLanes(d, zeros)));
  out->min = HWY_MIN(out->min, HWY_MIN(rest.min, least));
  out->max = HWY_MAX(out->max, HWY_MAX(rest.max, most));
  out->abs_min_nonzero = HWY_MIN(out->abs_min_nonzero, HWY_MIN(rest.abs_min_nonzero, smallest));
  out->abs_max = HWY_MAX(out->abs_max, HWY_MAX(rest.abs_max, HWY_MAX(most, -least)));
  out->s1 += hn::GetLane(hn::SumOfLanes(d, s1)) + rest.s1;
  out->s2 += hn::GetLane(hn::SumOfLanes(d, s2)) + rest.s2;
  out->s3 += hn::GetLane(hn::SumOfLanes(d, hn::Add(s3a, s3b))) + rest.s3;
  out->s4 += hn::GetLane(hn::SumOfLanes(d, hn::Add(s4a, s4b))) + rest.s4;
  out->l1 += sum + rest.l1;
  return true;
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(ExactF32Kernel);
HWY_EXPORT(ExactF64Kernel);
HWY_EXPORT(FastF64Kernel);

void ExactF32(const float* x, size_t n, double pivot, Partial* out) {
  HWY_DYNAMIC_DISPATCH(ExactF32Kernel)(x, n, pivot, out);
}
void ExactF64(const double* x, size_t n, double pivot, double scale, Partial* out) {
  HWY_DYNAMIC_DISPATCH(ExactF64Kernel)(x, n, pivot, scale, out);
}
bool FastF64(const double* x, size_t n, double pivot, Partial* out) {
  return HWY_DYNAMIC_DISPATCH(FastF64Kernel)(x, n, pivot, out);
}

}  // namespace tdbg::stats
#endif
