// One chunk of one tensor, read once: counts, extrema, power sums, bins. Always the same bits for the same elements, wherever
// they lie: which thread adds what to which sum follows from an element's index alone.
#pragma once

#include "cuda/device/merge.cuh"

namespace tdbg::cuda {
namespace device {

/// Where a block's elements lie, and what is wanted of them.
struct Work {
  const unsigned char* data;  ///< of the chunk's first element
  uint32_t length;
  uint32_t code;
  uint32_t* table;  ///< of the tensor, in the device's memory; null: no histogram
  Partial* out;
  Partial* group;  ///< where the first of its group's is; null: the tensor has no groups (merge.cuh)
  uint32_t group_size;
};

struct Shared {
  union {
    uint32_t table[kTable];
    MergeShared merge;  ///< when the table has been read
  };
  Scratch s;
};

TDBG_DEVICE void Clear(uint32_t* table, uint32_t words) {
  TDBG_NO_UNROLL
  for (uint32_t i = threadIdx.x; i < words; i += kThreads) table[i] = 0;
}

/// The mean and the magnitude of 256 elements spread over the chunk, into s.pivot and s.exponent. For elements that are all
/// alike the pivot is their value: it lies between the least and the greatest of them.
TDBG_SHARED_CODE void Sample(const Work& work, Scratch& s) {
  const uint32_t length = work.length;
  const uint32_t tid = threadIdx.x, warp = tid >> 5;
  const uint32_t taken = length < kThreads ? length : kThreads;
  const double x = tid < taken ? NumberAt<false>(work.data, work.code, tid * length / taken) : NotANumber();
  const bool finite = IsFinite(x);
  // Of a hundred numbers near the largest double the sum is none: then the pivot is the least of them.
  const double sum = WarpSum(finite ? x : 0.0);
  const uint32_t n = WarpSum(finite ? 1u : 0u);
  const double low = WarpMin(finite ? x : WideInfinity()), high = -WarpMin(finite ? -x : WideInfinity());
  if ((tid & 31) == 0) {
    s.sums[warp][0] = sum;
    s.extremes[warp][0] = low;
    s.extremes[warp][1] = high;
    s.counts[warp][0] = n;
  }
  __syncthreads();
  if (tid == 0) {
    double total = 0, least = WideInfinity(), most = -WideInfinity();
    uint32_t count = 0;
    TDBG_NO_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) {
      total += s.sums[w][0];
      least = fmin(least, s.extremes[w][0]);
      most = fmax(most, s.extremes[w][1]);
      count += s.counts[w][0];
    }
    const double largest = count == 0 ? 0 : fmax(fabs(least), fabs(most));
    s.pivot = count == 0 ? 0 : IsFinite(total) ? Clamp(total / count, least, most) : least;
    s.exponent = largest > 0 ? ExponentOf(largest) : 0;
  }
  __syncthreads();
}

/// The same of floats, by the first warp alone; the others see it behind the next barrier. Of 32 elements: they lie far apart,
/// and 256 of them took a float32 block a sixteenth of its time. Where all are 0, what else there is (in a gradient that is
/// sparse) is likely to be small.
template <class Type>
TDBG_DEVICE void SampleFloats(const typename Type::Word* data, uint32_t length, Scratch& s) {
  if (threadIdx.x >= 32) return;
  const uint32_t taken = length < 32 ? length : 32;
  const float x = threadIdx.x < taken ? Type::Widen(data[threadIdx.x * length / taken]) : FloatOf(0x7fc00000u);
  const bool finite = fabsf(x) < Infinity();
  const double sum = WarpSum(finite ? static_cast<double>(x) : 0.0);
  const float low = WarpMin(finite ? x : Infinity()), high = WarpMax(finite ? x : -Infinity());
  const uint32_t n = PopulationCount(Ballot(finite));
  if (threadIdx.x == 0) {
    s.pivot = n == 0 ? 0 : Clamp(n == 32 ? sum * (1.0 / 32) : sum / n, low, high);
    const float largest = n == 0 ? 0 : fmaxf(fabsf(low), fabsf(high));
    s.exponent = largest > 0 ? ExponentOf(static_cast<double>(largest)) : -16;
  }
}

/// Adds bins of the shared table to the tensor's: of the 64 rows of 32 bins, every `warps`-th from `row` on.
TDBG_SHARED_CODE void FlushRows(const uint32_t* shared, uint32_t* table, const Bins& bins, uint32_t row, uint32_t warps) {
  const uint32_t lane = threadIdx.x & 31;
  TDBG_NO_UNROLL
  for (; row < 64; row += warps) {
    const uint32_t i = row * 32 + lane;
    const uint32_t exponent = i >> 2 & 255u;
    const bool normal = exponent != 0 && exponent != 255;  // the others: zeros and subnormals, infinities and NaN
    const uint32_t n = normal ? shared[i] : 0;
    if (Ballot(n != 0) == 0) continue;
    const int k = 4 * (static_cast<int>(exponent) - 127) + static_cast<int>(i & 3u);
    const uint32_t bin = normal ? bins.bin_of(i >= 1024, k) : 0;
    if (n != 0) atomicAdd(&table[bins.masks + bin], n);
    // A row's bins, which are next to each other, lie in at most two groups of 32.
    const uint32_t group = bin >> 5, first = TDBG_SHUFFLE(group, 16);
    const uint32_t here = Ballot(n != 0 && group == first), below = Ballot(n != 0 && group < first);
    const uint32_t above = Ballot(n != 0 && group > first);
    if (lane == 0) {
      if (here != 0) MarkGroup(table, first);
      if (below != 0) MarkGroup(table, first - 1);
      if (above != 0) MarkGroup(table, first + 1);
    }
  }
}

/// And those of subnormal floats.
TDBG_DEVICE void FlushSubnormals(const uint32_t* shared, uint32_t* table) {
  const uint32_t tid = threadIdx.x;
  if (tid < 2 * kSubnormalsOfASign) {
    const uint32_t n = shared[kSlots + tid];
    const bool negative = tid >= kSubnormalsOfASign;
    const int k = 4 * -149 + static_cast<int>(negative ? tid - kSubnormalsOfASign : tid);
    if (n != 0) CountGlobally(table, kNarrowBins, kNarrowBins.bin_of(negative, k), n);
  }
}

// ---- float32, bfloat16, float16 ------------------------------------------------------------------------------------

inline constexpr uint32_t kFirstNormal = 0x00800000u;  ///< bits of the least float that is not subnormal

/// Four accumulators of each kind, of at most 60 additions each, of d = (x - pivot) / 2^exponent.
struct FloatSums {
  float s1[4], s2[4], s3[4], s4[4], l1[4];
};

TDBG_DEVICE void Add(FloatSums& a, uint32_t k, float x, float unit, float shift) {
  const float d = fmaf(x, unit, shift), q = d * d;
  a.l1[k] += fabsf(x);
  a.s1[k] += d;
  a.s2[k] += q;
  a.s3[k] = fmaf(q, d, a.s3[k]);
  a.s4[k] = fmaf(q, q, a.s4[k]);
}

template <class Type, bool kAligned>
TDBG_DEVICE Vector16 Load(const typename Type::Word* data, uint32_t vector) {
  if constexpr (kAligned) return LoadOnce(reinterpret_cast<const Vector16*>(data) + vector);
  constexpr uint32_t kEach = Type::kPerVector / 4;
  Vector16 v;
  TDBG_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const typename Type::Word* const p = data + vector * Type::kPerVector + i * kEach;
    if constexpr (kEach == 1) {
      v.w[i] = BitsOf(static_cast<float>(p[0]));
    } else {
      v.w[i] = static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 16;
    }
  }
  return v;
}

