#include "stats/counters.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "stats/buckets.h"
#include "stats/kernels.h"

namespace tdbg::stats {
namespace {

constexpr int kFloatBias = 4 * 127;
constexpr int kDoubleBias = 4 * 1023;
constexpr int kFloatSubnormalK = 4 * -149;

uint32_t BitsAt(const float* x, size_t i) {
  uint32_t bits;
  std::memcpy(&bits, x + i, sizeof bits);
  return bits;
}

uint64_t BitsAt(const double* x, size_t i) {
  uint64_t bits;
  std::memcpy(&bits, x + i, sizeof bits);
  return bits;
}

void Emit(int k, bool negative, uint64_t count, Histogram* h) {
  const int bucket = negative ? -(k + kBucketBias) : k + kBucketBias;
  h->push_back({static_cast<int16_t>(bucket), count});
}

}  // namespace

void FloatCounter::AddSubnormal(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude == 0) return;
  // Every float32 subnormal is a normal double, built here by hand: an arithmetic conversion would
  // answer 0 if the framework has set denormals-are-zero.
  const int lead = 31 - std::countl_zero(magnitude);
  const auto quarter = static_cast<int>(lead >= 2 ? magnitude >> (lead - 2) : magnitude << (2 - lead)) & 3;
  ++subnormal[bits >> 31][4 * lead + quarter];
  any_subnormal = true;
}

void CountFloats(const float* x, size_t n, bool with_subnormals, FloatCounter* counter) {
  counter->any_single = true;
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    ++counter->cells[BitsAt(x, i) >> 21][0];
    ++counter->cells[BitsAt(x, i + 1) >> 21][1];
    ++counter->cells[BitsAt(x, i + 2) >> 21][2];
    ++counter->cells[BitsAt(x, i + 3) >> 21][3];
  }
  for (; i < n; ++i) ++counter->cells[BitsAt(x, i) >> 21][0];
  if (!with_subnormals) return;
  for (i = 0; i < n; ++i) {
    const uint32_t bits = BitsAt(x, i);
    if ((bits & 0x7f800000u) == 0) counter->AddSubnormal(bits);
  }
}

void CountDoubles(const double* x, size_t n, bool with_subnormals, DoubleCounter* counter) {
  size_t i = 0;
  for (; i + 2 <= n; i += 2) {
    ++counter->cells[BitsAt(x, i) >> 50][0];
    ++counter->cells[BitsAt(x, i + 1) >> 50][1];
  }
  for (; i < n; ++i) ++counter->cells[BitsAt(x, i) >> 50][0];
  if (!with_subnormals) return;
  for (i = 0; i < n; ++i) {
    const uint64_t bits = BitsAt(x, i);
    const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
    if (magnitude == 0 || (magnitude >> 52) != 0) continue;
    ++counter->subnormal[bits >> 63][KOfMagnitude(magnitude) - kSmallestK];
    counter->any_subnormal = true;
  }
}

void PairCounter::CountPending(size_t from) {
  const uint16_t* ids = indices[current];
  size_t i = from;
  for (; i + 2 <= pending; i += 2) {
    ++tables[0][ids[i]];
    ++tables[1][ids[i + 1]];
  }
  if (i < pending) ++tables[0][ids[i]];
  pending = 0;
}

void PairCounter::FillPending(size_t n) {
  constexpr uint16_t kOutside = 0x7f7f ^ 0xf0;
  if (pending < n) std::fill(indices[current] + pending, indices[current] + n, kOutside);
  pending = std::max(pending, static_cast<uint32_t>(n));
}

uint16_t WindowBase(float abs_max, int buckets) {
  // One octave of headroom: later blocks rarely exceed the first one's largest by more, and every
  // bucket given to headroom is one taken from the small values.
  const int top = static_cast<int>(std::bit_cast<uint32_t>(abs_max) >> 21) + 4;
  return static_cast<uint16_t>(std::clamp<int>(top - buckets + 1, FloatCounter::kFirstNormal,
                                               FloatCounter::kFirstNonFinite - buckets));
}

