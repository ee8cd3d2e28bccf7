// What a script does to weights beside its optimizer, again and again.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

// \param weight  its norm at a step
std::string Weights(int steps, const std::function<double(int)>& weight) {
  Training training(AddPutBack);
  return training.Run(steps, [&](int step) { training.weight = weight(step); });
}

TEST(PutBack, ToOneAndTheSameStateAgainAndAgain) {
  const auto grown = [](int step) { return 4 + 0.01 * step; };
  EXPECT_EQ(Weights(300, [&](int step) { return grown(step % 40); }), "weights_put_back at 120");
  EXPECT_EQ(Weights(300, grown), "");
  EXPECT_EQ(Weights(300, [&](int step) { return grown(step < 100 ? step : step - 100); }), "")
      << "once: after a search for a learning rate";
  EXPECT_EQ(Weights(300, [&](int step) { return grown(step % 40) + 0.0013 * (step / 40); }), "")
      << "a learner of learners, whose own weights move on";
  EXPECT_EQ(Weights(300, [&](int step) { return grown(step % 5) + 0.0013 * (step / 80); }), "")
      << "and one that learns each task from the same weights, in a few steps";
  EXPECT_EQ(Weights(300, [&](int step) { return grown(step % 12) + 0.0013 * (step / 72); }), "")
      << "or in some more, before it moves on";
  EXPECT_EQ(Weights(300, [](int) { return 4.0; }), "") << "a rate of zero";
  EXPECT_EQ(Weights(300, [](int step) { return step % 2 == 0 ? 4.0 : 4.1; }), "")
      << "an update that goes there and back";
}

TEST(PutBack, AnAttemptBeginsWithOldWeights) {
  Training training(AddPutBack);
  EXPECT_EQ(training.Run(300,
                         [&](int step) {
                           training.weight = 4 + 0.01 * (step % 40);
                           training.attempt_number = step / 40;
                         }),
            "");
}

// \param zeros  of 256 elements, at a step
std::string Zeros(const std::function<uint64_t(int)>& zeros) {
  Training training(AddPutBack);
  return training.Run(200, [&](int step) {
    training.weight = 4 + 0.01 * step;
    training.weight_zeros = zeros(step);
  });
}

TEST(PutBack, RoundedAtEachSave) {
  EXPECT_EQ(Zeros([](int step) { return step % 20 == 19 ? 90 : 0; }), "weights_rounded at 60");
  EXPECT_EQ(Zeros([](int step) { return step < 50 ? 0 : 90; }), "") << "cut out";
  EXPECT_EQ(Zeros([](int step) { return step % 20 == 19 ? 90
                                        : step % 20 < 5 ? 60
                                                        : 0; }), "")
      << "cut out, and grown back";
  EXPECT_EQ(Zeros([](int step) { return step % 2 == 0 ? 3 : 0; }), "");
}

}  // namespace
}  // namespace tdbg::rules::profile
