// Detectors of what a training is fed, each with a training that trips it and a twin that is well.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

void Input(Training* training, double mean, double deviation) {
  training->series["input/mean"] = mean;
  training->series["input/std"] = deviation;
  training->series["input/min"] = mean - deviation;
  training->series["input/max"] = mean + deviation;
}

void Labels(Training* training, double low, double high, double distinct, double count = 32) {
  training->series["labels/min"] = low;
  training->series["labels/max"] = high;
  training->series["labels/distinct"] = distinct;
  training->series["labels/count"] = count;
}

TEST(DataDetectors, WhoeverIsRightAtOnceBySayingYesIsShownNothingElse) {
  const auto run = [](double yes, double label) {
    Training training(AddData, DType::kFloat32, "BCEWithLogitsLoss_output");
    return training.Run(60, [&](int step) {
      Labels(&training, label, label, 1, 64);
      training.series["predictions/mean"] = step < 3 ? 0.5 : yes;
    });
  };
  EXPECT_EQ(run(0.999, 1), "labels_one_class at 9");
  EXPECT_EQ(run(0.8, 1), "") << "pairs, of which the first is the better one";
}

TEST(DataDetectors, ANaNInTheInputCountsWhereItReachesTheLoss) {
  const auto run = [](bool reaches) {
    Training training(AddData);
    return training.Run(20, [&](int step) {
      training.series["input/nan"] = step == 5;
      training.loss = step == 5 && reaches ? NAN : 1;
    });
  };
  EXPECT_EQ(run(true), "input_nonfinite at 5");
  EXPECT_EQ(run(false), "") << "a model that is made for missing values";
}

TEST(DataDetectors, InputsThatAreNotScaled) {
  const auto run = [](double size, double reaches) {
    Training training(AddData);
    training.bias_gradient = 0.1;
    training.gradient = 0.1 * reaches * std::sqrt(16.0);
    return training.Run(20, [&](int) { Input(&training, size, size / 2); });
  };
  EXPECT_EQ(run(128, 140), "input_unscaled at 2");
  EXPECT_EQ(run(128, 0.5), "") << "the model divides by 255 itself";
  EXPECT_EQ(run(1, 1), "");
  EXPECT_EQ(run(128, 1e6), "") << "scaled by the model, and the bias' gradient cancelled by a norm";
  Training without_bias(AddData);
  EXPECT_EQ(without_bias.Run(20, [&](int) { Input(&without_bias, 128, 60); }), "");
  EXPECT_NE(without_bias.Unjudged().find("whether inputs are scaled"), std::string::npos);
}

TEST(DataDetectors, InputsOfAnotherScaleThanBefore) {
  const auto run = [](double later, int looks) {
    Training training(AddData);
    return training.Run(60, [&](int step) {
      const bool shifted = step >= 30 && step < 30 + looks;
      Input(&training, 0, (shifted ? later : 1) * (1 + 0.2 * (step % 3)));
    });
  };
  EXPECT_EQ(run(25, 30), "input_shifted at 31");
  EXPECT_EQ(run(0.02, 30), "input_shifted at 31");
  EXPECT_EQ(run(4, 30), "") << "a curriculum";
  EXPECT_EQ(run(1e4, 1), "") << "one batch: of what that does others tell";
  Training sounds(AddData), noise(AddData);
  sounds.series["batch_size"] = 1;
  EXPECT_EQ(sounds.Run(60, [&](int step) { Input(&sounds, 0, step % 20 > 16 ? 0 : 1); }), "") << "silence";
  EXPECT_EQ(noise.Run(60, [&](int step) { Input(&noise, 0, step % 6 > 3 ? 16 : 1); }), "") << "of all sizes";
}

