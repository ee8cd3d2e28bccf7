// Derived statistics of the kernels' source on the CPU, held against stats::UnitStatistics.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cuda/testing/host_plan.h"
#include "stats/summarizer_testing.h"
#include "stats/unit_statistics.h"

namespace tdbg::cuda {
namespace {

Statistic Of(const char* id) { return *Statistic::FromId(id); }

struct Shape {
  int64_t outer, units, inner;
};
// Few units and many; a warp for each (32 elements and more) or a thread; slices of both extents; nothing at
// all.
const Shape kShapes[] = {{7, 5, 1},      {1000, 3, 1},  {2, 300, 1},   {9, 4, 31}, {3, 10, 32}, {5, 17, 100},
                         {1, 1, 200000}, {70000, 1, 1}, {3, 2, 61441}, {0, 5, 3},  {4, 0, 2},   {40, 300, 7}};

template <typename T>
std::vector<T> Values(size_t n, unsigned seed) {
  std::vector<T> x(n);
  std::mt19937_64 random(seed);
  for (T& v : x) v = static_cast<T>(static_cast<int>(random() % 21) - 10);
  return x;
}

template <typename T>
void Check(const char* id, const Shape& shape, const std::vector<T>& x, double tolerance) {
  const Statistic statistic = Of(id);
  const int64_t dims[] = {shape.outer, shape.units, shape.inner};
  StatisticValue want;
  stats::UnitStatistics unit_statistics;
  ASSERT_TRUE(unit_statistics.Compute(statistic, {x.data(), Typed<T>::kType, dims, {}}, 1, &want).ok());
  const TensorSpec spec = {x.size(), Typed<T>::kType, 0};
  const DerivedSpec derived = {0, static_cast<uint64_t>(shape.outer), static_cast<uint64_t>(shape.units),
                               static_cast<uint64_t>(shape.inner), statistic};
  HostPlan plan({&spec, 1}, {&derived, 1});
  const void* const p = x.empty() ? static_cast<const void*>(&spec) : x.data();
  plan.Step({&p, 1}, 5);
  HostPlan ordered({&spec, 1}, {&derived, 1});
  ordered.Step({&p, 1}, 0);
  EXPECT_EQ(plan.Bits(1), ordered.Bits(1)) << id;
  for (size_t u = 0; u < want.values.size(); ++u) {
    const std::string where = std::string(id) + " [" + std::to_string(shape.outer) + "," +
                              std::to_string(shape.units) + "," + std::to_string(shape.inner) + "] unit " +
                              std::to_string(u);
    const double got = plan.Derived(1, 0, u), wanted = want.values[u];
    if (std::isfinite(wanted)) {
      EXPECT_NEAR(got, wanted, tolerance) << where;
    } else {
      EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted))) << where << ": " << got;
    }
  }
}

TEST(CudaDeriveTest, CountsAndSumsPerUnitAreThoseOfTheHost) {
  for (const char* id : {"count_above(0)", "count_within(-3.5,2)", "sums(1)", "value_counts(-10,0,3,99)"}) {
    unsigned seed = 1;
    for (const Shape& shape : kShapes) {
      const auto n = static_cast<size_t>(shape.outer * shape.units * shape.inner);
      Check(id, shape, Values<float>(n, ++seed), 0);  // sums of small integers are exact in any order
    }
    Check(id, kShapes[5], Values<double>(8500, 3), 0);
    Check(id, kShapes[5], Values<int32_t>(8500, 4), 0);
    Check(id, kShapes[5], Values<int64_t>(8500, 5), 0);
    Check(id, kShapes[5], Values<int8_t>(8500, 6), 0);
    Check(id, kShapes[5], Values<uint16_t>(8500, 7), 0);
  }
}

TEST(CudaDeriveTest, ThresholdsAreComparedAsTheNumbersTheyAre) {
  const std::vector<float> x = {9.4999f, 9.5f, 0.1f, -0.1f, 0.0f, -0.0f};
  for (const char* id :
       {"count_above(9.4999)", "count_above(0.1)", "count_within(-0.1,0.1)", "value_counts(0,0.1)"}) {
    Check(id, {2, 3, 1}, x, 0);
  }
}

TEST(CudaDeriveTest, NonFiniteElementsAreAddedAndComparedAsIeee754Says) {
  std::vector<float> x = Normal(4000, 0, 1);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  x[1001] = std::numeric_limits<float>::infinity();
  x[2002] = -std::numeric_limits<float>::infinity();
  for (const char* id : {"sums(1)", "count_above(0)", "count_within(-1,1)"}) {
    Check(id, {4, 1000, 1}, x, 1e-12);
    Check(id, {4, 10, 100}, x, 1e-12);
  }
}

TEST(CudaDeriveTest, AnAbsentTensorsRowSaysSo) {
  const TensorSpec specs[] = {{6, DType::kFloat32, 0}, {6, DType::kFloat32, kStatistics}};
  const DerivedSpec derived[] = {{0, 2, 3, 1, Of("sums(1)")}, {1, 2, 3, 1, Of("sums(1)")}};
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  HostPlan plan(specs, derived);
  const void* const pointers[] = {nullptr, x.data()};
  plan.Step(pointers, 1);
  EXPECT_EQ(plan.Of(1, 0).flags, 0u);
  EXPECT_EQ(plan.Of(1, 1).flags, uint32_t{kPresent});
  EXPECT_EQ(plan.Derived(1, 1, 0), 5);
  EXPECT_EQ(plan.Derived(1, 1, 2), 9);
}

}  // namespace
}  // namespace tdbg::cuda
