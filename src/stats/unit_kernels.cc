#include "stats/unit_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/unit_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// An operation turns a vector of elements into what it adds to as wide a vector of accumulators, and a single
// element into what it adds. Masks are -1 where true, so counting is subtracting.

template <typename T, typename Int>
struct InRange {
  using Element = T;
  using Sum = Int;
  using D = hn::ScalableTag<T>;
  using DSum = hn::ScalableTag<Int>;
  T above, at_most;

  HWY_INLINE hn::Vec<DSum> Add(hn::Vec<DSum> sum, const T* x) const {
    const D d;
    const auto v = hn::LoadU(d, x);
    const auto in = hn::And(hn::Lt(hn::Set(d, above), v), hn::Le(v, hn::Set(d, at_most)));
    return hn::Sub(sum, hn::VecFromMask(DSum(), hn::RebindMask(DSum(), in)));
  }
  HWY_INLINE Sum AddOne(Sum sum, T x) const { return sum + (above < x && x <= at_most ? 1 : 0); }
};

template <typename T>
struct Total {
  using Element = T;
  using Sum = double;
  using D = hn::ScalableTag<double>;
  using DSum = D;

  static HWY_INLINE hn::Vec<D> Load(const double* x) { return hn::LoadU(D(), x); }
  static HWY_INLINE hn::Vec<D> Load(const float* x) {
    return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<float, D>(), x));
  }
  HWY_INLINE hn::Vec<D> Add(hn::Vec<D> sum, const T* x) const { return hn::Add(sum, Load(x)); }
  HWY_INLINE double AddOne(double sum, T x) const { return sum + static_cast<double>(x); }
};

// A vector of 32-bit counters is emptied before any lane can wrap.
constexpr size_t kRunElements = size_t{1} << 30;
constexpr size_t kRows = size_t{1} << 30;

template <class Op>
HWY_INLINE typename Op::Sum Run(const Op& op, const typename Op::Element* HWY_RESTRICT x, size_t n) {
  const typename Op::DSum d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = op.Add(a, x + i);
    b = op.Add(b, x + i + lanes);
    c = op.Add(c, x + i + 2 * lanes);
    e = op.Add(e, x + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) a = op.Add(a, x + i);
  typename Op::Sum sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < n; ++i) sum = op.AddOne(sum, x[i]);
  return sum;
}

// Units that are narrow in memory (features of a row, 7 x 7 images): an accumulator for each column of the
// plane [units, inner], folded into units at the end. Four rows at a time, so that accumulators are touched
// rarely.
template <class Op, typename Out>
HWY_INLINE void Columns(const Op& op, const typename Op::Element* HWY_RESTRICT x, UnitBlock block,
                        typename Op::Sum* HWY_RESTRICT columns, Out* HWY_RESTRICT out) {
  const typename Op::DSum d;
  const size_t lanes = hn::Lanes(d);
  const size_t row = block.units * block.inner;
  for (size_t first = 0; first < row; first += kUnitColumns) {
    const size_t width = std::min(kUnitColumns, row - first);
    for (size_t begin = 0; begin < block.outer; begin += kRows) {
      const size_t end = std::min(block.outer, begin + kRows);
      std::fill_n(columns, width, typename Op::Sum(0));
      for (size_t o = begin; o < end; o += 4) {
        const auto* const r = x + o * row + first;
        const size_t rows = std::min<size_t>(4, end - o);
        size_t c = 0;
        for (; c + lanes <= width; c += lanes) {
          auto sum = hn::LoadU(d, columns + c);
          for (size_t k = 0; k < rows; ++k) sum = op.Add(sum, r + k * row + c);
          hn::StoreU(sum, d, columns + c);
        }
        for (; c < width; ++c) {
          for (size_t k = 0; k < rows; ++k) columns[c] = op.AddOne(columns[c], r[k * row + c]);
        }
      }
      for (size_t c = 0; c < width; ++c) out[(first + c) / block.inner] += static_cast<Out>(columns[c]);
    }
  }
}

constexpr size_t kRunFrom = 128;  // shorter runs cost more in beginning and ending them than columns do

template <class Op, typename Out>
HWY_INLINE void PerUnit(const Op& op, const typename Op::Element* HWY_RESTRICT x, UnitBlock block,
                        typename Op::Sum* columns, Out* out) {
  if (block.inner < kRunFrom) return Columns(op, x, block, columns, out);
  for (size_t o = 0; o < block.outer; ++o) {
    for (size_t u = 0; u < block.units; ++u) {
      const auto* const run = x + (o * block.units + u) * block.inner;
      for (size_t i = 0; i < block.inner; i += kRunElements) {
        out[u] += static_cast<Out>(Run(op, run + i, std::min(kRunElements, block.inner - i)));
      }
    }
  }
}

void CountF32(const float* x, UnitBlock block, float above, float at_most, int64_t* columns, int64_t* out) {
  // Counters as wide as the elements; `columns` has room for them twice over.
  PerUnit(InRange<float, int32_t>{above, at_most}, x, block, reinterpret_cast<int32_t*>(columns), out);
}
void CountF64(const double* x, UnitBlock block, double above, double at_most, int64_t* columns,
              int64_t* out) {
  PerUnit(InRange<double, int64_t>{above, at_most}, x, block, columns, out);
}
void SumF32(const float* x, UnitBlock block, double* columns, double* out) {
  PerUnit(Total<float>(), x, block, columns, out);
}
void SumF64(const double* x, UnitBlock block, double* columns, double* out) {
  PerUnit(Total<double>(), x, block, columns, out);
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(CountF32);
HWY_EXPORT(CountF64);
HWY_EXPORT(SumF32);
HWY_EXPORT(SumF64);

void CountBetween(const float* x, UnitBlock block, float above, float at_most, int64_t* columns,
                  int64_t* out) {
  HWY_DYNAMIC_DISPATCH(CountF32)(x, block, above, at_most, columns, out);
}
void CountBetween(const double* x, UnitBlock block, double above, double at_most, int64_t* columns,
                  int64_t* out) {
  HWY_DYNAMIC_DISPATCH(CountF64)(x, block, above, at_most, columns, out);
}
void SumUnits(const float* x, UnitBlock block, double* columns, double* out) {
  HWY_DYNAMIC_DISPATCH(SumF32)(x, block, columns, out);
}
void SumUnits(const double* x, UnitBlock block, double* columns, double* out) {
  HWY_DYNAMIC_DISPATCH(SumF64)(x, block, columns, out);
}

}  // namespace tdbg::stats
#endif