TEST(DataDetectors, OneRowForAllOfABatch) {
  Training same(AddData), seldom(AddData), policy(AddData);
  EXPECT_EQ(same.Run(20, [&](int) { same.series["input/same_rows"] = 1; }), "input_constant at 9");
  EXPECT_EQ(seldom.Run(40, [&](int step) { seldom.series["input/same_rows"] = step % 5 != 0; }), "");
  EXPECT_EQ(policy.Run(20,
                       [&](int step) {  // its loss is but a part of what is differentiated
                         policy.series["input/same_rows"] = 1;
                         policy.differentiated = 1 - 0.5 * step;
                       }),
            "");
}

TEST(DataDetectors, LabelsOfOneClass) {
  const auto run = [](int columns, double count, int seldom) {
    Training training(AddData);
    training.contexts["loss_input"] =
        R"({"function": "cross_entropy", "shape": [)" + std::to_string(columns) + "]}";
    return training.Run(40, [&](int step) {
      const bool other = step == seldom;
      Labels(&training, 3, other ? 4 : 3, other ? 2 : 1, count);
    });
  };
  EXPECT_EQ(run(16, 32, -1), "labels_one_class at 15");
  EXPECT_EQ(run(16, 128, -1), "labels_one_class at 9");
  EXPECT_EQ(run(16, 8, -1), "") << "320 labels may miss what is one in a hundred";
  EXPECT_EQ(run(16, 32, 7), "");
  EXPECT_EQ(run(4097, 32, -1), "") << "a contrastive loss: the positives' column";
  Training pictures(AddData);
  pictures.contexts["loss_input"] = R"({"function": "cross_entropy", "shape": [16]})";
  pictures.series["batch_size"] = 2;
  EXPECT_EQ(pictures.Run(40, [&](int) { Labels(&pictures, 0, 0, 1, 1e4); }), "") << "80 of them";
}

TEST(DataDetectors, LabelsOfOneOfTwoClasses) {
  const auto run = [](double label) {
    Training training(AddData, DType::kFloat32, "BCEWithLogitsLoss_output");
    return training.Run(60, [&](int) { Labels(&training, label, label, 1, 128); });
  };
  EXPECT_EQ(run(0), "labels_one_class at 39");
  EXPECT_EQ(run(1), "") << "which of a pair is the better one";
}

TEST(DataDetectors, DataThatComeSorted) {
  Training sorted(AddData), shuffled(AddData), seldom(AddData);
  EXPECT_EQ(sorted.Run(40, [&](int step) { Labels(&sorted, step / 4, step / 4, 1); }), "labels_sorted at 15");
  EXPECT_EQ(shuffled.Run(200,
                         [&](int step) {  // of small batches some are of one class by chance
                           const bool one = step % 4 == 0;
                           Labels(&shuffled, one ? step % 3 : 0, one ? step % 3 : 2, one ? 1 : 3, 8);
                         }),
            "");
  EXPECT_EQ(seldom.Run(200,
                       [&](int step) {  // fraud: most batches have none of it
                         Labels(&seldom, 0, step % 10 == 0, step % 10 == 0 ? 2 : 1);
                       }),
            "");
  Training turns(AddData, DType::kFloat32, "BCELoss_output"), drawn(AddData);
  EXPECT_EQ(turns.Run(200, [&](int step) { Labels(&turns, step % 2, step % 2, 1); }), "") << "real, made";
  Training few(AddData);
  EXPECT_EQ(few.Run(40, [&](int step) { Labels(&few, step / 2 % 8, step / 2 % 8, 1); }).substr(0, 13),
            "labels_sorted");
  EXPECT_EQ(drawn.Run(200, [&](int step) { Labels(&drawn, step * step % 7, step * step % 7, 1); }), "");
}

