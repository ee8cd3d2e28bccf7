// The kernels' own source on the CPU, held against stats and its definition (stats/summarizer_testing.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/testing/host_plan.h"
#include "stats/summarizer_testing.h"
#include "tensor/widen.h"

namespace tdbg::cuda {
namespace {

// Memory of some element type, and what its elements mean.
struct Memory {
  DType dtype = DType::kFloat32;
  std::vector<std::byte> bytes;
  std::vector<double> numbers;

  uint64_t size() const { return numbers.size(); }
  TensorSpec spec(uint32_t flags = kStatistics | kHistogram) const { return {size(), dtype, flags}; }
};

double NumberOf(DType dtype, const std::byte* at) {
  const auto as = [&](auto x) {
    std::memcpy(&x, at, sizeof x);
    return x;
  };
  switch (dtype) {
    case DType::kFloat32:
      return as(float());
    case DType::kBFloat16:
      return BFloat16ToFloat(as(uint16_t()));
    case DType::kFloat16:
      return HalfToFloat(as(uint16_t()));
    case DType::kFloat64:
      return as(double());
    case DType::kBool:
      return as(uint8_t()) != 0;
    case DType::kUInt8:
      return as(uint8_t());
    case DType::kInt8:
      return as(int8_t());
    case DType::kUInt16:
      return as(uint16_t());
    case DType::kInt16:
      return as(int16_t());
    case DType::kUInt32:
      return as(uint32_t());
    case DType::kInt32:
      return as(int32_t());
    case DType::kUInt64:
      return static_cast<double>(as(uint64_t()));
    case DType::kInt64:
      return static_cast<double>(as(int64_t()));
    case DType::kComplex64: {
      float parts[2];
      std::memcpy(parts, at, sizeof parts);
      if (std::isinf(parts[0]) || std::isinf(parts[1])) return kInf;
      return std::sqrt(double{parts[0]} * parts[0] + double{parts[1]} * parts[1]);
    }
    case DType::kComplex128: {
      double parts[2];
      std::memcpy(parts, at, sizeof parts);
      return std::hypot(parts[0], parts[1]);
    }
    default:
      return Float8ToFloat(dtype, as(uint8_t()));
  }
}

Memory OfBytes(DType dtype, std::vector<std::byte> bytes) {
  Memory m = {dtype, std::move(bytes), {}};
  for (size_t i = 0; i + ItemSize(dtype) <= m.bytes.size(); i += ItemSize(dtype)) {
    m.numbers.push_back(NumberOf(dtype, m.bytes.data() + i));
  }
  return m;
}

// Rounded to the type as its hardware would not: bits cut off. What the elements mean is read back.
Memory Of(DType dtype, const std::vector<double>& x) {
  std::vector<std::byte> bytes(x.size() * ItemSize(dtype));
  for (size_t i = 0; i < x.size(); ++i) {
    std::byte* const to = bytes.data() + i * ItemSize(dtype);
    const auto put = [&](auto v) { std::memcpy(to, &v, sizeof v); };
    const auto f = static_cast<float>(x[i]);
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    switch (dtype) {
      case DType::kFloat32:
        put(f);
        break;
      case DType::kBFloat16:
        put(static_cast<uint16_t>(bits >> 16 | (std::isnan(f) ? 0x40u : 0u)));
        break;
      case DType::kFloat16: {
        const int e = static_cast<int>(bits >> 23 & 255) - 127 + 15;
        uint32_t h = e <= 0 ? 0 : e >= 31 ? 0x7c00u : static_cast<uint32_t>(e) << 10 | (bits >> 13 & 1023u);
        if (std::isnan(f)) h = 0x7e00;
        put(static_cast<uint16_t>(h | bits >> 31 << 15));
        break;
      }
      case DType::kFloat64:
        put(x[i]);
        break;
      default:
        ADD_FAILURE() << "no such type here";
    }
  }
  return OfBytes(dtype, std::move(bytes));
}

double UnitOf(DType dtype) {
  return FamilyOf(static_cast<uint32_t>(dtype)) == Family::kDouble ? kDoubleUnit : kFloatUnit;
}

Arrived Summarized(const Memory& m, uint64_t seed = 0, uint32_t flags = kStatistics | kHistogram) {
  const TensorSpec spec = m.spec(flags);
  HostPlan plan({&spec, 1});
  const void* const p = m.bytes.empty() ? static_cast<const void*>(&spec) : m.bytes.data();
  plan.Step({&p, 1}, seed);
  EXPECT_TRUE(plan.TablesAreEmpty());
  EXPECT_EQ(plan.Header(1).sequence, 1u);
  EXPECT_EQ(plan.Header(1).begun, 1u);
  return plan.Of(1, 0);
}

// With and without the histogram: the definition's counts, extrema and buckets, moments within the bounds.
void Check(const Memory& m, const std::string& where) {
  const Expected want = Define(m.numbers);
  const std::string what = where + " " + std::string(DTypeName(m.dtype)) + " n=" + std::to_string(m.size());
  const Arrived with = Summarized(m), without = Summarized(m, 3, kStatistics);
  EXPECT_EQ(with.flags, uint32_t{kPresent}) << what;
  ExpectWithinBounds(with.summary, want.s, UnitOf(m.dtype), what + " with");
  ExpectWithinBounds(without.summary, want.s, UnitOf(m.dtype), what + " without");
  EXPECT_EQ(with.histogram, want.h) << what;
  EXPECT_TRUE(without.histogram.empty()) << what;
}

std::vector<double> Wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

const DType kFloats[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};

TEST(CudaSummarizeTest, SizesAroundVectorsAndChunks) {
  for (const DType dtype : kFloats) {
    for (const size_t n : {1, 2, 3, 7, 8, 9, 255, 256, 257, 1000, 61439, 61440, 61441, 130000}) {
      Check(Of(dtype, Wide(Normal(n, 0.3, 0.02, static_cast<unsigned>(n)))), "normal");
    }
  }
}

TEST(CudaSummarizeTest, ValuesThatAreDifficult) {
  for (const DType dtype : kFloats) {
    const auto check = [&](std::vector<double> x, const std::string& what) { Check(Of(dtype, x), what); };
    check(std::vector<double>(70000, 0.0), "zeros");
    check(std::vector<double>(70000, -0.125), "constant");
    check(std::vector<double>(5000, kNaN), "NaN everywhere");
    check(std::vector<double>(5000, -kInf), "infinities");
    auto x = Wide(Normal(70000, 0, 1e-3));
    x[5] = kNaN, x[61445] = kInf, x[100] = -kInf, x[101] = 0, x[102] = -0.0;
    check(x, "a few that are not finite");
    x = Wide(Normal(70000, 0, 1e-6));
    for (size_t i = 0; i < x.size(); i += 997) x[i] *= 1e4;
    check(x, "heavy tails");
    x = Wide(Normal(70000, 100, 1e-2));
    check(x, "a mean far from 0");
    x.assign(70000, 1.0);
    x[0] = 3e4;
    check(x, "an outlier that is sampled");
    x.assign(70000, 0.0);
    x[1] = 1e-5, x[3] = -1e-5;
    check(x, "nearly all zeros");
  }
  Check(Of(DType::kFloat32, Wide(AnyFinite(70000))), "all magnitudes");
  Check(Of(DType::kBFloat16, Wide(AnyFinite(70000))), "all magnitudes");
  std::vector<double> small;
  for (int i = 0; i < 3000; ++i) small.push_back(std::ldexp(i % 2 == 0 ? 1.0 : -1.75, -149 + i % 30));
  small.push_back(0);
  Check(Of(DType::kFloat32, small), "subnormals");
  Check(Of(DType::kBFloat16, small), "subnormals");
  for (double& v : small) v *= 0x1p-910;
  Check(Of(DType::kFloat64, small), "subnormal doubles");
  for (double& v : small) v *= 0x1p+1020, v *= 0x1p+1020;
  Check(Of(DType::kFloat64, small), "huge doubles");
}

// Rules ask for variance == 0.
TEST(CudaSummarizeTest, AConstantTensorHasExactlyItsValueAndNoVariance) {
  for (const DType dtype : kFloats) {
    const Memory m = Of(dtype, std::vector<double>(kChunk + 4321, -0.1));
    const Summary s = Summarized(m).summary;
    EXPECT_EQ(s.mean, m.numbers[0]) << DTypeName(dtype);
    EXPECT_EQ(s.variance, 0) << DTypeName(dtype);
    EXPECT_EQ(s.m3, 0) << DTypeName(dtype);
    EXPECT_EQ(s.m4, 0) << DTypeName(dtype);
  }
}

TEST(CudaSummarizeTest, DoublesOfUnlikeMagnitudesInUnlikeChunks) {
  std::vector<double> x(2 * kChunk);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = (i < kChunk ? 0x1p-700 : 0x1p600) * static_cast<double>(i % 17 + 1);
  Check(Of(DType::kFloat64, x), "two levels");
  std::reverse(x.begin(), x.end());
  Check(Of(DType::kFloat64, x), "two levels");
}

TEST(CudaSummarizeTest, EveryTypeOfEveryBitPattern) {
  std::mt19937_64 random(5);
  for (uint32_t code = kBool; code <= kFloat8E5M2FNUZ; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (dtype == DType::kFloat64 || dtype == DType::kComplex128)
      continue;  // their fourth powers are beyond a long double's
    for (const size_t n : {300, 62001}) {
      std::vector<std::byte> bytes(n * ItemSize(dtype));
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      Check(OfBytes(dtype, std::move(bytes)), "any bits");
    }
  }
}

TEST(CudaSummarizeTest, EmptyAbsentAndValuesAlone) {
  const float loss[3] = {0.5f, -2, kNaN};
  const int64_t step = 7;
  const TensorSpec specs[] = {{0, DType::kFloat32, kStatistics | kHistogram},
                              {3, DType::kFloat32, kStatistics | kHistogram | kValues},
                              {1, DType::kInt64, kValues},
                              {100, DType::kBFloat16, kStatistics | kHistogram}};
  HostPlan plan(specs);
  const void* const pointers[] = {nullptr, loss, &step, nullptr};
  plan.Step(pointers, 9, 1234);
  EXPECT_EQ(plan.Header(1).tag, 1234u);
  EXPECT_EQ(plan.Header(1).version, kAbiVersion);
  EXPECT_EQ(plan.Header(1).tensors, 4u);
  const Arrived empty = plan.Of(1, 0), few = plan.Of(1, 1), value = plan.Of(1, 2), absent = plan.Of(1, 3);
  EXPECT_EQ(empty.flags, uint32_t{kPresent});
  ExpectExactParts(empty.summary, Summary(), "empty");
  EXPECT_TRUE(std::isnan(empty.summary.l2));
  ExpectWithinBounds(few.summary, Define({0.5, -2, kNaN}).s, kFloatUnit, "few");
  EXPECT_EQ(std::memcmp(few.values.data(), loss, sizeof loss), 0);
  EXPECT_EQ(value.flags, uint32_t{kPresent});
  EXPECT_EQ(value.summary.count, 1u);
  EXPECT_EQ(std::memcmp(value.values.data(), &step, sizeof step), 0);
  EXPECT_EQ(absent.flags, 0u);
  EXPECT_EQ(absent.summary.count, 0u);
  EXPECT_TRUE(absent.histogram.empty());
}

// Which thread adds what follows from an element's index alone: not from the address, nor from who comes
// first.
TEST(CudaSummarizeTest, TheSameBitsAtEveryAddressAndInEveryOrder) {
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt8}) {
    const size_t item = ItemSize(dtype), n = 123457;
    Memory m = dtype == DType::kInt8 ? OfBytes(dtype, std::vector<std::byte>(n, std::byte{7}))
                                     : Of(dtype, Wide(Normal(n, 1, 2)));
    const TensorSpec spec = m.spec();
    std::vector<std::byte> bits;
    std::vector<std::byte> space(m.bytes.size() + 64);
    for (uint64_t seed = 0; seed < 6; ++seed) {
      std::byte* const at = space.data() + seed % 16 * item;
      std::memcpy(at, m.bytes.data(), m.bytes.size());
      HostPlan plan({&spec, 1});
      const void* const p = at;
      plan.Step({&p, 1}, seed);
      if (seed == 0) bits = plan.Bits(1);
      EXPECT_EQ(plan.Bits(1), bits) << DTypeName(dtype) << " in order " << seed;
    }
  }
}