void Fold(PairCounter* pairs, float abs_min, float abs_max, FloatCounter* counter) {
  pairs->CountPending(0);
  if (pairs->elements == 0) return;
  constexpr int kIds = PairCounter::kIds;
  constexpr int kWindow = PairCounter::kWindow;
  constexpr int kGroup = PairCounter::kGroup;
  // Ids that may have been met, by groups: places of the range, and the one of what is outside.
  const auto place = [&](float x) {
    return std::clamp(static_cast<int>(std::bit_cast<uint32_t>(x) >> 21) - pairs->base, 0, kWindow);
  };
  const int lowest = place(abs_min) / kGroup, highest = place(abs_max) / kGroup;
  int used[kIds / kGroup];
  int groups = 0;
  for (int g = 0; g < kIds / kGroup; ++g) {
    const int of_places = g % (kIds / kGroup / 2);
    if ((of_places >= lowest && of_places <= highest) || of_places == kWindow / kGroup) used[groups++] = g;
  }
  uint64_t counts[kIds] = {};
  TakePairs(pairs->tables, used, groups, counts);
  for (int id = 0; id < kIds; ++id) {
    const int of_places = id % (kIds / 2);
    if (of_places == kWindow) continue;
    counter->folded[id / (kIds / 2) * 1024 + pairs->base + of_places] += counts[id];
  }
  counter->WillFold(pairs->base, pairs->base + kWindow);
  pairs->elements = 0;
}

void TakeFloats(FloatCounter* counter, float abs_min, float abs_max, uint64_t times, Histogram* h) {
  int lo = std::max(static_cast<int>(std::bit_cast<uint32_t>(abs_min) >> 21), FloatCounter::kFirstNormal);
  int hi = static_cast<int>(std::bit_cast<uint32_t>(abs_max) >> 21);
  const bool folded = counter->folded_to != 0;
  const bool single = counter->any_single;
  if (!single) {  // a tensor's smallest magnitude is often many octaves below its window
    lo = std::max(lo, counter->folded_from);
    hi = std::min(hi, counter->folded_to - 1);
  }
  const auto take = [&](int sign, int cell) {
    uint64_t count = 0;
    if (single) {
      uint32_t* c = counter->cells[sign * 1024 + cell];
      count = uint64_t{c[0]} + c[1] + c[2] + c[3];
      if (count != 0) std::memset(c, 0, sizeof counter->cells[0]);
    }
    if (folded) count += std::exchange(counter->folded[sign * 1024 + cell], 0);
    if (count != 0) Emit(cell - kFloatBias, sign != 0, count * times, h);
  };
  const auto take_subnormal = [&](int sign, int i) {
    uint64_t& count = counter->subnormal[sign][i];
    if (count == 0) return;
    Emit(kFloatSubnormalK + i, sign != 0, count * times, h);
    count = 0;
  };
  h->clear();
  for (int cell = hi; cell >= lo; --cell) take(1, cell);
  if (counter->any_subnormal) {
    for (int i = 4 * 23; i-- > 0;) take_subnormal(1, i);
    for (int i = 0; i < 4 * 23; ++i) take_subnormal(0, i);
  }
  for (int cell = lo; cell <= hi; ++cell) take(0, cell);
  counter->folded_to = 0;
  counter->any_single = false;
  counter->any_subnormal = false;
}

void TakeDoubles(DoubleCounter* counter, double abs_min, double abs_max, uint64_t times, Histogram* h) {
  const int lo =
      std::max(static_cast<int>(std::bit_cast<uint64_t>(abs_min) >> 50), DoubleCounter::kFirstNormal);
  const int hi = static_cast<int>(std::bit_cast<uint64_t>(abs_max) >> 50);
  const auto take = [&](int sign, int cell) {
    uint32_t* c = counter->cells[sign * 8192 + cell];
    const uint64_t count = uint64_t{c[0]} + c[1];
    if (count == 0) return;
    c[0] = c[1] = 0;
    Emit(cell - kDoubleBias, sign != 0, count * times, h);
  };
  const auto take_subnormal = [&](int sign, int i) {
    uint64_t& count = counter->subnormal[sign][i];
    if (count == 0) return;
    Emit(kSmallestK + i, sign != 0, count * times, h);
    count = 0;
  };
  h->clear();
  for (int cell = hi; cell >= lo; --cell) take(1, cell);
  if (counter->any_subnormal) {
    for (int i = 4 * 52; i-- > 0;) take_subnormal(1, i);
    for (int i = 0; i < 4 * 52; ++i) take_subnormal(0, i);
  }
  for (int cell = lo; cell <= hi; ++cell) take(0, cell);
  counter->any_subnormal = false;
}

}  // namespace tdbg::stats
