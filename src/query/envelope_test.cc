#include "query/envelope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace tdbg::query {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rows of pixels that a line through the points covers in each column of pixels.
std::set<std::pair<int, int>> Pixels(const std::vector<int64_t>& steps, const std::vector<double>& values,
                                     int64_t first, int64_t last, int columns, double low, double high) {
  std::set<std::pair<int, int>> lit;
  const auto x_of = [&](int64_t step) {
    return static_cast<int>(static_cast<double>(step - first) / static_cast<double>(last - first + 1) *
                            columns);
  };
  const auto y_of = [&](double value) { return static_cast<int>((value - low) / (high - low + 1e-12) * 50); };
  for (size_t i = 0; i < steps.size(); ++i) {
    lit.insert({x_of(steps[i]), y_of(values[i])});
    if (i == 0 || x_of(steps[i]) != x_of(steps[i - 1])) continue;
    for (int y = std::min(y_of(values[i - 1]), y_of(values[i]));
         y <= std::max(y_of(values[i - 1]), y_of(values[i])); ++y)
      lit.insert({x_of(steps[i]), y});
  }
  return lit;
}

TEST(EnvelopeTest, CoversThePixelsOfTheWholeLine) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<int64_t> steps;
    std::vector<double> values;
    int64_t step = static_cast<int64_t>(random() % 1000);
    const size_t points = 1 + random() % 3000;
    for (size_t i = 0; i < points; ++i) {
      step += 1 + static_cast<int64_t>(random() % (round % 5 + 1));
      steps.push_back(step);
      values.push_back(std::sin(static_cast<double>(i) * 0.05) + static_cast<double>(random() % 1000) * 1e-3);
    }
    const int columns = 1 + static_cast<int>(random() % 200);
    const Envelope envelope = EnvelopeOf(steps, values, static_cast<size_t>(columns));
    EXPECT_EQ(envelope.points, points);
    EXPECT_LE(envelope.steps.size(), static_cast<size_t>(columns) * 4);
    EXPECT_TRUE(std::ranges::is_sorted(envelope.steps));
    const auto [low, high] = std::ranges::minmax(values);
    EXPECT_EQ(Pixels(envelope.steps, envelope.values, steps.front(), steps.back(), columns, low, high),
              Pixels(steps, values, steps.front(), steps.back(), columns, low, high));
  }
}

TEST(EnvelopeTest, NothingThatIsNotFiniteIsThinnedAway) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  for (int64_t step = 0; step < 100'000; ++step) {
    steps.push_back(step);
    values.push_back(step == 77'777 ? kNaN : step == 77'778 ? -kInfinity : step == 77'779 ? kInfinity : 1.0);
  }
  const Envelope envelope = EnvelopeOf(steps, values, 3);
  EXPECT_EQ(envelope.nonfinite_steps, (std::vector<int64_t>{77'777, 77'778, 77'779}));
  EXPECT_TRUE(std::isnan(envelope.nonfinite_values[0]));
  EXPECT_EQ(envelope.nonfinite_values[1], -kInfinity);
  for (const double value : envelope.values) EXPECT_EQ(value, 1.0);
}

TEST(EnvelopeTest, OfNothingAndOfOnePoint) {
  EXPECT_TRUE(EnvelopeOf({}, {}, 10).steps.empty());
  const std::vector<int64_t> step{5};
  const std::vector<double> value{2};
  EXPECT_EQ(EnvelopeOf(step, value, 0).steps, step);
  const std::vector<double> nan{kNaN};
  EXPECT_TRUE(EnvelopeOf(step, nan, 10).steps.empty());
  EXPECT_EQ(EnvelopeOf(step, nan, 10).nonfinite_steps, step);
}

}  // namespace
}  // namespace tdbg::query
