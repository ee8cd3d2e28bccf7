#include "cuda/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "stats/buckets.h"
#include "tdbg/summary.h"

namespace tdbg::cuda {
namespace {

using ::testing::HasSubstr;

Statistic Of(const char* id) { return *Statistic::FromId(id); }

template <typename T>
std::vector<T> Constant(const Layout& l, const T* offset, size_t n) {
  std::vector<T> v(n);
  std::memcpy(v.data(), l.constants.data() + reinterpret_cast<uintptr_t>(offset), n * sizeof(T));
  return v;
}

TEST(CudaAbiTest, CodesAndSizesAreThoseOfTheElementTypes) {
  for (uint32_t code = 0; code < 32; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (!IsSummarized(code)) continue;
    EXPECT_EQ(ItemBytes(code), ItemSize(dtype)) << DTypeName(dtype);
  }
  EXPECT_EQ(kFloat8E5M2FNUZ, static_cast<uint32_t>(DType::kFloat8E5M2FNUZ));
  EXPECT_FALSE(IsSummarized(static_cast<uint32_t>(DType::kText)));
  EXPECT_FALSE(IsSummarized(0));
}

TEST(CudaAbiTest, BinsAreTheBucketsInAscendingOrder) {
  for (const Bins& bins : {kNarrowBins, kWideBins}) {
    int32_t before = -100000;
    for (uint32_t bin = 0; bin < 2 * bins.of_a_sign; ++bin) {
      const int32_t bucket = bins.bucket_of(bin);
      EXPECT_GT(bucket, before);
      before = bucket;
      const bool negative = bucket < 0;
      EXPECT_EQ(bins.bin_of(negative, (negative ? -bucket : bucket) - kBucketBias), bin);
    }
  }
  EXPECT_EQ(kWideBins.bucket_of(0), BucketOf(-std::numeric_limits<double>::max()));
  EXPECT_EQ(kWideBins.bucket_of(2 * kWideBins.of_a_sign - 1), BucketOf(std::numeric_limits<double>::max()));
  EXPECT_EQ(kWideBins.bucket_of(kWideBins.of_a_sign), BucketOf(std::numeric_limits<double>::denorm_min()));
  EXPECT_EQ(kNarrowBins.bucket_of(0), BucketOf(-std::numeric_limits<float>::max()));
  EXPECT_EQ(kNarrowBins.bucket_of(kNarrowBins.of_a_sign), BucketOf(std::numeric_limits<float>::denorm_min()));
}

TEST(CudaLayoutTest, EveryChunkOfEveryTensorIsInExactlyOneLaunchOfItsFamily) {
  std::vector<TensorSpec> specs;
  const DType types[] = {DType::kFloat32, DType::kBFloat16, DType::kInt8, DType::kFloat64, DType::kInt32};
  for (size_t i = 0; i < 2500; ++i) {
    specs.push_back(
        {i % 7 == 0 ? 3 * kChunk + i : i, types[i % 5], i % 2 == 0 ? kStatistics | kHistogram : kStatistics});
  }
  const auto layout = MakeLayout(specs, {}, 4, TypicalBuckets(specs));
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  size_t all = 0;
  for (const Tensor& t : layout->tensors) all += t.chunks;
  const auto chunks = Constant(*layout, layout->plan.chunks, all);
  std::set<std::pair<uint32_t, uint32_t>> seen;
  size_t begins = 0;
  for (const KernelLaunch& launch : layout->launches) {
    begins += launch.launch.begins;
    EXPECT_LE(launch.pointers, kPointers);
    for (uint32_t b = 0; b < launch.grid; ++b) {
      const Chunk c = chunks.at(launch.launch.first_block + b);
      EXPECT_TRUE(seen.insert({c.tensor, c.index}).second);
      EXPECT_GE(c.tensor, launch.launch.first_tensor);
      EXPECT_LT(c.tensor, launch.launch.first_tensor + launch.pointers);
      EXPECT_EQ(launch.kernel, kSummarize[static_cast<uint32_t>(FamilyOf(layout->tensors[c.tensor].code))]);
    }
  }
  EXPECT_EQ(seen.size(), all);
  EXPECT_EQ(begins, 1u);
  EXPECT_EQ(layout->launches.front().launch.begins, 1u);
}

TEST(CudaLayoutTest, PartsOfTheMemoryDoNotOverlapAndMoveTogether) {
  const TensorSpec specs[] = {{100, DType::kFloat32, kStatistics | kHistogram},
                              {1, DType::kFloat64, kValues},
                              {0, DType::kBFloat16, kStatistics},
                              {64, DType::kFloat64, kStatistics | kHistogram}};
  const DerivedSpec derived[] = {{0, 10, 10, 1, Of("sums(1)")}, {3, 1, 64, 1, Of("value_counts(0,1)")}};
  const auto layout = MakeLayout(specs, derived, 3, 100);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  const Plan p = layout->At(uint64_t{1} << 40, uint64_t{1} << 41);
  const std::vector<uintptr_t> parts = {
      reinterpret_cast<uintptr_t>(p.tensors),  reinterpret_cast<uintptr_t>(p.chunks),
      reinterpret_cast<uintptr_t>(p.derived),  reinterpret_cast<uintptr_t>(p.tiles),
      reinterpret_cast<uintptr_t>(p.partials), reinterpret_cast<uintptr_t>(p.tables),
      reinterpret_cast<uintptr_t>(p.values),   reinterpret_cast<uintptr_t>(p.parts),
      reinterpret_cast<uintptr_t>(p.state)};
  EXPECT_EQ(parts.front(), uintptr_t{1} << 40);
  for (size_t i = 1; i < parts.size(); ++i) EXPECT_GT(parts[i], parts[i - 1]);
  EXPECT_GE(reinterpret_cast<uintptr_t>(p.parts) - reinterpret_cast<uintptr_t>(p.values), 8u);
  EXPECT_EQ(layout->device_bytes, parts.back() + 256 - parts.front());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p.ring), uintptr_t{1} << 41);
  EXPECT_EQ(p.table_words, kNarrowBins.words() + kWideBins.words());
  EXPECT_EQ(p.derived_count, 3u);  // one for each value
  EXPECT_EQ(p.derived_values, 12u);
  EXPECT_EQ(layout->derived, (std::vector<uint32_t>{0, 10}));
  EXPECT_EQ(layout->ring_bytes, 3 * SlotBytes(4, 12, 16, 100));
}

