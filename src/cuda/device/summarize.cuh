// One chunk of one tensor, read once: counts, extrema, power sums, bins. Always the same bits for the same elements, wherever
// they lie: which thread adds what to which sum follows from an element's index alone.
#pragma once

#include "cuda/device/block.cuh"

namespace tdbg::cuda {
namespace device {

/// Where a block's elements lie, and what is wanted of them.
struct Work {
  const unsigned char* data;  ///< of the chunk's first element
  uint32_t length;
  uint32_t code;
  uint32_t* table;  ///< of the tensor, in the device's memory; null: no histogram
  Partial* out;
};

struct Shared {
  uint32_t table[kTable];
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

/// Adds the shared table's bins to the tensor's.
TDBG_SHARED_CODE void Flush(const uint32_t* shared, uint32_t* table, const Bins& bins) {
  const uint32_t tid = threadIdx.x, lane = tid & 31;
  TDBG_NO_UNROLL
  for (uint32_t i = tid; i < 2048; i += kThreads) {
    const uint32_t exponent = i >> 2 & 255u;
    const bool normal = exponent != 0 && exponent != 255;  // the others: zeros and subnormals, infinities and NaN
    const uint32_t n = normal ? shared[SlotOf(i)] : 0;
    const int k = 4 * (static_cast<int>(exponent) - 127) + static_cast<int>(i & 3u);
    const uint32_t bin = normal ? bins.bin_of(i >= 1024, k) : 0;
    if (n != 0) atomicAdd(&table[bins.masks + bin], n);
    // The 32 bins of a warp, which are next to each other, lie in at most two groups of 32.
    const uint32_t group = bin >> 5, first = TDBG_SHUFFLE(group, 16);
    const uint32_t here = Ballot(n != 0 && group == first), below = Ballot(n != 0 && group < first);
    const uint32_t above = Ballot(n != 0 && group > first);
    if (lane == 0) {
      if (here != 0) atomicOr(&table[first >> 5], 1u << (first & 31u));
      if (below != 0) atomicOr(&table[(first - 1) >> 5], 1u << ((first - 1) & 31u));
      if (above != 0) atomicOr(&table[(first + 1) >> 5], 1u << ((first + 1) & 31u));
    }
  }
  if (tid < 2 * kSubnormalsOfASign) {
    const uint32_t n = shared[kSlots + tid];
    const bool negative = tid >= kSubnormalsOfASign;
    const int k = 4 * -149 + static_cast<int>(negative ? tid - kSubnormalsOfASign : tid);
    if (n != 0) CountGlobally(table, bins, bins.bin_of(negative, k), n);
  }
}

// ---- float32, bfloat16, float16 ------------------------------------------------------------------------------------

/// Four accumulators of each kind, of at most 60 additions each, of d = (x - pivot) / 2^exponent.
struct FloatSums {
  float s1[4], s2[4], s3[4], s4[4], l1[4];
};

template <bool kCount>
TDBG_DEVICE void Add(FloatSums& a, uint32_t k, float x, float unit, float shift, uint32_t* table, uint32_t& zeros) {
  const float d = fmaf(x, unit, shift), q = d * d;
  a.l1[k] += fabsf(x);
  a.s1[k] += d;
  a.s2[k] += q;
  a.s3[k] = fmaf(q, d, a.s3[k]);
  a.s4[k] = fmaf(q, q, a.s4[k]);
  if constexpr (kCount) {
    atomicAdd(&table[SlotOf(BitsOf(x) >> 21)], 1u);
  } else {
    zeros += x == 0 ? 1 : 0;
  }
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

template <class Type, bool kCount, bool kAligned>
TDBG_DEVICE void AddAll(const typename Type::Word* data, uint32_t length, float unit, float shift, FloatSums& a,
                        typename Type::Extremes& e, uint32_t* table, uint32_t& zeros) {
  constexpr uint32_t V = Type::kPerVector, U = kAligned ? Type::kUnroll : 1;
  const uint32_t vectors = length / V;
  const auto add = [&](const Vector16& v) {
    float x[V];
    Type::Unpack(v, x);
    e.Take(v);
    TDBG_UNROLL
    for (uint32_t k = 0; k < V; ++k) Add<kCount>(a, k & 3u, x[k], unit, shift, table, zeros);
  };
  uint32_t i = threadIdx.x;
  TDBG_NO_UNROLL
  for (; i + (U - 1) * kThreads < vectors; i += U * kThreads) {
    Vector16 v[U];
    TDBG_UNROLL
    for (uint32_t u = 0; u < U; ++u) v[u] = Load<Type, kAligned>(data, i + u * kThreads);
    TDBG_UNROLL
    for (uint32_t u = 0; u < U; ++u) add(v[u]);
  }
  TDBG_NO_UNROLL
  for (; i < vectors; i += kThreads) add(Load<Type, kAligned>(data, i));
  const uint32_t last = vectors * V + threadIdx.x;
  if (last < length) {
    e.TakeOne(data[last]);
    Add<kCount>(a, 0, Type::Widen(data[last]), unit, shift, table, zeros);
  }
}

/// What a block's threads found together: thread 0's alone.
struct Found {
  PowerSums sums;
  double min, max, abs_min;
  uint32_t nan, pos_inf, neg_inf, zero;
};

TDBG_SHARED_CODE Found Collect(const PowerSums& sums, double min, double max, double abs_min, uint32_t nan, uint32_t pos_inf,
                          uint32_t neg_inf, uint32_t zero, Scratch& s) {
  const uint32_t warp = threadIdx.x >> 5;
  const double t[5] = {sums.s1, sums.s2, sums.s3, sums.s4, sums.l1};
  const uint32_t c[4] = {nan, pos_inf, neg_inf, zero};
  const double low = WarpMin(min), high = -WarpMin(-max), least = WarpMin(abs_min);
  __syncthreads();  // what lay there before has been read
  for (int i = 0; i < 5; ++i) {
    const double w = WarpSum(t[i]);
    if ((threadIdx.x & 31) == 0) s.sums[warp][i] = w;
  }
  for (int i = 0; i < 4; ++i) {
    const uint32_t w = WarpSum(c[i]);
    if ((threadIdx.x & 31) == 0) s.counts[warp][i] = w;
  }
  if ((threadIdx.x & 31) == 0) {
    s.extremes[warp][0] = low;
    s.extremes[warp][1] = high;
    s.extremes[warp][2] = least;
  }
  __syncthreads();
  Found f = {{0, 0, 0, 0, 0}, WideInfinity(), -WideInfinity(), WideInfinity(), 0, 0, 0, 0};
  if (threadIdx.x == 0) {
    TDBG_NO_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) {
      f.sums.s1 += s.sums[w][0];
      f.sums.s2 += s.sums[w][1];
      f.sums.s3 += s.sums[w][2];
      f.sums.s4 += s.sums[w][3];
      f.sums.l1 += s.sums[w][4];
      f.min = fmin(f.min, s.extremes[w][0]);
      f.max = fmax(f.max, s.extremes[w][1]);
      f.abs_min = fmin(f.abs_min, s.extremes[w][2]);
      f.nan += s.counts[w][0];
      f.pos_inf += s.counts[w][1];
      f.neg_inf += s.counts[w][2];
      f.zero += s.counts[w][3];
    }
  }
  return f;
}

TDBG_SHARED_CODE void Write(const Found& f, uint32_t length, double pivot, int exponent, uint32_t redone, Partial* out) {
  Partial p = {};
  p.finite = length - f.nan - f.pos_inf - f.neg_inf;
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
  p.exponent = exponent;
  p.redone = redone;
  p.present = 1;
  *out = p;
}

/// Counts a finite element that is not 0: in the block's table, where that has a place for it.
///
/// After a fast pass (`redone`) only the subnormal floats are left to be counted: they lay in the bins of zero.
TDBG_DEVICE void CountExact(const Work& work, uint32_t* table, double x, uint32_t redone) {
  const int k = KOf(x);
  const bool narrow = FamilyOf(work.code) != Family::kDouble;
  if (k >= 4 * -126 && k < 4 * 128) {
    if (redone == 0) atomicAdd(&table[SlotOf((x < 0 ? 1024u : 0u) + static_cast<uint32_t>(k + 4 * 127))], 1u);
  } else if (narrow) {
    atomicAdd(&table[kSlots + (x < 0 ? kSubnormalsOfASign : 0u) + static_cast<uint32_t>(k + 4 * 149)], 1u);
  } else {
    const Bins bins = BinsOf(work.code);
    CountGlobally(work.table, bins, bins.bin_of(x < 0, k), 1);
  }
}

/// Sums in float64 about s.pivot, in units of 2^s.exponent, whatever the elements are; then, up to twice, again about their
/// mean and in their own unit where those were far off.
TDBG_SHARED_CODE void Exact(const Work& work, Shared& shared, uint32_t redone) {
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
        if (count && x != 0) CountExact(work, shared.table, x, redone);
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
        Write(f, work.length, scaled_pivot, exponent, redone, work.out);
      }
    }
    __syncthreads();
    if (s.again == 0) return;
  }
}