TEST(CudaSummarizeTest, ATensorsBitsDoNotDependOnItsNeighbours) {
  const Memory m = Of(DType::kBFloat16, Wide(Normal(70001, 0, 1)));
  const TensorSpec alone = m.spec();
  HostPlan first({&alone, 1});
  const void* p = m.bytes.data();
  first.Step({&p, 1}, 0);
  const Arrived want = first.Of(1, 0);
  std::vector<TensorSpec> specs(kPointers + 9, TensorSpec{100, DType::kFloat32, kStatistics | kHistogram});
  const std::vector<float> other = Normal(100, 0, 1);
  std::vector<const void*> pointers(specs.size(), nullptr);
  const size_t mine = kPointers + 5;
  specs[mine] = alone;
  pointers[mine] = p;
  pointers[3] = pointers[mine + 1] = other.data();
  HostPlan plan(specs);
  plan.Step(pointers, 11);
  const Arrived got = plan.Of(1, mine);
  EXPECT_EQ(std::memcmp(&got.summary, &want.summary, sizeof want.summary), 0);
  EXPECT_EQ(got.histogram, want.histogram);
}

TEST(CudaSummarizeTest, ManyTensorsInSeveralLaunches) {
  std::vector<Memory> memory;
  std::vector<TensorSpec> specs;
  std::vector<const void*> pointers;
  for (unsigned i = 0; i < 470; ++i) {
    memory.push_back(Of(kFloats[i % 4], Wide(Normal(i % 61, 0.1 * i, 1, i))));
    specs.push_back(memory.back().spec());
  }
  for (size_t i = 0; i < memory.size(); ++i)
    pointers.push_back(i % 100 == 99 ? nullptr : memory[i].bytes.data());
  HostPlan plan(specs, {}, 2, TypicalBuckets(specs));
  plan.Step(pointers, 2);
  for (size_t i = 0; i < memory.size(); ++i) {
    const Arrived got = plan.Of(1, i);
    const bool there = i % 100 != 99 || memory[i].size() == 0;
    ASSERT_EQ(got.flags, there ? uint32_t{kPresent} : 0u) << i;
    if (!there) continue;
    const Expected want = Define(memory[i].numbers);
    ExpectWithinBounds(got.summary, want.s, UnitOf(memory[i].dtype), "tensor " + std::to_string(i));
    ASSERT_EQ(got.histogram, want.h) << i;
  }
}

