// Settings that are out of the ordinary, each with a twin that trainings have and that is none.
#include <gtest/gtest.h>

#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

std::string Entry(const std::string& of, const std::string& setting, const std::string& value,
                  const std::string& more = {}) {
  return R"([{"of": ")" + of + R"(", "setting": ")" + setting + R"(", "value": )" + value +
         R"(, "count": 1, "where": ["Net_x"])" + more + "}]";
}

std::string Told(const std::string& of, const std::string& setting, const std::string& value) {
  Training training(AddSettings);
  training.contexts["settings"] = Entry(of, setting, value);
  return training.Run(5, [](int) {});
}

// Of an optimizer of that class, whose only group has these options.
std::string Optimizer(const std::string& kind, const std::string& options, double rate = 1e-3,
                      const std::function<void(Training*)>& more = {}) {
  Training training(AddSettings);
  training.contexts["optimizer/SGD"] = R"({"class": ")" + kind +
                                       R"(", "groups": [{"parameters": ["Net_l1.weight"], "options": )" +
                                       options + "}]}";
  training.rate = rate;
  if (more) more(&training);
  return training.Run(20, [](int) {});
}

TEST(Settings, WhatModulesHave) {
  const std::string odd = "odd_setting at 1";
  EXPECT_EQ(Told("dropout", "p", "0.95"), odd);
  EXPECT_EQ(Told("dropout", "p", "1.0"), odd);
  EXPECT_EQ(Told("dropout", "p", "0.8"), "") << "networks of the past";
  EXPECT_EQ(Told("dropout", "p", "0.0"), "");
  EXPECT_EQ(Told("drop_path", "p", "0.9"), odd);
  EXPECT_EQ(Told("drop_path", "p", "0.5"), "");
  EXPECT_EQ(Told("recurrent", "dropout", "0.9"), odd);
  EXPECT_EQ(Told("attention", "dropout", "0.9"), odd);
  EXPECT_EQ(Told("own", "attn_dropout", "0.9"), odd);
  EXPECT_EQ(Told("own", "hidden_dropout_prob", "0.1"), "");
  EXPECT_EQ(Told("batch_norm", "momentum", "0.0"), odd);
  EXPECT_EQ(Told("batch_norm", "momentum", "0.99"), odd) << "Keras' number";
  EXPECT_EQ(Told("batch_norm", "momentum", "0.1"), "");
  EXPECT_EQ(Told("batch_norm", "momentum", "0.0003"), "");
  EXPECT_EQ(Told("batch_norm", "eps", "0.8"), odd);
  EXPECT_EQ(Told("batch_norm", "eps", "0.001"), "");
  EXPECT_EQ(Told("norm", "eps", "0.1"), odd);
  EXPECT_EQ(Told("norm", "eps", "1e-12"), "");
  EXPECT_EQ(Told("norm", "elements", "1"), odd);
  EXPECT_EQ(Told("leaky_relu", "negative_slope", "1.0"), odd) << "LeakyReLU(True)";
  EXPECT_EQ(Told("leaky_relu", "negative_slope", "-0.2"), odd);
  EXPECT_EQ(Told("leaky_relu", "negative_slope", "0.3"), "");
  EXPECT_EQ(Told("elu", "alpha", "-1.0"), odd);
  EXPECT_EQ(Told("embedding", "max_norm", "1e-4"), odd);
  EXPECT_EQ(Told("embedding", "max_norm", "1.0"), "");
}

// \param share  of labels that are ones
std::string PositiveWeight(const std::string& weight, double share) {
  Training training(AddSettings, DType::kFloat32, "BCEWithLogitsLoss_output");
  const auto entry = [&](const char* setting) {
    const std::string one = Entry("binary_cross_entropy_with_logits", setting, weight);
    return one.substr(1, one.size() - 2);
  };
  training.contexts["settings"] = "[" + entry("pos_weight_least") + "," + entry("pos_weight_most") + "]";
  return training.Run(40, [&](int) { training.series["targets/mean"] = share; });
}