/// A thread's part of a chunk: every 256th vector from its own on, then one element of those behind the last vector.
///
/// `rounds`: how often kUnroll of them are there for all threads. The first of those are in `v`; each is replaced by the one
/// that comes kUnroll later as soon as it was added, so that loads are always under way.
template <class Type, bool kCount, bool kAligned>
TDBG_DEVICE void AddAll(const typename Type::Word* data, uint32_t length, uint32_t rounds, Vector16* v, float unit,
                        float shift, FloatSums& a, typename Type::Extremes& e, uint32_t* table, uint32_t& zeros) {
  constexpr uint32_t V = Type::kPerVector, U = Type::kUnroll;
  const uint32_t vectors = length / V;
  const auto add = [&](const Vector16& w) {
    float x[V];
    Type::Unpack(w, x);
    e.Take(w);
    TDBG_UNROLL
    for (uint32_t k = 0; k < V; ++k) {
      Add(a, k & 3u, x[k], unit, shift);
      if constexpr (!kCount) {
        zeros += x[k] == 0 ? 1 : 0;
      } else {
        atomicAdd(&table[BitsOf(x[k]) >> 21], 1u);
      }
    }
  };
  uint32_t i = threadIdx.x;
  if constexpr (kAligned) {
    TDBG_NO_UNROLL
    for (; rounds > 1; --rounds) {
      i += U * kThreads;
      TDBG_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        add(v[u]);
        v[u] = Load<Type, true>(data, i + u * kThreads);
      }
    }
    if (rounds == 1) {
      i += U * kThreads;
      TDBG_UNROLL
      for (uint32_t u = 0; u < U; ++u) add(v[u]);
    }
  }
  TDBG_NO_UNROLL
  for (; i < vectors; i += kThreads) add(Load<Type, kAligned>(data, i));
  const uint32_t last = vectors * V + threadIdx.x;
  if (last < length) {
    e.TakeOne(data[last]);
    const float x = Type::Widen(data[last]);
    Add(a, 0, x, unit, shift);
    if constexpr (kCount) {
      atomicAdd(&table[BitsOf(x) >> 21], 1u);
    } else {
      zeros += x == 0 ? 1 : 0;
    }
  }
}