TEST(CudaSummarizeTest, StepsFollowEachOtherAroundTheRing) {
  std::vector<float> x = Normal(1000, 0, 1);
  const TensorSpec spec = {x.size(), DType::kFloat32, kStatistics | kHistogram};
  HostPlan plan({&spec, 1}, {}, 3);
  const void* const p = x.data();
  for (uint64_t step = 1; step <= 8; ++step) {
    for (float& v : x) v *= 2;
    plan.Step({&p, 1}, step, 100 + step);  // the same launch again: what a graph's replay does
    const SlotHeader& h = plan.Header(step);
    EXPECT_EQ(h.sequence, step);
    EXPECT_EQ(h.begun, step);
    EXPECT_EQ(h.tag, 100 + step);
    EXPECT_EQ(plan.Of(step, 0).histogram, Define(Wide(x)).h);
  }
}

TEST(CudaSummarizeTest, ASlotThatIsWrittenAgainSaysSoBeforeItsRowsChange) {
  const std::vector<float> x = Normal(1000, 0, 1);
  const TensorSpec spec = {x.size(), DType::kFloat32, kStatistics};
  HostPlan plan({&spec, 1}, {}, 1);
  const void* const p = x.data();
  plan.Step({&p, 1}, 0);
  const auto before = plan.Bits(1);
  plan.Begin({&p, 1}, 1, 0);
  EXPECT_EQ(plan.Header(1).sequence, 1u);
  EXPECT_EQ(plan.Header(1).begun, 2u);
  EXPECT_EQ(plan.Bits(1), before);
}

