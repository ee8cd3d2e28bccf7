// Loss rules on runs that are shorter than their intervals: healthy ones are no finding, whatever their
// length and noise, and judging while they grow says the same as judging afterwards.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/testing.h"
#include "rules/engine.h"
#include "rules/testing.h"
#include "rules/whole_series.h"

namespace tdbg::rules {
namespace {

constexpr int kRuns = 200;
constexpr const char* kLossRules[] = {"LossNotDecreasing", "Overtraining"};

// How the rule ends. \param every  live: it looks after so many steps, some of them; 0: at the end
RuleStatus Judge(const std::string& rule, const std::vector<double>& losses, int every) {
  plan::RuleConfig config;
  config.rule = rule;
  const auto engine = Engine::Create({config});
  EXPECT_TRUE(engine.ok());
  MemorySource run;
  const TensorIndex loss = run.Tensor("loss", "losses");
  for (size_t step = 0; step < losses.size(); ++step) {
    run.Step({{loss, losses[step]}});
    if (every == 0 || step % static_cast<size_t>(every) != 0) continue;
    EXPECT_TRUE((*engine)->Advance(run, 1).ok());
  }
  EXPECT_TRUE((*engine)->Finish(run, JobEnd::kCompleted, 1).ok());
  return (*engine)->statuses()[0];
}

// A loss that falls to a floor, quickly or slowly, with the noise of batches.
std::vector<double> Healthy(std::mt19937& random) {
  std::uniform_real_distribution<double> share(0, 1);
  std::normal_distribution<double> normal;
  const auto steps = static_cast<size_t>(20 + random() % 900);
  const double floor = share(random), begin = floor + 0.5 + 3 * share(random);
  const double rate = static_cast<double>(steps) * (0.02 + share(random)), noise = 0.3 * share(random);
  std::vector<double> losses;
  for (size_t i = 0; i < steps; ++i) {
    const double mean = floor + (begin - floor) * std::exp(-static_cast<double>(i) / rate);
    losses.push_back(std::abs(mean * (1 + noise * normal(random))));
  }
  return losses;
}

TEST(ShortRunsTest, HealthyLossesAreNoFindingAndFlatOnesAre) {
  std::mt19937 random(1);
  for (int i = 0; i < kRuns; ++i) {
    const std::vector<double> losses = Healthy(random);
    for (const char* rule : kLossRules) {
      const RuleStatus status = Judge(rule, losses, 0);
      EXPECT_EQ(status.state, RuleState::kNoIssuesFound) << rule << ", run " << i << ": " << status.details;
      EXPECT_GE(status.steps_judged, 1);
    }
    const std::vector<double> flat(losses.size(), losses[0]);
    EXPECT_EQ(Judge("LossNotDecreasing", flat, 0).state, RuleState::kIssuesFound) << losses.size();
    EXPECT_EQ(Judge("Overtraining", flat, 0).state, RuleState::kNoIssuesFound) << "it may have learnt all";
    const std::vector<double> backwards(losses.rbegin(), losses.rend());
    EXPECT_NE(Judge("LossNotDecreasing", backwards, 0).state, RuleState::kError);
  }
}

TEST(ShortRunsTest, ALossThatDoublesIsFoundAtAnyLength) {
  for (size_t steps = 20; steps < 1000; steps += 7) {
    std::vector<double> losses, rising;
    for (size_t i = 0; i < steps; ++i) {
      const auto at = static_cast<double>(i) / static_cast<double>(steps);
      losses.push_back(at < 0.2 ? 2 - 5 * at : 0.75 + 1.25 * at);
      rising.push_back(1 + at);
    }
    EXPECT_EQ(Judge("Overtraining", losses, 0).state, RuleState::kIssuesFound) << steps;
    EXPECT_EQ(Judge("LossNotDecreasing", rising, 0).state, RuleState::kIssuesFound) << steps;
  }
}

TEST(ShortRunsTest, LiveSaysWhatAReplaySays) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < kRuns; ++i) {
    std::vector<double> losses = Healthy(random);
    const double turn = 2 * share(random);
    for (size_t at = losses.size() / 3; at < losses.size(); ++at) losses[at] *= 1 + turn;
    for (const char* rule : kLossRules) {
      const RuleStatus replayed = Judge(rule, losses, 0);
      const RuleStatus live = Judge(rule, losses, 1 + static_cast<int>(random() % 20));
      EXPECT_EQ(live.state, replayed.state);
      EXPECT_EQ(live.details, replayed.details);
      EXPECT_EQ(live.steps_judged, replayed.steps_judged);
    }
  }
}

TEST(WholeSeriesTest, SplitsIntoEqualPartsWhateverItsLength) {
  for (const int64_t values : {2, 7, 128, 129, 1000, 4321}) {
    WholeSeries series;
    double sum = 0;
    for (int64_t i = 0; i < values; ++i) {
      series.Add(i, 2 * i, static_cast<double>(i));
      sum += static_cast<double>(i);
    }
    EXPECT_EQ(series.values(), values);
    const std::vector<Stretch> halves = series.Split(2);
    ASSERT_EQ(halves.size(), 2u);
    EXPECT_EQ(halves[0].values + halves[1].values, values);
    EXPECT_NEAR(static_cast<double>(halves[0].values), static_cast<double>(values) / 2,
                1 + static_cast<double>(values) / 64);
    EXPECT_EQ(halves[1].last_position, values - 1);
    EXPECT_EQ(halves[1].last_global_step, 2 * (values - 1));
    double mean = 0;
    for (const Stretch& half : halves) mean += half.mean * static_cast<double>(half.values);
    EXPECT_NEAR(mean, sum, 1e-9 * (sum + 1));
    // Of 0, 1, 2, ...: (n * n - 1) / 12, and n / (n - 1) of that.
    const auto n = static_cast<double>(halves[0].values);
    EXPECT_NEAR(halves[0].Variance(), n > 1 ? n * (n + 1) / 12 : 0, 1e-6 * n * n);
  }
  WholeSeries single;
  single.Add(0, 0, 1);
  EXPECT_TRUE(single.Split(2).empty());
}

}  // namespace
}  // namespace tdbg::rules