/// What threads found together.
struct Found {
  PowerSums sums;
  double min, max, abs_min;
  uint32_t nan, pos_inf, neg_inf, zero;
};

TDBG_DEVICE void AddLane(PowerSums& s, uint32_t o) {
  s.s1 += TDBG_SHUFFLE_XOR(s.s1, o);
  s.s2 += TDBG_SHUFFLE_XOR(s.s2, o);
  s.s3 += TDBG_SHUFFLE_XOR(s.s3, o);
  s.s4 += TDBG_SHUFFLE_XOR(s.s4, o);
  s.l1 += TDBG_SHUFFLE_XOR(s.l1, o);
}
TDBG_DEVICE void AddLane(Found& f, uint32_t o) {
  AddLane(f.sums, o);
  f.min = fmin(f.min, TDBG_SHUFFLE_XOR(f.min, o));
  f.max = fmax(f.max, TDBG_SHUFFLE_XOR(f.max, o));
  f.abs_min = fmin(f.abs_min, TDBG_SHUFFLE_XOR(f.abs_min, o));
  f.nan += TDBG_SHUFFLE_XOR(f.nan, o);
  f.pos_inf += TDBG_SHUFFLE_XOR(f.pos_inf, o);
  f.neg_inf += TDBG_SHUFFLE_XOR(f.neg_inf, o);
  f.zero += TDBG_SHUFFLE_XOR(f.zero, o);
}

/// All that a block's threads found, for its first warp. Everything is added in a tree over lanes, then in one over warps.
TDBG_SHARED_CODE Found Collect(const PowerSums& sums, double min, double max, double abs_min, uint32_t nan, uint32_t pos_inf,
                               uint32_t neg_inf, uint32_t zero, Scratch& s) {
  const uint32_t warp = threadIdx.x >> 5, w = threadIdx.x % kWarps;
  Found f = {sums, min, max, abs_min, nan, pos_inf, neg_inf, zero};
  TDBG_NO_UNROLL
  for (uint32_t o = 16; o > 0; o >>= 1) AddLane(f, o);
  __syncthreads();  // what lay there before has been read
  if ((threadIdx.x & 31) == 0) {
    s.sums[warp][0] = f.sums.s1;
    s.sums[warp][1] = f.sums.s2;
    s.sums[warp][2] = f.sums.s3;
    s.sums[warp][3] = f.sums.s4;
    s.sums[warp][4] = f.sums.l1;
    s.extremes[warp][0] = f.min;
    s.extremes[warp][1] = f.max;
    s.extremes[warp][2] = f.abs_min;
    s.counts[warp][0] = f.nan;
    s.counts[warp][1] = f.pos_inf;
    s.counts[warp][2] = f.neg_inf;
    s.counts[warp][3] = f.zero;
  }
  __syncthreads();
  f = {{s.sums[w][0], s.sums[w][1], s.sums[w][2], s.sums[w][3], s.sums[w][4]},
       s.extremes[w][0], s.extremes[w][1], s.extremes[w][2],
       s.counts[w][0], s.counts[w][1], s.counts[w][2], s.counts[w][3]};
  if (warp != 0) return f;
  TDBG_NO_UNROLL
  for (uint32_t o = kWarps / 2; o > 0; o >>= 1) AddLane(f, o);
  return f;
}

/// Thread 0: what the chunk came to. Then, where there are groups, whether all of its group's have been written now.
TDBG_SHARED_CODE void Write(const Work& work, const Found& f, double pivot, int exponent, uint32_t redone, Scratch& s) {
  Partial p = {};
  p.finite = work.length - f.nan - f.pos_inf - f.neg_inf;
  const Moments m = MomentsAbout(pivot, p.finite, f.sums);
  p.mean = m.mean;
  p.m2 = m.m2;
  p.m3 = m.m3;
  p.m4 = m.m4;
  p.l1 = m.l1;
  p.min = f.min;
  p.max = f.max;
  p.abs_min = f.zero != 0 ? 0 : f.abs_min;
  p.abs_max = p.finite != 0 ? fmax(fabs(f.min), fabs(f.max)) : 0;
  p.nan = f.nan;
  p.pos_inf = f.pos_inf;
  p.neg_inf = f.neg_inf;
  p.zero = f.zero;
  p.exponent = static_cast<int16_t>(exponent);
  p.redone = static_cast<uint16_t>(redone);
  p.present = 1;
  Store(work.out, p);
  if (work.group == nullptr) return;
  DeviceFence();
  s.last = atomicAdd(&work.group->arrived, 1u) == work.group_size - 1 ? 1 : 0;
  DeviceFence();
}