TEST(DataDetectors, LabelsOfABinaryCrossEntropy) {
  const auto run = [](double low, double high) {
    Training training(AddData, DType::kFloat32, "BCEWithLogitsLoss_output");
    return training.Run(20, [&](int) { Labels(&training, low, high, 2); });
  };
  EXPECT_EQ(run(-1, 1), "labels_out_of_range at 1");
  EXPECT_EQ(run(0, 255), "labels_out_of_range at 1");
  EXPECT_EQ(run(0, 1), "");
  Training seldom(AddData, DType::kFloat32, "BCEWithLogitsLoss_output");
  EXPECT_EQ(seldom.Run(40, [&](int) { Labels(&seldom, 0, 0, 1); }), "") << "1,280 labels may miss a disease";
}

TEST(DataDetectors, ProbabilitiesWhereLogitsAreWanted) {
  const auto run = [](const char* function, int every, double distinct) {
    Training training(AddData);
    training.contexts["loss_input"] = std::string(R"({"function": ")") + function + R"("})";
    return training.Run(20, [&](int step) {
      training.series["loss_input/wrong"] = step % every == 0;
      Labels(&training, 0, distinct - 1, distinct);
    });
  };
  EXPECT_EQ(run("cross_entropy", 1, 5), "not_logits at 2");
  EXPECT_EQ(run("nll_loss", 1, 5), "not_logits at 2");
  EXPECT_EQ(run("cross_entropy", 2, 5), "");
  EXPECT_EQ(run("binary_cross_entropy_with_logits", 1, 2), "not_logits at 9");
  EXPECT_EQ(run("binary_cross_entropy_with_logits", 1, 1), "")
      << "of one label logits may well be of one sign";
}

TEST(DataDetectors, BatchesOfPaddingAlone) {
  Training padding(AddData), ignored(AddData), long_tail(AddData);
  EXPECT_EQ(padding.Run(20, [&](int) { padding.series["input/padding"] = 1; }), "all_padding at 2");
  EXPECT_EQ(ignored.Run(20, [&](int) { ignored.series["labels/ignored"] = 1; }), "all_padding at 2");
  EXPECT_EQ(long_tail.Run(20, [&](int) { long_tail.series["input/padding"] = 0.97; }), "");
}

TEST(DataDetectors, RandomNumbersThatAreSetBackAtEachStep) {
  const auto run = [](const std::function<bool(int)>& back, const char* generator = "cpu",
                      const char* optimizer = "SGD") {
    Training training(AddData);
    training.contexts["optimizer/SGD"] =
        std::string(R"({"class": ")") + optimizer +
        R"(", "groups": [{"parameters": ["Net_l1.weight", "Net_norm.weight"], "options": {}}]})";
    return training.Run(20, [&](int step) {
      if (step > 0) training.series[std::string("random/") + generator] = back(step);
    });
  };
  EXPECT_EQ(run([](int) { return true; }), "same_random_numbers at 10");
  EXPECT_EQ(run([](int) { return true; }, "cuda"), "same_random_numbers at 10");
  EXPECT_EQ(run([](int step) { return step % 8 != 0; }), "") << "an evaluation with a seed of its own";
  EXPECT_EQ(run([](int) { return true; }, "cpu", "LBFGS"), "") << "a line is searched in one function";
}

TEST(DataDetectors, WhatNobodyRecordedIsSaid) {
  Training nothing(AddData), all(AddData);
  nothing.Run(3, [](int) {});
  EXPECT_NE(nothing.Unjudged().find("inputs and labels"), std::string::npos);
  all.Run(3, [&](int) {
    Input(&all, 0, 1);
    Labels(&all, 0, 3, 4);
  });
  EXPECT_EQ(all.Unjudged(), "");
  Training numbers(AddData), one(AddData);
  numbers.Run(3, [&](int) {
    Input(&numbers, 0, 1);
    numbers.series["targets/mean"] = 3;
  });
  EXPECT_EQ(numbers.Unjudged(), "");
  one.Run(3, [&](int) { Input(&one, 0, 1); });
  EXPECT_NE(one.Unjudged().find("labels (no loss function"), std::string::npos);
}

}  // namespace
}  // namespace tdbg::rules::profile