TEST(Settings, TheWeightOfOnesMakesUpForHowSeldomTheyAre) {
  EXPECT_EQ(PositiveWeight("0.053", 0.05), "odd_setting at 20");
  EXPECT_EQ(PositiveWeight("19.0", 0.05), "");
  EXPECT_EQ(PositiveWeight("19.0", 0.95), "odd_setting at 20");
  EXPECT_EQ(PositiveWeight("0.053", 0.95), "");
  EXPECT_EQ(PositiveWeight("0.3", 0.5), "") << "who is to be sure before saying yes";
}

TEST(Settings, WhatFunctionsAreGiven) {
  const std::string odd = "odd_setting at 1";
  EXPECT_EQ(Told("cross_entropy", "label_smoothing", "0.9"), odd);
  EXPECT_EQ(Told("cross_entropy", "label_smoothing", "0.1"), "");
  EXPECT_EQ(Told("cross_entropy", "weight_least", "-1.0"), odd);
  EXPECT_EQ(Told("cross_entropy", "weight_least", "\"nan\""), odd);
  EXPECT_EQ(Told("cross_entropy", "weight_least", "0.0"), "") << "a class that is left out";
  EXPECT_EQ(Told("nll_loss", "weight_most", "0.0"), odd);
  EXPECT_EQ(Told("binary_cross_entropy_with_logits", "pos_weight_most", "0.0"), odd);
  EXPECT_EQ(Told("binary_cross_entropy_with_logits", "pos_weight_least", "-3.0"), odd);
  EXPECT_EQ(Told("binary_cross_entropy_with_logits", "pos_weight_most", "300.0"), "");
  EXPECT_EQ(Told("clip_grad_norm_", "max_norm", "0.0"), odd);
  EXPECT_EQ(Told("clip_grad_norm_", "max_norm", "\"inf\""), "") << "who wants the norm alone";
  EXPECT_EQ(Told("clip_grad_norm_", "max_norm", "0.01"), "");
  EXPECT_EQ(Told("clip_grad_value_", "clip_value", "0.0"), odd);
  EXPECT_EQ(Told("clip_grad_value_", "clip_value", "0.01"), "");
}

TEST(Settings, EachIsToldOfOnceAndWithItsPlaces) {
  Training training(AddSettings);
  training.contexts["settings"] = R"([
    {"of": "dropout", "setting": "p", "value": 0.95, "count": 5, "where": ["Net_a", "Net_b", "Net_c", "Net_d"]},
    {"of": "batch_norm", "setting": "momentum", "value": 0.99, "count": 1, "where": ["Net_n"]}])";
  training.Run(9, [](int) {});
  EXPECT_EQ(training.found_all(), "odd_setting at 1, odd_setting at 1");
  Training broken(AddSettings);
  broken.contexts["settings"] = R"([{"of": 3, "setting": null, "value": {}}, 7])";
  EXPECT_EQ(broken.Run(5, [](int) {}), "");
}

TEST(Settings, WeightsOfClassesThatFollowHowOftenEachComes) {
  const auto run = [](const char* weights, const char* counts, int batches = 10) {
    Training training(AddSettings);
    training.contexts["settings"] =
        Entry("cross_entropy", "weight_least", "0.01", std::string(R"(, "all": )") + weights);
    training.contexts["labels"] =
        R"({"batches": )" + std::to_string(batches) + R"(, "counts": )" + counts + "}";
    return training.Run(5, [](int) {});
  };
  const char* const seldom = R"({"0": 300, "1": 90, "2": 30})";
  EXPECT_EQ(run("[0.7, 0.22, 0.08]", seldom), "odd_setting at 1");
  EXPECT_EQ(run("[1.4, 4.6, 14.0]", seldom), "") << "the inverse, as it should be";
  EXPECT_EQ(run("[1.0, 1.0, 1.0]", seldom), "");
  EXPECT_EQ(run("[0.0, 1.0, 1.0]", seldom), "");
  EXPECT_EQ(run("[0.9, 0.1]", R"({"0": 290, "1": 30})"), "odd_setting at 1");
  EXPECT_EQ(run("[0.9, 0.1]", R"({"0": 29, "1": 3})", 1), "") << "one batch";
  EXPECT_EQ(run("[2.0, 1.0, 3.0, 9.0]", R"({"0": 100, "1": 110, "2": 90, "3": 120})"), "")
      << "classes come alike, weights are of another purpose";
}