/// Counts a finite element that is not 0: in the block's table, where that has a place for it.
TDBG_DEVICE void CountExact(const Work& work, uint32_t* table, double x) {
  const int k = KOf(x);
  if (k >= 4 * -126 && k < 4 * 128) {
    atomicAdd(&table[(x < 0 ? 1024u : 0u) + static_cast<uint32_t>(k + 4 * 127)], 1u);
  } else {
    const Bins bins = BinsOf(work.code);
    CountGlobally(work.table, bins, bins.bin_of(x < 0, k), 1);
  }
}

/// Sums in float64 about s.pivot, in units of 2^s.exponent, whatever the elements are; then, up to twice, again about their
/// mean and in their own unit where those were far off.
TDBG_SHARED_CODE void Exact(const Work& work, Shared& shared) {
  Scratch& s = shared.s;
  TDBG_NO_UNROLL
  for (int round = 0; round < 3; ++round) {
    const double pivot = s.pivot;
    const int exponent = s.exponent;
    const double unit = exponent != 0 ? Scale(1.0, -exponent) : 1.0, scaled_pivot = Scale(pivot, -exponent);
    const bool count = round == 0 && work.table != nullptr;
    PowerSums sums = {0, 0, 0, 0, 0};
    double min = WideInfinity(), max = -WideInfinity(), abs_min = WideInfinity();
    uint32_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0;
    TDBG_NO_UNROLL
    for (uint32_t i = threadIdx.x; i < work.length; i += kThreads) {
      const double x = NumberAt<false>(work.data, work.code, i);
      if (x != x) {
        ++nan;
      } else if (!IsFinite(x)) {
        pos_inf += x > 0 ? 1 : 0;
        neg_inf += x < 0 ? 1 : 0;
      } else {
        zero += x == 0 ? 1 : 0;
        min = fmin(min, x);
        max = fmax(max, x);
        abs_min = fmin(abs_min, fabs(x));
        const double y = x * unit, d = y - scaled_pivot, q = d * d;
        sums.s1 += d;
        sums.s2 += q;
        sums.s3 += q * d;
        sums.s4 += q * q;
        sums.l1 += fabs(y);
        if (count && x != 0) CountExact(work, shared.table, x);
      }
    }
    const Found f = Collect(sums, min, max, abs_min, nan, pos_inf, neg_inf, zero, s);
    if (threadIdx.x == 0) {
      s.again = 0;
      const double n = work.length - f.nan - f.pos_inf - f.neg_inf;
      const double largest = n > 0 ? fmax(fabs(f.min), fabs(f.max)) : 0;
      // Beyond these fourth powers, or sums of them, leave the range of a double.
      const int reach = largest > 0 ? ExponentOf(largest) : 0;
      const bool off = largest > 0 && (reach - exponent > 240 || reach - exponent < -240);
      if (round < 2 && n > 0 && (off || PivotIsFar(f.sums.s1, f.sums.s2, n, 0x1p20))) {
        const double mean = Scale(scaled_pivot + f.sums.s1 / n, exponent);
        s.pivot = IsFinite(mean) ? Clamp(mean, f.min, f.max) : f.min;
        s.exponent = UnitFor(largest);
        s.again = 1;
      } else {
        Write(work, f, scaled_pivot, exponent, 0, s);
      }
    }
    __syncthreads();
    if (s.again == 0) return;
  }
}

/// Counts a float if it is subnormal.
TDBG_DEVICE void CountSubnormal(uint32_t* table, float x) {
  if ((BitsOf(x) & 0x7fffffffu) - 1 >= kFirstNormal - 1) return;
  const auto k = static_cast<uint32_t>(KOf(static_cast<double>(x)) + 4 * 149);
  atomicAdd(&table[kSlots + (BitsOf(x) >> 31) * kSubnormalsOfASign + k], 1u);
}