TEST(CudaSummarizeTest, AStepThatWasNeverDeliveredIsForgottenAfterAReset) {
  const Memory narrow = Of(DType::kFloat32, Wide(Normal(1000, 0, 1)));
  const Memory wide = Of(DType::kFloat64, Wide(Normal(1000, 0, 1)));
  const TensorSpec specs[] = {narrow.spec(), wide.spec()};
  const void* const pointers[] = {narrow.bytes.data(), wide.bytes.data()};
  HostPlan plan(specs);
  plan.Begin(pointers, 1, 0);
  EXPECT_FALSE(plan.TablesAreEmpty());
  plan.Reset();
  EXPECT_TRUE(plan.TablesAreEmpty());
  plan.Step(pointers, 0);
  EXPECT_EQ(plan.Header(1).sequence, 1u);
  EXPECT_EQ(plan.Of(1, 0).histogram, Define(narrow.numbers).h);
  EXPECT_EQ(plan.Of(1, 1).histogram, Define(wide.numbers).h);
}

TEST(CudaSummarizeTest, BucketsWithoutRoomAreLostAloneAndSaidToBe) {
  const Memory m = Of(DType::kFloat32, Wide(Normal(5000, 0, 1)));
  const TensorSpec specs[] = {m.spec(), m.spec()};
  const void* const pointers[] = {m.bytes.data(), m.bytes.data()};
  const Expected want = Define(m.numbers);
  HostPlan plan(specs, {}, 2, static_cast<uint32_t>(want.h.size() + 3));
  plan.Step(pointers, 0);
  plan.Step(pointers, 0);
  EXPECT_EQ(plan.Header(2).buckets, 2 * want.h.size());
  EXPECT_EQ(plan.Of(2, 0).histogram, want.h);
  EXPECT_EQ(plan.Of(2, 1).flags, uint32_t{kPresent | kBucketsLost});
  EXPECT_EQ(plan.Of(2, 1).summary.abs_max, want.s.abs_max);
  EXPECT_TRUE(plan.TablesAreEmpty());
}