TEST(Settings, AClassThatTheLossLeavesOut) {
  const auto run = [](double ignored, double labels, double rows, bool tokens = false) {
    Training training(AddSettings);
    training.contexts["settings"] = Entry("cross_entropy", "ignore_index", "3");
    training.contexts["loss_input"] = R"({"function": "cross_entropy", "shape": [8]})";
    return training.Run(20, [&](int) {
      training.series["labels/ignored"] = ignored;
      training.series["labels/count"] = labels * (1 - ignored);
      training.series["batch_size"] = rows;
      if (!tokens) training.series["input/std"] = 1;
    });
  };
  EXPECT_EQ(run(0.125, 32, 32), "odd_setting at 10");
  EXPECT_EQ(run(0.9, 32, 32), "") << "rows without a label";
  EXPECT_EQ(run(0.125, 3200, 32), "") << "pixels of a border";
  EXPECT_EQ(run(0.125, 32, 32, true), "") << "words";
  EXPECT_EQ(run(0, 32, 32), "");
}

TEST(Settings, BetasAndMomentum) {
  const std::string odd = "odd_setting at 2";
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.999, 0.9]})"), odd);
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.9, 0.999]})"), "");
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.0, 0.9]})"), "") << "a GAN's";
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.5, 0.999]})"), "");
  EXPECT_EQ(Optimizer("AdamW", R"({"betas": [0.95, 0.95]})"), "");
  EXPECT_EQ(Optimizer("AdamW", R"({"betas": [0.98, 0.95]})"), "") << "a cycle's top";
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.9, 0.1]})"), odd);
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.1, 0.2]})"), odd);
  EXPECT_EQ(Optimizer("Adam", R"({"betas": [0.999, 0.999]})"), odd);
  EXPECT_EQ(Optimizer("Lion", R"({"betas": [0.99, 0.9]})"), "") << "one whose rule is another";
  EXPECT_EQ(Optimizer("SGD", R"({"momentum": 0.999})"), odd);
  EXPECT_EQ(Optimizer("SGD", R"({"momentum": 0.99})"), "");
  EXPECT_EQ(Optimizer("SGD", R"({"momentum": 0.9, "dampening": 1})"), odd);
  EXPECT_EQ(Optimizer("SGD", R"({"momentum": 0.9, "dampening": 0.9})"), "");
  EXPECT_EQ(Optimizer("RMSprop", R"({"alpha": 0.01})"), odd);
  EXPECT_EQ(Optimizer("RMSprop", R"({"alpha": 0.9, "eps": 1.0})"), "") << "Inception's";
  EXPECT_EQ(Optimizer("Adagrad", R"({"lr_decay": 0.9})"), odd);
  EXPECT_EQ(Optimizer("Adagrad", R"({"lr_decay": 0.0001})"), "");
  EXPECT_EQ(Optimizer("Adam", R"({"betas": "none"})"), "");
}

TEST(Settings, RatesThatNoScheduleHas) {
  EXPECT_EQ(Optimizer("Adam", "{}", 1.0), "odd_setting at 2");
  EXPECT_EQ(Optimizer("Adam", R"({"eps": 1.0})", 1.0), "") << "with that epsilon it is a small step";
  EXPECT_EQ(Optimizer("Adadelta", "{}", 1.0), "");
  EXPECT_EQ(Optimizer("Prodigy", "{}", 1.0), "");
  EXPECT_EQ(Optimizer("SGD", "{}", 1.0), "");
  EXPECT_EQ(Optimizer("SGD", "{}", -0.1), "odd_setting at 2");
  const auto pixels = [](Training* training) {
    training->contexts["optimizer/SGD"] =
        R"({"class": "Adam", "groups": [{"parameters": ["Net_norm.weight"], "options": {}}]})";
  };
  EXPECT_EQ(Optimizer("Adam", "{}", 1.0, pixels), "") << "no layer's weight";
}