/// Sums in float64 about s.pivot, vector by vector; then, up to twice, again about their mean where that was far off. What a
/// fast pass has counted is right already, but for subnormals, which lie in the bins of zero.
template <class Type>
TDBG_SHARED_CODE void ExactFloats(const Work& work, Shared& shared) {
  constexpr uint32_t V = Type::kPerVector, U = Type::kUnroll;
  Scratch& s = shared.s;
  const auto* data = reinterpret_cast<const typename Type::Word*>(work.data);
  const bool aligned = (reinterpret_cast<uintptr_t>(work.data) & 15u) == 0;
  const uint32_t vectors = work.length / V;
  TDBG_NO_UNROLL
  for (int round = 0; round < 3; ++round) {
    const double pivot = s.pivot;
    PowerSums sums = {0, 0, 0, 0, 0};
    float min = Infinity(), max = -Infinity();
    uint32_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, small = 0xffffffffu;  // the last: least |x| that is not 0, less 1
    const auto add = [&](float x) {
      const uint32_t magnitude = BitsOf(x) & 0x7fffffffu;
      if (magnitude >= 0x7f800000u) {
        nan += magnitude > 0x7f800000u ? 1 : 0;
        pos_inf += BitsOf(x) == 0x7f800000u ? 1 : 0;
        neg_inf += BitsOf(x) == 0xff800000u ? 1 : 0;
        return;
      }
      zero += magnitude == 0 ? 1 : 0;
      min = fminf(min, x);
      max = fmaxf(max, x);
      small = magnitude - 1 < small ? magnitude - 1 : small;
      const double y = x, d = y - pivot, q = d * d;
      sums.s1 += d;
      sums.s2 += q;
      sums.s3 = fma(q, d, sums.s3);
      sums.s4 = fma(q, q, sums.s4);
      sums.l1 += fabs(y);
    };
    const auto add_all = [&](const Vector16& v) {
      float x[V];
      Type::Unpack(v, x);
      TDBG_UNROLL
      for (uint32_t k = 0; k < V; ++k) add(x[k]);
    };
    uint32_t i = threadIdx.x;
    if (aligned) {
      TDBG_NO_UNROLL
      for (; i + (U - 1) * kThreads < vectors; i += U * kThreads) {
        Vector16 v[U];
        TDBG_UNROLL
        for (uint32_t u = 0; u < U; ++u) v[u] = Load<Type, true>(data, i + u * kThreads);
        TDBG_UNROLL
        for (uint32_t u = 0; u < U; ++u) add_all(v[u]);
      }
    }
    TDBG_NO_UNROLL
    for (; i < vectors; i += kThreads) add_all(Load<Type, false>(data, i));
    const uint32_t last = vectors * V + threadIdx.x;
    if (last < work.length) add(Type::Widen(data[last]));
    if (small < kFirstNormal - 1 && round == 0 && work.table != nullptr) {
      TDBG_NO_UNROLL
      for (i = threadIdx.x; i < vectors; i += kThreads) {
        TDBG_NO_UNROLL
        for (uint32_t k = 0; k < V; ++k) CountSubnormal(shared.table, Type::Widen(data[i * V + k]));
      }
      if (last < work.length) CountSubnormal(shared.table, Type::Widen(data[last]));
    }
    const double abs_min = small == 0xffffffffu ? WideInfinity() : static_cast<double>(FloatOf(small + 1));
    const Found f = Collect(sums, min, max, abs_min, nan, pos_inf, neg_inf, zero, s);
    if (threadIdx.x == 0) {
      s.again = 0;
      const double n = work.length - f.nan - f.pos_inf - f.neg_inf;
      if (round < 2 && n > 0 && PivotIsFar(f.sums.s1, f.sums.s2, n, 0x1p20)) {
        s.pivot = Clamp(pivot + f.sums.s1 / n, f.min, f.max);  // a double holds fourth powers of every float
        s.again = 1;
      } else {
        Write(work, f, pivot, 0, 1, s);
      }
    }
    __syncthreads();
    if (s.again == 0) return;
  }
}

/// What threads of a fast pass found together.
struct FloatFound {
  PowerSums sums;
  float min, max;
  uint32_t small, zeros;  ///< FloatExtremes::small; zeros where there is no histogram
};

TDBG_DEVICE void AddLane(FloatFound& f, uint32_t o) {
  AddLane(f.sums, o);
  f.min = fminf(f.min, TDBG_SHUFFLE_XOR(f.min, o));
  f.max = fmaxf(f.max, TDBG_SHUFFLE_XOR(f.max, o));
  const uint32_t other = TDBG_SHUFFLE_XOR(f.small, o);
  f.small = other < f.small ? other : f.small;
  f.zeros += TDBG_SHUFFLE_XOR(f.zeros, o);
}

/// A fast pass: puts what a warp found where FloatFinish looks for it.
TDBG_SHARED_CODE void FloatCollect(FloatFound f, Scratch& s) {
  const uint32_t warp = threadIdx.x >> 5;
  TDBG_NO_UNROLL
  for (uint32_t o = 16; o > 0; o >>= 1) AddLane(f, o);
  if ((threadIdx.x & 31) != 0) return;
  s.sums[warp][0] = f.sums.s1;
  s.sums[warp][1] = f.sums.s2;
  s.sums[warp][2] = f.sums.s3;
  s.sums[warp][3] = f.sums.s4;
  s.sums[warp][4] = f.sums.l1;
  s.extremes[warp][0] = f.min;
  s.extremes[warp][1] = f.max;
  s.counts[warp][0] = f.small;
  s.counts[warp][1] = f.zeros;
}

