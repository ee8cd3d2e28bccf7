// Facts of the loss's graph, and of what a model is given beside its first input.
#include <gtest/gtest.h>

#include <string>

#include "rules/profile/testing.h"

namespace tdbg::rules::profile {
namespace {

std::string Seen(const char* fact, const char* told, int every = 1) {
  Training training(AddLossGraph, DType::kFloat32, "KLDivLoss_output");
  training.contexts["loss_graph"] = std::string("{\"") + fact + "\": " + told + "}";
  return training.Run(
      10, [&](int step) { training.series[std::string("loss_graph/") + fact] = step % every == 0; });
}

TEST(LossGraph, FactsOfThreeStepsInARow) {
  EXPECT_EQ(Seen("softmax_over_batch", R"({"function": "log_softmax", "shape": [32, 8]})"),
            "softmax_over_batch at 2");
  EXPECT_EQ(Seen("softmax_over_batch", R"({"function": "log_softmax", "shape": [32, 8]})", 2), "");
  EXPECT_EQ(Seen("softmax_of_one", R"({"function": "softmax", "shape": [32, 1]})"), "softmax_of_one at 2");
  EXPECT_EQ(Seen("not_logits", R"({"function": "kl_div", "given": "softmax"})"), "not_logits at 2");
  EXPECT_EQ(Seen("not_logits", R"({"function": "kl_div", "given": "targets above 0 with log_target"})"),
            "not_logits at 2");
  EXPECT_EQ(Seen("not_logits", R"({"function": "cross_entropy", "given": "ReLU"})"), "not_logits at 2");
  EXPECT_EQ(Seen("out_of_reach", R"({"function": "tanh", "least": -3, "most": 3, "share": 0.4})"),
            "targets_out_of_reach at 2");
  EXPECT_EQ(Seen("pairs", R"({"input": [32, 1], "result": [32, 32]})"), "loss_broadcast at 2");
  EXPECT_EQ(Seen("softmax_of_one", "7"), "") << "what another version may say";
}

TEST(LossGraph, ATermWithoutAGradient) {
  const auto run = [](const std::function<double(int)>& constant) {
    Training training(AddLossGraph);
    return training.Run(10, [&](int step) {
      training.differentiated = 2;
      training.series["loss_graph/constant"] = constant(step);
    });
  };
  EXPECT_EQ(run([](int step) { return 0.5 + 0.01 * step; }), "term_without_gradient at 4");
  EXPECT_EQ(run([](int) { return 0.5; }), "") << "a number for appearance";
  EXPECT_EQ(run([](int step) { return -0.5 - 0.01 * step; }), "") << "an entropy that is taken off";
  EXPECT_EQ(run([](int step) { return 1e-7 * step; }), "");
}

TEST(LossGraph, ALayerThatIsMadeAnewAtEachStep) {
  const auto run = [](const char* told) {
    Training training(AddLossGraph);
    training.Run(10, [&](int step) {
      if (step == 5) training.contexts["made_anew"] = told;
    });
    return training.findings();
  };
  const auto found = run(
      R"({"layers": [{"kind": "linear layer", "shape": [8, 6]}, {"kind": "convolution", "shape": [8, 6, 3, 3]}], "steps": 5})");
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].detector, "layer_made_anew");
  EXPECT_TRUE(
      found[0].text.starts_with("a linear layer with a weight of shape [8,6], one of 2, is made anew"))
      << found[0].text;
  for (const char* const other : {"7", "{}", R"({"layers": []})", R"({"layers": 7})"})
    EXPECT_TRUE(run(other).empty()) << other;
}

TEST(LossGraph, ParametersThatStandAlone) {
  const auto run = [](const char* told) {
    Training training(AddLossGraph);
    training.Run(20, [&](int step) {
      if (step == 12) training.contexts["lone_parameters"] = told;
    });
    return training.findings().empty() ? std::string() : training.findings()[0].text;
  };
  EXPECT_TRUE(
      run(R"({"where": ["Net.scales"], "parameters": 2, "shapes": [[8], [8]], "elements": 16})")
          .starts_with("2 parameters of shape [8] in Net.scales get a gradient and are in no optimizer"));
  EXPECT_TRUE(run(R"({"where": [], "parameters": 1, "shapes": [[8]], "elements": 8})")
                  .starts_with("1 parameter of shape [8] gets a gradient and is in no optimizer"));
  EXPECT_EQ(run("7"), "") << "what another version may say";
}

TEST(LossGraph, ALayerThatRunsOverTheBatch) {
  const auto run = [](const char* told, int every = 1) {
    Training training(AddLossGraph);
    training.contexts["batch_axis"] = told;
    training.Run(10, [&](int step) { training.series["batch_axis"] = step % every == 0; });
    return training.findings().empty() ? std::string() : training.findings()[0].text;
  };
  EXPECT_EQ(run(R"({"module": "Net_cell", "kind": "LSTM", "batch_first": false, "shape": [32, 24, 1]})"),
            "Net_cell (LSTM, batch_first=False) is given [32,24,1], of which the 32 are the samples of the "
            "batch: it "
            "runs from one sample to the next, and takes the 24 for samples");
  EXPECT_TRUE(
      run(R"({"module": "Net_look", "kind": "MultiheadAttention", "batch_first": true, "shape": [24, 32, 8]})")
          .find("of which the 32 are") != std::string::npos);
  EXPECT_EQ(run(R"({"module": "Net_cell", "kind": "LSTM", "batch_first": false, "shape": [32, 24, 1]})", 2),
            "")
      << "a length that is the batch's by chance";
  EXPECT_EQ(run("7"), "") << "what another version may say";
}

// A model whose first input varies, or not, and another argument from `least` to `most`.
std::string Argument(const std::function<double(int)>& least, const std::function<double(int)>& most,
                     bool varies = true, double rows = 32, const char* loss = "MSELoss_output") {
  Training training(AddLossGraph, DType::kFloat32, loss);
  return training.Run(60, [&](int step) {
    training.series["batch_size"] = rows;
    training.series["input/std"] = varies ? 1 + 0.01 * step : 1;
    training.series["argument/t/least"] = least(step);
    training.series["argument/t/most"] = most(step);
  });
}

TEST(Arguments, OneThatIsAlwaysTheSame) {
  const auto always = [](double value) { return [value](int) { return value; }; };
  EXPECT_EQ(Argument(always(0), always(0)), "input_constant at 19");
  EXPECT_EQ(Argument(always(0), always(0), true, 8), "") << "480 rows are too few";
  EXPECT_EQ(Argument(always(0), always(99)), "");
  EXPECT_EQ(Argument([](int step) { return step / 10; }, [](int step) { return step / 10; }), "")
      << "one task after the other";
  EXPECT_EQ(Argument(always(0), always(0), false), "") << "all data at once";
  EXPECT_EQ(Argument(always(0), always(0), true, 32, "Policy_output"), "");
}

}  // namespace
}  // namespace tdbg::rules::profile