TEST(CudaLayoutTest, WhatCannotBeDoneIsRefusedWithTheTensorsNumber) {
  const auto message = [](std::vector<TensorSpec> specs, std::vector<DerivedSpec> derived = {},
                          uint32_t slots = 1) {
    const auto layout = MakeLayout(specs, derived, slots, 0);
    return layout.ok() ? std::string("ok") : layout.status().ToString();
  };
  const TensorSpec fine = {6, DType::kFloat32, kStatistics};
  EXPECT_THAT(message({fine, {3, DType::kText, kStatistics}}), HasSubstr("tensor 1: no statistics of text"));
  EXPECT_THAT(message({{kMaxElements + 1, DType::kInt8, kStatistics}}), HasSubstr("4294967296 elements"));
  EXPECT_THAT(message({{3, DType::kFloat32, kHistogram}}), HasSubstr("without statistics"));
  EXPECT_THAT(message({{65, DType::kFloat32, kValues}}), HasSubstr("256 bytes"));
  EXPECT_THAT(message({fine}, {}, 0), HasSubstr("no slots"));
  EXPECT_THAT(message({fine}, {{1, 1, 6, 1, Of("sums(0)")}}), HasSubstr("no such tensor"));
  EXPECT_THAT(message({fine}, {{0, 2, 2, 1, Of("sums(0)")}}), HasSubstr("another number of elements"));
  EXPECT_THAT(message({fine}, {{0, uint64_t{1} << 63, 2, 3, Of("sums(0)")}}),
              HasSubstr("another number of elements"));
  EXPECT_EQ(message({}), "ok");
}

}  // namespace
}  // namespace tdbg::cuda