/// A fast pass' end, by the first warp: whether what was found is right, in s.again, and if so writes it. `count`: there are
/// bins.
TDBG_SHARED_CODE void FloatFinish(const Work& work, bool count, float pivot, int exponent, Shared& shared) {
  Scratch& s = shared.s;
  const uint32_t lane = threadIdx.x, w = lane % kWarps;
  FloatFound all = {{s.sums[w][0], s.sums[w][1], s.sums[w][2], s.sums[w][3], s.sums[w][4]},
                    static_cast<float>(s.extremes[w][0]), static_cast<float>(s.extremes[w][1]), s.counts[w][0], s.counts[w][1]};
  TDBG_NO_UNROLL
  for (uint32_t o = kWarps / 2; o > 0; o >>= 1) AddLane(all, o);
  const uint32_t small = all.small;
  Found f = {all.sums, all.min, all.max, 0, 0, 0, 0, all.zeros};
  bool odd = small != 0xffffffffu && small + 1 > 0x7f800000u;  // of a NaN alone
  f.abs_min = small == 0xffffffffu ? WideInfinity() : static_cast<double>(FloatOf(small + 1));
  if (count) {
    const uint32_t i = lane < 4 ? lane : 1020 + lane;  // of exponent 0: 0 to 3 and 1024 to 1027
    f.zero = WarpSum(lane < 8 ? shared.table[i] : 0);
    const uint32_t j = lane < 4 ? 1020 + lane : 2040 + lane;  // of infinities and NaN: 1020 to 1023 and 2044 to 2047
    odd |= Ballot(lane < 8 && shared.table[lane < 8 ? j : 0] != 0) != 0;
    odd |= f.abs_min < 0x1p-126;  // a subnormal: in the bins of zero
  }
  if (lane != 0) return;
  const double back = PowerOfTwo(exponent), n = work.length;
  const double largest = fmax(fabs(f.min), fabs(f.max));
  // A sum of |x| has no unit; sums of the others have one that is near the largest |x|, if the sample was like the rest.
  const bool in_range = largest == 0 || (largest > 0x1p-100 && largest < 0x1p100 && largest < 0x1p20 * back &&
                                         largest > 0x1p-20 * back);
  odd |= !in_range || !IsFinite(f.sums.s4) || !IsFinite(f.sums.l1) || PivotIsFar(f.sums.s1, f.sums.s2, n, 16);
  s.again = odd ? 1 : 0;
  if (odd) {
    const double mean = pivot + f.sums.s1 / n * back;
    if (IsFinite(mean) && f.min <= f.max && IsFinite(f.min) && IsFinite(f.max)) s.pivot = Clamp(mean, f.min, f.max);
  } else {
    const double b2 = back * back;
    f.sums.s1 *= back;
    f.sums.s2 *= b2;
    f.sums.s3 *= b2 * back;
    f.sums.s4 *= b2 * b2;
    Write(work, f, pivot, 0, 0, s);
  }
}

template <class Type, bool kCount>
TDBG_DEVICE void FloatChunk(const Work& work, Shared& shared) {
  constexpr uint32_t U = Type::kUnroll;
  static_assert(kChunk % (Type::kPerVector * U * kThreads) == 0);
  Scratch& s = shared.s;
  const auto* data = reinterpret_cast<const typename Type::Word*>(work.data);
  // Loads are under way while the sample is taken.
  const bool aligned = (reinterpret_cast<uintptr_t>(work.data) & 15u) == 0;
  const uint32_t rounds = aligned ? work.length / (Type::kPerVector * U * kThreads) : 0;
  Vector16 v[U];
  if (rounds != 0) {
    TDBG_UNROLL
    for (uint32_t u = 0; u < U; ++u) v[u] = Load<Type, true>(data, threadIdx.x + u * kThreads);
  }
  SampleFloats<Type>(data, work.length, s);
  if constexpr (kCount) Clear(shared.table, kTable);
  __syncthreads();
  const auto pivot = static_cast<float>(s.pivot);
  const int exponent = s.exponent > 100 ? 100 : s.exponent < -100 ? -100 : s.exponent;
  const float unit = FloatPowerOfTwo(-exponent), shift = -pivot * unit;

  FloatSums a = {};
  typename Type::Extremes extremes;
  uint32_t zeros = 0;
  if (aligned) {
    AddAll<Type, kCount, true>(data, work.length, rounds, v, unit, shift, a, extremes, shared.table, zeros);
  } else {
    AddAll<Type, kCount, false>(data, work.length, 0, v, unit, shift, a, extremes, shared.table, zeros);
  }
  const FloatExtremes e = extremes.Get();
  PowerSums sums = {0, 0, 0, 0, 0};
  TDBG_UNROLL
  for (int k = 0; k < 4; ++k) {
    sums.s1 += a.s1[k];
    sums.s2 += a.s2[k];
    sums.s3 += a.s3[k];
    sums.s4 += a.s4[k];
    sums.l1 += a.l1[k];
  }
  FloatCollect({sums, e.min, e.max, e.small, zeros}, s);
  __syncthreads();
  // One warp finishes while the others write what was counted.
  if (threadIdx.x < 32) {
    FloatFinish(work, kCount, pivot, exponent, shared);
  } else if constexpr (kCount) {
    FlushRows(shared.table, work.table, kNarrowBins, (threadIdx.x >> 5) - 1, kWarps - 1);
  }
  __syncthreads();
  if (s.again == 0) return;
  ExactFloats<Type>(work, shared);
  if constexpr (kCount) FlushSubnormals(shared.table, work.table);
}