template <class Type, bool kCount>
TDBG_DEVICE void FloatChunk(const Work& work, Shared& shared) {
  Scratch& s = shared.s;
  const auto* data = reinterpret_cast<const typename Type::Word*>(work.data);
  if constexpr (kCount) Clear(shared.table, kTable);
  Sample(work, s);
  const auto pivot = static_cast<float>(s.pivot);
  const int exponent = s.exponent > 100 ? 100 : s.exponent < -100 ? -100 : s.exponent;
  const float unit = FloatPowerOfTwo(-exponent), shift = -pivot * unit;

  FloatSums a = {};
  typename Type::Extremes extremes;
  uint32_t zeros = 0;
  if ((reinterpret_cast<uintptr_t>(work.data) & 15u) == 0) {
    AddAll<Type, kCount, true>(data, work.length, unit, shift, a, extremes, shared.table, zeros);
  } else {
    AddAll<Type, kCount, false>(data, work.length, unit, shift, a, extremes, shared.table, zeros);
  }
  const FloatExtremes e = extremes.Get();
  PowerSums sums = {0, 0, 0, 0, 0};
  for (int k = 0; k < 4; ++k) {
    sums.s1 += a.s1[k];
    sums.s2 += a.s2[k];
    sums.s3 += a.s3[k];
    sums.s4 += a.s4[k];
    sums.l1 += a.l1[k];
  }
  const double small = e.small == 0xffffffffu ? WideInfinity() : static_cast<double>(FloatOf(e.small + 1));
  const bool odd_small = e.small != 0xffffffffu && e.small + 1 > 0x7f800000u;  // of a NaN alone
  Found f = Collect(sums, e.min, e.max, odd_small ? 0.0 : small, 0, 0, 0, zeros, s);
  if (threadIdx.x == 0) {
    bool odd = false;
    if constexpr (kCount) {
      for (uint32_t i = 0; i < 4; ++i) {
        f.zero += shared.table[SlotOf(i)] + shared.table[SlotOf(1024 + i)];
        odd |= (shared.table[SlotOf(1020 + i)] | shared.table[SlotOf(2044 + i)]) != 0;
      }
      odd |= f.abs_min < 0x1p-126;  // a subnormal: in the bins of zero
    }
    const double back = Scale(1.0, exponent), n = work.length;
    const double largest = fmax(fabs(f.min), fabs(f.max));
    // A sum of |x| has no unit; sums of the others have one that is near the largest |x|, if the sample was like the rest.
    const bool in_range = largest == 0 || (largest > 0x1p-100 && largest < 0x1p100 && largest < 0x1p20 * back &&
                                           largest > 0x1p-20 * back);
    odd |= !in_range || !IsFinite(f.sums.s4) || !IsFinite(f.sums.l1) || PivotIsFar(f.sums.s1, f.sums.s2, n, 16);
    s.again = odd ? 1 : 0;
    if (odd) {
      const double mean = pivot + f.sums.s1 / n * back;
      if (IsFinite(mean) && f.min <= f.max && IsFinite(f.min) && IsFinite(f.max)) s.pivot = Clamp(mean, f.min, f.max);
      s.exponent = 0;  // a double holds fourth powers of every float
    } else {
      const double b2 = back * back;
      f.sums.s1 *= back;
      f.sums.s2 *= b2;
      f.sums.s3 *= b2 * back;
      f.sums.s4 *= b2 * b2;
      Write(f, work.length, pivot, 0, 0, work.out);
    }
  }
  __syncthreads();
  if (s.again != 0) {
    Exact(work, shared, 1);
  }
  if constexpr (kCount) {
    __syncthreads();
    Flush(shared.table, work.table, kNarrowBins);
  }
}