TEST(CudaSummarizeTest, OnlyChunksThatNeedItAreReadTwice) {
  std::vector<double> x = Wide(Normal(4 * kChunk, 0, 1));
  EXPECT_EQ(Summarized(Of(DType::kFloat32, x)).redone_chunks, 0u);
  x[kChunk + 7] = kNaN;
  x[3 * kChunk] = 1e-40;
  EXPECT_EQ(Summarized(Of(DType::kFloat32, x)).redone_chunks, 2u);
  EXPECT_EQ(Summarized(Of(DType::kFloat32, std::vector<double>(1000, 0.0))).redone_chunks, 0u);
}

// The look ahead takes every 1,920th element of a whole chunk: here they say nothing of the others.
TEST(CudaSummarizeTest, AMisleadingSampleIsNoticed) {
  std::vector<double> x = Wide(Normal(kChunk, 0, 1));
  for (size_t i = 0; i < x.size(); i += 240) x[i] = 1000;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Memory m = Of(dtype, x);
    Check(m, "misleading");
    EXPECT_EQ(Summarized(m).redone_chunks, 1u);
  }
}

// Chunks of a tensor that has more than 256 are merged in groups of as many, each by the block that comes
// last.
TEST(CudaSummarizeTest, ALargeTensorsChunksAreMergedInGroups) {
  std::vector<float> x(257 * kChunk + 5);
  const std::vector<float> some = Normal(1 << 20, 0.25, 1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = some[i % some.size()];
  x[kChunk + 1] = kNaN;
  const TensorSpec specs[] = {{x.size(), DType::kFloat32, kStatistics | kHistogram},
                              {513 * kChunk, DType::kUInt8, kStatistics}};
  const void* const pointers[] = {x.data(), x.data()};
  HostPlan plan(specs);
  plan.Step(pointers, 0);
  const std::vector<std::byte> bits = plan.Bits(1);
  const Expected want = Define({x.begin(), x.end()});
  ExpectWithinBounds(plan.Of(1, 0).summary, want.s, kFloatUnit, "float32");
  EXPECT_EQ(plan.Of(1, 0).histogram, want.h);
  EXPECT_EQ(plan.Of(1, 0).redone_chunks, 1u);
  const auto* bytes = reinterpret_cast<const unsigned char*>(x.data());
  const std::vector<double> numbers(bytes, bytes + 513 * kChunk);
  ExpectWithinBounds(plan.Of(1, 1).summary, Define(numbers).s, kDoubleUnit, "uint8");
  plan.Begin(pointers, 1, 3);  // not delivered
  plan.Reset();
  plan.Step(pointers, 7);
  EXPECT_EQ(plan.Bits(2), bits);
  const void* const gone[] = {nullptr, x.data()};
  plan.Step(gone, 1);
  EXPECT_EQ(plan.Of(3, 0).flags, 0u);
  plan.Step(pointers, 8);
  EXPECT_EQ(plan.Bits(4), bits);
}

TEST(CudaSummarizeTest, AnythingAgreesWithTheDefinition) {
  std::mt19937_64 random(17);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    const DType dtype = kFloats[below(4)];
    std::vector<double> x(below(3) == 0 ? below(150000) : below(3000));
    const double scale = std::ldexp(1.0, static_cast<int>(below(24)) - 12);
    const double offset = below(2) == 0 ? 0 : static_cast<double>(below(100)) * scale;
    std::normal_distribution<double> normal(offset, scale);
    const size_t zeros = below(4), odd = below(3) == 0 ? 1 + below(5000) : 0;
    for (double& v : x) {
      v = zeros != 0 && below(4) < zeros ? 0 : normal(random);
      if (odd != 0 && below(odd) == 0) v = below(2) == 0 ? kNaN : below(2) == 0 ? kInf : -kInf;
    }
    Check(Of(dtype, x), "round " + std::to_string(round));
  }
}

}  // namespace
}  // namespace tdbg::cuda