// ---- Types of one byte: the chunk is its 256 counts, and everything follows from those -------------------------------

inline constexpr uint32_t kBytesUnroll = 5;  ///< vectors under way

/// Increments the counter that lies this many bytes behind the first.
TDBG_DEVICE void CountAt(uint32_t* counts, uint32_t bytes) {
  atomicAdd(reinterpret_cast<uint32_t*>(reinterpret_cast<unsigned char*>(counts) + bytes), 1u);
}

/// Counts the bytes of a vector. Threads of a warp that add 1 to the same word do so at once, and not one after the other: so
/// zeros cost no more than other values.
TDBG_DEVICE void CountVector(const Vector16& v, uint32_t* counts) {
  TDBG_UNROLL
  for (int k = 0; k < 4; ++k) {
    CountAt(counts, v.w[k] << 2 & 0x3fcu);
    CountAt(counts, v.w[k] >> 6 & 0x3fcu);
    CountAt(counts, v.w[k] >> 14 & 0x3fcu);
    CountAt(counts, v.w[k] >> 22 & 0x3fcu);
  }
}

/// Empties the counts, and counts. They do not depend on the order: what lies before the first whole vector can be anybody's.
TDBG_DEVICE void CountBytes(const Work& work, uint32_t* counts) {
  constexpr uint32_t U = kBytesUnroll;
  const auto to_vector = static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(work.data) & 15u);
  const uint32_t head = to_vector < work.length ? to_vector : work.length;
  const uint32_t vectors = (work.length - head) / 16, tail = head + vectors * 16;
  const auto* data = reinterpret_cast<const Vector16*>(work.data + head);
  uint32_t i = threadIdx.x, rounds = vectors / (U * kThreads);
  Vector16 v[U];
  if (rounds != 0) {
    TDBG_UNROLL
    for (uint32_t u = 0; u < U; ++u) v[u] = LoadOnce(data + i + u * kThreads);
  }
  Clear(counts, 256);
  __syncthreads();
  TDBG_NO_UNROLL
  for (; rounds > 1; --rounds) {
    i += U * kThreads;
    TDBG_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      CountVector(v[u], counts);
      v[u] = LoadOnce(data + i + u * kThreads);
    }
  }
  if (rounds == 1) {
    i += U * kThreads;
    TDBG_UNROLL
    for (uint32_t u = 0; u < U; ++u) CountVector(v[u], counts);
  }
  TDBG_NO_UNROLL
  for (; i < vectors; i += kThreads) CountVector(LoadOnce(data + i), counts);
  if (threadIdx.x < head) atomicAdd(&counts[work.data[threadIdx.x]], 1u);
  if (tail + threadIdx.x < work.length) atomicAdd(&counts[work.data[tail + threadIdx.x]], 1u);
}

TDBG_DEVICE void ByteChunk(const Work& work, Shared& shared) {
  Scratch& s = shared.s;
  CountBytes(work, shared.table);
  __syncthreads();
  static_assert(kThreads == 256, "a thread for each value of a byte");
  const uint32_t warp = threadIdx.x >> 5;
  const double x = ByteToFloat(work.code, threadIdx.x);
  const uint32_t n = shared.table[threadIdx.x];
  const bool finite = IsFinite(x), some = n != 0 && finite;
  const double value = some ? x : 0, weight = some ? n : 0;
  // The pivot is the mean. Of equal elements it is their value: all of this is exact.
  const double warp_sum = WarpSum(weight * value);
  const uint32_t warp_count = WarpSum(some ? n : 0u);
  if ((threadIdx.x & 31) == 0) {
    s.sums[warp][0] = warp_sum;
    s.counts[warp][0] = warp_count;
  }
  __syncthreads();
  double sum = 0;
  uint32_t all = 0;
  TDBG_UNROLL
  for (uint32_t w = 0; w < kWarps; ++w) {
    sum += s.sums[w][0];
    all += s.counts[w][0];
  }
  const double pivot = all == 0 ? 0 : sum / all, d = some ? x - pivot : 0, q = d * d;
  const PowerSums sums = {weight * d, weight * q, weight * (q * d), weight * (q * q), weight * fabs(value)};
  const double low = some ? x : WideInfinity(), high = some ? x : -WideInfinity();
  const double least = some ? fabs(x) : WideInfinity();
  const uint32_t nan = x != x ? n : 0, pos_inf = x == WideInfinity() ? n : 0, neg_inf = x == -WideInfinity() ? n : 0;
  const uint32_t zero = x == 0 ? n : 0;
  const Found f = Collect(sums, low, high, least, nan, pos_inf, neg_inf, zero, s);
  if (threadIdx.x == 0) Write(work, f, pivot, 0, 0, s);
  if (work.table != nullptr && some && x != 0) {
    CountGlobally(work.table, kNarrowBins, kNarrowBins.bin_of(x < 0, KOf(x)), n);
  }
}