// ---- Types of one byte: the chunk is its 256 counts, and everything follows from those -------------------------------

TDBG_DEVICE void CountBytes(const Work& work, uint32_t* counts) {
  // What is alike in a word is counted once: booleans, and the zeros of anything.
  const auto count = [&](uint32_t word) {
    const uint32_t first = word & 255u;
    if (word == first * 0x01010101u) {
      atomicAdd(&counts[first], 4u);
    } else {
      TDBG_UNROLL
      for (int i = 0; i < 4; ++i) atomicAdd(&counts[word >> 8 * i & 255u], 1u);
    }
  };
  // Counts do not depend on the order: what lies before the first whole vector can be anybody's.
  const auto to_vector = static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(work.data) & 15u);
  const uint32_t head = to_vector < work.length ? to_vector : work.length;
  const uint32_t vectors = (work.length - head) / 16, tail = head + vectors * 16;
  TDBG_NO_UNROLL
  for (uint32_t i = threadIdx.x; i < head; i += kThreads) atomicAdd(&counts[work.data[i]], 1u);
  const auto* v = reinterpret_cast<const Vector16*>(work.data + head);
  for (uint32_t i = threadIdx.x; i < vectors; i += kThreads) {
    const Vector16 x = LoadOnce(v + i);
    TDBG_UNROLL
    for (int k = 0; k < 4; ++k) count(x.w[k]);
  }
  TDBG_NO_UNROLL
  for (uint32_t i = tail + threadIdx.x; i < work.length; i += kThreads) atomicAdd(&counts[work.data[i]], 1u);
}