TEST(Settings, AnOptimizerThatGoesUpALossThatIsToFall) {
  const auto run = [](double differentiated, const char* loss = "CrossEntropyLoss_output") {
    Training training(AddSettings, DType::kFloat32, loss);
    training.contexts["optimizer/SGD"] =
        R"({"class": "SGD", "groups": [{"parameters": ["Net_l1.weight"], "options": {"maximize": true}}]})";
    training.differentiated = differentiated;
    return training.Run(20, [](int) {});
  };
  EXPECT_EQ(run(1), "loss_sign at 9");
  EXPECT_EQ(run(-1), "") << "up the negative of the loss";
  EXPECT_EQ(run(1, "Objective_output"), "");
  Training wiring(AddWiring);
  wiring.contexts["optimizer/SGD"] =
      R"({"class": "SGD", "groups": [{"parameters": ["Net_l1.weight"], "options": {"maximize": true}}]})";
  wiring.differentiated = -1;
  EXPECT_EQ(wiring.Run(20, [](int) {}), "");
}

TEST(Settings, DecayAndEpsilonThatLeaveNothingOfTheGradients) {
  const auto gradients = [](double size) {
    return [size](Training* training) { training->gradient = size; };
  };
  // The weight's norm is 4.
  EXPECT_EQ(Optimizer("SGD", R"({"weight_decay": 0.5})", 0.01, gradients(0.1)), "decay_too_strong at 9");
  EXPECT_EQ(Optimizer("SGD", R"({"weight_decay": 0.5})", 0.01, gradients(10)), "");
  EXPECT_EQ(Optimizer("SGD", R"({"weight_decay": 0.01})", 0.01, gradients(0.001)), "") << "a fine-tuning's";
  EXPECT_EQ(Optimizer("AdamW", R"({"weight_decay": 0.5})", 0.001, gradients(0.1)), "") << "decoupled";
  EXPECT_EQ(
      Optimizer("Adam", R"({"weight_decay": 0.5, "decoupled_weight_decay": true})", 0.001, gradients(0.1)),
      "");
  EXPECT_EQ(Optimizer("Adam", R"({"eps": 0.1})", 1e-3, gradients(0.001)), "odd_setting at 9");
  EXPECT_EQ(Optimizer("Adam", R"({"eps": 0.1})", 1e-3, gradients(1)), "");
  EXPECT_EQ(Optimizer("Adam", R"({"eps": 1.0})", 0.1, gradients(0.001)), "") << "with a rate to match";
  EXPECT_EQ(Optimizer("Adam", R"({"eps": 1e-8})", 1e-3, gradients(1e-12)), "");
}

TEST(Settings, ClippingThatComesBeforeBackwardOrAfterTheUpdate) {
  // gradient_norm is that of gradients of 3, 4 and so on beside a bias' of 0.
  const auto run = [](const std::function<double(double now, double before)>& found,
                      const char* limit = "1.0") {
    Training training(AddSettings);
    training.contexts["settings"] = Entry("clip_grad_norm_", "max_norm", limit);
    double before = 0;
    return training.Run(30, [&](int step) {
      training.gradient = 3 + step % 7;
      training.series["grad_norm"] = found(training.gradient, before);
      before = training.gradient;
    });
  };
  const auto nothing = [](double, double) { return 0.0; };
  const auto late = [](double, double before) { return before; };
  EXPECT_EQ(run(nothing), "clipped_elsewhere at 9");
  EXPECT_EQ(run(late), "clipped_elsewhere at 10");
  EXPECT_EQ(run(nothing, "100.0"), "");
  EXPECT_EQ(run(late, "\"inf\""), "") << "who writes the norm down after the update";
  EXPECT_EQ(run([](double now, double) { return now / 2; }), "") << "part by part";
  EXPECT_EQ(run([](double now, double) { return now; }), "");
}

}  // namespace
}  // namespace tdbg::rules::profile
