// What several ranks of one training do that they should not.
#include <gtest/gtest.h>

#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

// Ranks that hold copies of one model, which moves at each step.
Training& Copies(Training& training, uint32_t ranks) {
  training.ranks = ranks;
  training.series["batch_fingerprint"] = 0;
  return training;
}

std::string OfBatches(uint32_t ranks, const std::function<double(int step, uint32_t rank)>& batch,
                      const char* shape = "[32, 16]") {
  Training training(AddReplicas);
  Copies(training, ranks).contexts["batch"] = std::string(R"({"shape": )") + shape + "}";
  return training.Run(60, [&](int step) {
    training.weight += 0.01;
    training.of_rank = [&, step](uint32_t rank) { training.series["batch_fingerprint"] = batch(step, rank); };
  });
}

TEST(Ranks, AllTakeTheSameBatches) {
  const auto same = [](int step, uint32_t) { return 100.0 + step; };
  EXPECT_EQ(OfBatches(2, same), "same_on_all_ranks at 9");
  EXPECT_EQ(OfBatches(3, same), "same_on_all_ranks at 9");
  EXPECT_EQ(OfBatches(1, same), "");
  EXPECT_EQ(OfBatches(2, [](int step, uint32_t rank) { return step * 2.0 + rank; }), "");
  EXPECT_EQ(OfBatches(2, [](int, uint32_t) { return 5.0; }), "") << "all data are one batch";
  EXPECT_EQ(OfBatches(3, [](int step, uint32_t rank) { return step * 2.0 + (rank == 2); }), "")
      << "two of three";
  EXPECT_EQ(OfBatches(2, [](int step, uint32_t rank) { return step % 5 == 0 ? rank : step; }), "")
      << "of small sets a batch is drawn twice now and then";
  EXPECT_EQ(OfBatches(2, same, "[1]"), "") << "a number that is annealed";
}

TEST(Ranks, ALabelTellsBatchesApartWhoseFirstInputIsTheSame) {
  Training training(AddReplicas);
  Copies(training, 2);
  EXPECT_EQ(training.Run(60,
                         [&](int step) {
                           training.weight += 0.01;
                           training.series["batch_fingerprint"] = step;
                           training.of_rank = [&](uint32_t rank) { training.series["labels/max"] = rank; };
                         }),
            "");
}

TEST(Ranks, SameBatchesOfADeviceByTheirNumbers) {
  const auto run = [](bool tokens, double loss_of_second, double mean_of_second) {
    Training training(AddReplicas);
    training.ranks = 2;
    return training.Run(60, [&](int step) {
      training.weight += 0.01;
      training.series["input/min"] = 0;
      training.series["input/max"] = 900;
      training.of_rank = [&, step](uint32_t rank) {
        training.loss = 3 - 0.01 * step + rank * loss_of_second;
        if (tokens) return;
        training.series["input/mean"] = step + rank * mean_of_second;
        training.series["input/std"] = 1 + 0.1 * step;
      };
    });
  };
  EXPECT_EQ(run(false, 0.1, 0), "same_on_all_ranks at 9") << "dropout makes losses differ";
  EXPECT_EQ(run(false, 0, 0.001), "");
  EXPECT_EQ(run(true, 0, 0), "same_on_all_ranks at 9");
  EXPECT_EQ(run(true, 0.001, 0), "") << "other tokens between the same extremes";
}

TEST(Ranks, PartsOfOneModelTakeTheSameBatchOnPurpose) {
  Training training(AddReplicas);
  Copies(training, 2);
  EXPECT_EQ(training.Run(60,
                         [&](int step) {
                           training.series["batch_fingerprint"] = step;
                           training.of_rank = [&, step](uint32_t rank) { training.weight = 1 + rank + step; };
                         }),
            "");
  EXPECT_EQ(training.Unjudged().substr(0, 36), "whether ranks take different batches");
}

TEST(Ranks, EachTrainsAModelOfItsOwn) {
  // \param meet  every so many steps their weights are averaged; \param first  how far apart they begin
  const auto run = [](uint32_t ranks, int meet, double first, double rate_of_second, int late) {
    Training training(AddReplicas);
    training.ranks = late > 0 ? 1 : ranks;
    return training.Run(300, [&](int step) {
      if (step == late) training.ranks = ranks;
      training.of_rank = [&, step](uint32_t rank) {
        const int apart = meet > 0 ? step % meet : step;
        training.weight = 4 + 0.01 * step + rank * (first + 0.001 * apart);
        training.rate = 0.01 + rank * rate_of_second;
      };
    });
  };
  EXPECT_EQ(run(2, 0, 0, 0, 0), "ranks_apart at 100");
  EXPECT_EQ(run(3, 0, 0, 0, 0), "ranks_apart at 100");
  EXPECT_EQ(run(2, 30, 0, 0, 0), "") << "local SGD";
  EXPECT_EQ(run(2, 0, 0.1, 0, 0), "") << "trainings of different seeds";
  EXPECT_EQ(run(2, 0, 0, 0.01, 0), "") << "a search for the best rate";
  EXPECT_EQ(run(2, 0, 0, 0, 50), "") << "a rank that joins when the other has trained: nothing is known";
}

TEST(Ranks, AJobThatBeganAgainIsJudgedFromItsFirstStep) {
  Training training(AddReplicas);
  training.ranks = 2;
  EXPECT_EQ(training.Run(300,
                         [&](int step) {
                           training.attempt_number = step < 60 ? 0 : 1;
                           training.of_rank = [&, step](uint32_t rank) {
                             training.weight =
                                 4 + 0.01 * step + rank * 0.001 * (step < 60 ? step : step - 60);
                           };
                         }),
            "ranks_apart at 160");
}

TEST(Ranks, OneHasAnotherRate) {
  const auto run = [](uint32_t ranks, int from, int until) {
    Training training(AddReplicas);
    training.ranks = ranks;
    training.Run(60, [&](int step) {
      training.of_rank = [&, step](uint32_t rank) {
        const bool other = rank == 1 && step >= from && step < until;
        training.rate = other ? 0.02 : 0.01;
        training.weight = 4 + 0.01 * step + (rank == 1 && step > from ? 0.001 : 0);
      };
    });
    return training.found_all();
  };
  EXPECT_EQ(run(2, 30, 60), "replica_differs at 31, rates_differ at 31");
  EXPECT_EQ(run(3, 30, 60), "replica_differs at 31, rates_differ at 31");
  EXPECT_EQ(run(2, 60, 60), "");
  EXPECT_EQ(run(2, 30, 31), "replica_differs at 31") << "at one step: what follows from it is found";
}

}  // namespace
}  // namespace tdbg::rules::profile