TDBG_DEVICE void ByteChunk(const Work& work, Shared& shared) {
  Scratch& s = shared.s;
  Clear(shared.table, 256);
  __syncthreads();
  CountBytes(work, shared.table);
  __syncthreads();
  static_assert(kThreads == 256, "a thread for each value of a byte");
  const double x = ByteToFloat(work.code, threadIdx.x);
  const uint32_t n = shared.table[threadIdx.x];
  const bool finite = IsFinite(x), some = n != 0 && finite;
  const double value = some ? x : 0, weight = some ? n : 0;
  PowerSums sums = {weight * value, 0, 0, 0, weight * fabs(value)};
  const double low = some ? x : WideInfinity(), high = some ? x : -WideInfinity();
  const double least = some ? fabs(x) : WideInfinity();
  const uint32_t nan = x != x ? n : 0, pos_inf = x == WideInfinity() ? n : 0, neg_inf = x == -WideInfinity() ? n : 0;
  const uint32_t zero = x == 0 ? n : 0;
  const Found first = Collect(sums, low, high, least, nan, pos_inf, neg_inf, zero, s);
  if (threadIdx.x == 0) {
    const uint32_t all = work.length - first.nan - first.pos_inf - first.neg_inf;
    s.pivot = all == 0 ? 0 : Clamp(first.sums.s1 / all, first.min, first.max);
  }
  __syncthreads();
  const double pivot = s.pivot, d = some ? x - pivot : 0, q = d * d;
  sums.s1 = weight * d;
  sums.s2 = weight * q;
  sums.s3 = weight * (q * d);
  sums.s4 = weight * (q * q);
  const Found f = Collect(sums, low, high, least, nan, pos_inf, neg_inf, zero, s);
  if (threadIdx.x == 0) Write(f, work.length, pivot, 0, 0, work.out);
  if (work.table != nullptr && some && x != 0) {
    CountGlobally(work.table, kNarrowBins, kNarrowBins.bin_of(x < 0, KOf(x)), n);
  }
}

// ---- Everything else: in float64 -----------------------------------------------------------------------------------

TDBG_DEVICE void DoubleChunk(const Work& work, Shared& shared) {
  Scratch& s = shared.s;
  const bool count = work.table != nullptr;
  if (count) Clear(shared.table, kTable);
  Sample(work, s);
  if (threadIdx.x == 0) s.exponent = UnitFor(s.exponent != 0 ? Scale(1.0, s.exponent) : 1.0);
  __syncthreads();
  Exact(work, shared, 0);
  __syncthreads();
  if (count) Flush(shared.table, work.table, BinsOf(work.code));
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
      *out = p;
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
  Run<kFamily>(work, shared);
}

}  // namespace device
}  // namespace tdbg::cuda