// ---- Everything else: in float64 -----------------------------------------------------------------------------------

TDBG_DEVICE void DoubleChunk(const Work& work, Shared& shared) {
  Scratch& s = shared.s;
  const bool count = work.table != nullptr;
  if (count) Clear(shared.table, kSlots);
  Sample(work, s);
  if (threadIdx.x == 0) s.exponent = UnitFor(s.exponent != 0 ? Scale(1.0, s.exponent) : 1.0);
  __syncthreads();
  Exact(work, shared);
  __syncthreads();
  if (count) FlushRows(shared.table, work.table, BinsOf(work.code), threadIdx.x >> 5, kWarps);
}

// ---- A block --------------------------------------------------------------------------------------------------------

template <Family kFamily>
TDBG_DEVICE void Run(const Work& work, Shared& shared) {
  if constexpr (kFamily == Family::kFloat) {
    if (work.table != nullptr) {
      FloatChunk<Float32, true>(work, shared);
    } else {
      FloatChunk<Float32, false>(work, shared);
    }
  } else if constexpr (kFamily == Family::kHalf) {
    if (work.code == kBFloat16) {
      if (work.table != nullptr) {
        FloatChunk<BFloat16, true>(work, shared);
      } else {
        FloatChunk<BFloat16, false>(work, shared);
      }
    } else {
      if (work.table != nullptr) {
        FloatChunk<Float16, true>(work, shared);
      } else {
        FloatChunk<Float16, false>(work, shared);
      }
    }
  } else if constexpr (kFamily == Family::kByte) {
    ByteChunk(work, shared);
  } else {
    DoubleChunk(work, shared);
  }
}

template <Family kFamily>
TDBG_DEVICE void Summarize(const Pointers& pointers, const Plan& plan, const Launch& launch, Shared& shared) {
  if (launch.begins != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    const uint64_t sequence = plan.state->delivered + 1;
    auto* slot = plan.ring + (sequence - 1) % plan.slots * plan.slot_bytes;
    *static_cast<volatile uint64_t*>(&reinterpret_cast<SlotHeader*>(slot)->begun) = sequence;
    __threadfence_system();
  }
  const Chunk chunk = plan.chunks[launch.first_block + blockIdx.x];
  const Tensor& tensor = plan.tensors[chunk.tensor];
  Partial* const out = plan.partials + tensor.first_partial + chunk.index;
  const void* const data = pointers.p[chunk.tensor - launch.first_tensor];
  const uint32_t item = ItemBytes(tensor.code);
  if (data == nullptr || tensor.n == 0 || (tensor.flags & kStatistics) == 0) {
    if (threadIdx.x == 0) {
      Partial p = {};
      p.present = data != nullptr || tensor.n == 0 ? 1 : 0;
      Store(out, p);
    }
  }
  if (data == nullptr || tensor.n == 0) return;
  if ((tensor.flags & kValues) != 0 && threadIdx.x < tensor.n * item) {
    plan.values[tensor.values + threadIdx.x] = static_cast<const unsigned char*>(data)[threadIdx.x];
  }
  if ((tensor.flags & kStatistics) == 0) return;
  const uint64_t begin = static_cast<uint64_t>(chunk.index) * kChunk, rest = tensor.n - begin;
  Work work;
  work.data = static_cast<const unsigned char*>(data) + begin * item;
  work.length = rest < kChunk ? static_cast<uint32_t>(rest) : kChunk;
  work.code = tensor.code;
  work.table = (tensor.flags & kHistogram) != 0 ? plan.tables + tensor.table : nullptr;
  work.out = out;
  const uint32_t first = chunk.index / kGroup * kGroup;
  work.group = tensor.chunks > kGroup ? out - (chunk.index - first) : nullptr;
  work.group_size = tensor.chunks - first < kGroup ? tensor.chunks - first : kGroup;
  Run<kFamily>(work, shared);
  if (tensor.chunks <= kGroup) return;
  __syncthreads();  // the table has been read, and the first thread knows
  if (shared.s.last != 0) MergeGroup(work.group, work.group_size, shared.merge);
}

}  // namespace device
}  // namespace tdbg::cuda
