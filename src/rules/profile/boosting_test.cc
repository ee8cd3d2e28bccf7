// What the profile says of trainings of boosted trees, which are made up as adaptors record them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rules/profile/catalogue.h"
#include "rules/rule.h"
#include "rules/step_context.h"
#include "trial/testing.h"

namespace tdbg::rules::profile {
namespace {

using testing::HasSubstr;

// Rounds of a training, as the whole rule sees them. Everything may be changed between two of them.
class Boosting : public StepContext {
 public:
  Boosting() {
    auto rule = BuiltinRules().Make("Profile", {});
    rule_ = *std::move(rule);
    Topic();
  }

  // "id at step" of what is found first, the end included.
  std::string Run(int rounds, const std::function<void(int)>& at) {
    for (int round = 0; round < rounds; ++round) {
      at(round);
      Round();
    }
    std::vector<Finding> findings;
    EXPECT_TRUE(rule_->AtEnd(*this, &findings).ok());
    Take(findings);
    return found_;
  }

  // The topic that says of the call: `more` is laid over it, as JSON's inside.
  void Topic(const std::string& more = "") {
    contexts["boosting"] =
        R"({"objective": "binary:logistic", "cv": false, "early_stopping": false, "stops_by": "", "weighted": false,
            "drops": false, "features": 10, "higher_is_better": {},
            "training": {"rows": 1000, "lowest": 0, "highest": 1, "mean": 0.5, "deviation": 0.5},
            "sets": {"train": {"training": true, "rows": 1000, "lowest": 0, "highest": 1, "mean": 0.5, "deviation": 0.5},
                     "eval": {"training": false, "rows": 1000, "lowest": 0, "highest": 1, "mean": 0.5, "deviation": 0.5}})" +
        (more.empty() ? "}" : ", " + more + "}");
  }

  std::map<std::string, double> metrics;
  double splits = 0, share = 0.5, rate = 0.1;
  bool trees = true;  // somebody looks at them
  std::map<std::string, std::string, std::less<>> contexts;
  std::string text;  // of the first finding
  int judged = 0;    // rounds
  const Rule& rule() const { return *rule_; }

  const StepInfo& info() const override { return info_; }
  bool statistics_incomplete() const override { return false; }
  const std::string* Context(std::string_view topic) const override {
    const auto found = contexts.find(topic);
    return found == contexts.end() ? nullptr : &found->second;
  }
  size_t tensor_count() const override { return tensors_.size(); }
  const TensorInfo& tensor(TensorIndex tensor) const override { return tensors_[tensor]; }
  const std::string& worker_name(WorkerIndex) const override { return worker_; }
  std::span<const Rows> rows() const override { return rows_; }
  std::span<const StepContext::Scalar> scalars() const override { return scalars_; }
  std::span<const WorkerIndex> raw_workers() const override { return {}; }
  Result<TensorValue> Raw(TensorIndex, WorkerIndex) const override { return NotFound("no raw values"); }
  std::vector<RawValue> RawsOf(TensorIndex) const override { return {}; }
  Result<TensorValue> Read(const RawValue&) const override { return NotFound("no raw values"); }
  std::optional<TensorIndex> StatisticOf(TensorIndex, std::string_view) const override { return {}; }
  Result<Histogram> HistogramOf(const StepContext::Row&) const override { return NotFound("none"); }

 private:
  void Round() {
    info_ = {};
    info_.global_step = info_.mode_step = step_++;
    info_.mode = ModeKey::kTrain;
    info_.wall_nanos = step_ * 1'000'000;
    batch_ = std::make_unique<MemoryBatch>();
    scalars_.clear();
    for (const auto& [name, value] : metrics) {
      Summary summary;
      summary.count = 1;
      summary.nan_count = std::isnan(value) ? 1 : 0;
      summary.variance = summary.m3 = summary.m4 = 0;
      summary.l1 = summary.l2 = summary.abs_min = summary.abs_max = std::abs(value);
      summary.mean = summary.min = summary.max = value;
      const bool loss = !name.ends_with("auc");
      batch_->Add(Index(name, loss ? std::vector<std::string>{"metrics", "losses"}
                                   : std::vector<std::string>{"metrics"}),
                  summary);
    }
    Series("context/learning_rate", rate);
    if (trees) {
      Series("context/boosting/splits", splits);
      if (splits > 0) Series("context/boosting/leading_share", share);
    }
    rows_ = {Rows(batch_->Span(tensor_of_))};
    std::vector<Finding> findings;
    const auto answer = rule_->Invoke(*this, &findings);
    ASSERT_TRUE(answer.ok());
    judged += *answer == Judged::kJudged;
    Take(findings);
  }
  void Take(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      EXPECT_NE(Find(finding.detector), nullptr) << finding.detector;
      if (found_.empty()) {
        found_ = finding.detector + " at " + std::to_string(finding.global_step);
        text = finding.text;
      }
    }
  }
  uint32_t Index(const std::string& name, std::vector<std::string> collections) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return static_cast<uint32_t>(i);
    }
    TensorInfo info;
    info.name = name;
    if (collections.front() == "metrics") info.kind = "metric";
    info.collections = std::move(collections);
    tensor_of_.push_back(static_cast<TensorIndex>(tensors_.size()));
    tensors_.push_back(std::move(info));
    return tensor_of_.back();
  }
  void Series(const std::string& name, double value) {
    StepContext::Scalar scalar;
    scalar.tensor = Index(name, {"context"});
    scalar.value = value;
    scalars_.push_back(scalar);
  }

  std::unique_ptr<Rule> rule_;
  StepInfo info_;
  int64_t step_ = 0;
  std::string found_, worker_ = "worker_0";
  std::vector<TensorInfo> tensors_;
  std::vector<TensorIndex> tensor_of_;
  std::unique_ptr<MemoryBatch> batch_;
  std::vector<Rows> rows_;
  std::vector<StepContext::Scalar> scalars_;
};

// A training that learns: to 0.2 in the training data, and outside of them to 0.3, from round `turns` on back
// up.
void Learn(Boosting* run, int round, int turns = 1000) {
  run->splits += 7;
  run->metrics["train-logloss"] = 0.2 + 0.49 * std::exp(-round / 20.0) - 0.001 * round;
  const double away = std::max(0, round - turns);
  run->metrics["eval-logloss"] = 0.3 + 0.39 * std::exp(-std::min(round, turns) / 20.0) + 0.004 * away;
}

TEST(BoostedTrees, AHealthyTrainingIsJudgedAndGetsNoFinding) {
  Boosting run;
  EXPECT_EQ(run.Run(100, [&](int round) { Learn(&run, round); }), "");
  EXPECT_EQ(run.judged, 100);
  EXPECT_EQ(run.rule().Remarks(), "") << "nothing of layers, optimizers or batches";
}

TEST(BoostedTrees, HeldOutRowsThatGetWorse) {
  Boosting run;
  EXPECT_EQ(run.Run(150, [&](int round) { Learn(&run, round, 40); }), "held_out_worsens at 64");
  EXPECT_EQ(run.text,
            "eval-logloss is 0.4488 and was best with 0.3528 in round 40; train-logloss went on from 0.2355 "
            "to 0.156 "
            "meanwhile");
  Boosting stopped;
  stopped.Topic(R"("early_stopping": true, "stops_by": "eval")");
  EXPECT_EQ(stopped.Run(150, [&](int round) { Learn(&stopped, round, 40); }), "")
      << "the library will end it";
  Boosting few;
  few.Topic(
      R"("sets": {"train": {"training": true, "rows": 1000}, "eval": {"training": false, "rows": 30}})");
  EXPECT_EQ(few.Run(80, [&](int round) { Learn(&few, round, 40); }), "")
      << "30 rows differ by as much by chance";
  Boosting dart;
  dart.Topic(R"("drops": true)");
  EXPECT_EQ(dart.Run(150, [&](int round) { Learn(&dart, round, 40); }), "");
  EXPECT_THAT(dart.rule().Remarks(), HasSubstr("DART"));
}

TEST(BoostedTrees, AnotherMetricOfHeldOutRowsThatStillImprovesIsTheModel) {
  for (const std::string name : {"eval-auc", "later-logloss"}) {
    Boosting run;
    run.Topic(
        R"("sets": {"train": {"training": true, "rows": 1000}, "eval": {"training": false, "rows": 1000},
                           "later": {"training": false, "rows": 1000}})");
    EXPECT_EQ(run.Run(150,
                      [&](int round) {
                        Learn(&run, round, 40);
                        run.metrics[name] = name.ends_with("auc") ? 0.8 + 0.001 * round : 0.6 - 0.002 * round;
                      }),
              "")
        << name;
  }
}

TEST(BoostedTrees, AMetricThatIsHigherWhenBetter) {
  const auto trained = [](double rows, double falls) {
    Boosting run;
    run.Topic(R"("sets": {"train": {"training": true, "rows": 1000}, "eval": {"training": false, "rows": )" +
              std::to_string(rows) + "}}");
    return run.Run(100, [&](int round) {
      run.splits += 7;
      run.metrics["train-auc"] = 1 - 0.3 * std::exp(-round / 20.0);
      run.metrics["eval-auc"] = round < 20 ? 0.7 + 0.01 * round : 0.9 - falls * (round - 20);
    });
  };
  EXPECT_THAT(trained(5000, 0.0012), HasSubstr("held_out_worsens"));
  EXPECT_EQ(trained(100, 0.0012), "") << "of a hundred rows 0.8 is within chance";
  EXPECT_EQ(trained(5000, -0.001), "");
}

TEST(BoostedTrees, WhatIsMeantToGetWorse) {
  const auto trained = [](const std::string& topic, const char* training, const char* held_out) {
    Boosting run;
    run.Topic(topic);
    return run.Run(150, [&](int round) {
      run.splits += 7;
      run.metrics[training] = 0.1 + 0.3 * round / 150;
      run.metrics[held_out] = 0.1 + 0.3 * round / 150;
    });
  };
  EXPECT_EQ(trained(R"("weighted": true)", "train-logloss", "eval-logloss"), "");
  EXPECT_EQ(trained(R"("weighted": true)", "train-error", "eval-error"), "");
  EXPECT_EQ(trained(R"("objective": "reg:quantileerror")", "train-rmse", "eval-rmse"), "");
  EXPECT_EQ(trained(R"("objective": "reg:quantileerror")", "eval-rmse", "eval-rmse"), "")
      << "training not evaluated";
  EXPECT_THAT(trained("", "train-logloss", "eval-logloss"), HasSubstr("training_worsens at "));
}

TEST(BoostedTrees, TreesWithoutASplit) {
  const auto flat = [](Boosting* run) {
    run->metrics["train-logloss"] = 0.693;
    run->metrics["eval-logloss"] = 0.694;
  };
  Boosting run, short_one;
  EXPECT_EQ(run.Run(30, [&](int) { flat(&run); }), "no_splits at 9");
  EXPECT_THAT(run.text, HasSubstr("first 10 rounds has a split"));
  EXPECT_EQ(short_one.Run(4, [&](int) { flat(&short_one); }), "no_splits at 3");
  Boosting later;
  EXPECT_EQ(later.Run(200,
                      [&](int round) {
                        Learn(&later, std::min(round, 60));
                        later.splits = 7 * std::min(round + 1, 60);
                      }),
            "")
      << "all is learnt: rounds without a split are no fault";
}

TEST(BoostedTrees, ARateOfNextToNothing) {
  Boosting zero, stands, low, fair;
  EXPECT_EQ(zero.Run(30,
                     [&](int) {
                       zero.rate = 1e-9;
                       zero.splits += 7;
                     }),
            "no_progress at 9");
  EXPECT_EQ(stands.Run(30,
                       [&](int round) {
                         stands.splits += 7;
                         stands.metrics["train-logloss"] = 0.693 - 1e-10 * round;
                       }),
            "no_progress at 19");
  const auto slow = [](Boosting* run, double rate) {
    return run->Run(100, [run, rate](int round) {
      run->rate = rate;
      run->splits += 7;
      run->metrics["train-logloss"] = 0.693 - 0.5 * (1 - std::exp(-rate * round));
    });
  };
  EXPECT_EQ(slow(&low, 1e-4), "no_progress at 99");
  EXPECT_EQ(slow(&fair, 1e-2), "");
  Boosting perfect;
  EXPECT_EQ(perfect.Run(30,
                        [&](int) {
                          perfect.splits += 7;
                          perfect.metrics["train-rmse"] = 0;
                        }),
            "");
}

TEST(BoostedTrees, OneFeatureThatHoldsTheLabel) {
  const auto trained = [](double share, double best, int features) {
    Boosting run;
    run.contexts["boosting_leader"] = R"({"name": "paid"})";
    run.share = share;
    run.Topic("\"features\": " + std::to_string(features));
    const std::string found = run.Run(40, [&](int round) {
      run.splits += 1;
      run.metrics["train-auc"] = 1;
      run.metrics["eval-auc"] = round < 2 ? 0.9 : best;
    });
    if (!found.empty()) {
      EXPECT_THAT(run.text, HasSubstr("paid has "));
    }
    return found;
  };
  EXPECT_EQ(trained(0.999, 1, 12), "label_leak at 2");
  EXPECT_EQ(trained(0.999, 1, 1), "") << "it is all there is";
  EXPECT_EQ(trained(0.999, 0.97, 12), "") << "a strong feature";
  EXPECT_EQ(trained(0.7, 1, 12), "") << "an easy task";
}

TEST(BoostedTrees, LabelsThatAreAllTheSame) {
  const std::string labels =
      R"("training": {"rows": 400, "lowest": 1, "highest": 1, "mean": 1, "deviation": 0})";
  Boosting run, own;
  run.Topic(labels);
  EXPECT_EQ(run.Run(5, [&](int round) { Learn(&run, round); }), "one_label at 0");
  EXPECT_THAT(run.text, HasSubstr("the label is 1 in all 400 rows"));
  own.Topic(labels + R"(, "objective": "")");
  EXPECT_EQ(own.Run(5, [&](int round) { Learn(&own, round); }), "")
      << "the script's objective has its own targets";
}

TEST(BoostedTrees, EarlyStoppingByTheTrainingData) {
  const auto trained = [](const char* by) {
    Boosting run;
    run.Topic(R"("early_stopping": true, "stops_by": ")" + std::string(by) + '"');
    return run.Run(5, [&](int round) { Learn(&run, round); });
  };
  EXPECT_EQ(trained("train"), "stops_by_training at 0");
  EXPECT_EQ(trained("eval"), "");
  EXPECT_EQ(trained(""), "");
}

TEST(BoostedTrees, HeldOutRowsThatAllGetOnePrediction) {
  Boosting run;
  EXPECT_EQ(run.Run(40,
                    [&](int round) {
                      run.splits += 7;
                      run.metrics["train-auc"] = 0.7 + 0.005 * round;
                      run.metrics["eval-auc"] = 0.5;
                    }),
            "constant_evaluation at 9");
}

TEST(BoostedTrees, WhatCannotBeJudgedIsSaid) {
  Boosting nothing;
  nothing.trees = false;
  EXPECT_EQ(nothing.Run(20, [&](int) { nothing.metrics["eval-profit"] = 3; }), "");
  EXPECT_EQ(nothing.judged, 0);
  EXPECT_THAT(nothing.rule().WouldHaveNeeded(), HasSubstr("boosted trees"));
  EXPECT_THAT(nothing.rule().Remarks(), HasSubstr("profit (which way is better is not known)"));
  Boosting told;
  told.Topic(R"("higher_is_better": {"cost": false})");
  EXPECT_EQ(told.Run(20,
                     [&](int round) {
                       told.metrics["eval-cost"] = 3 - 0.1 * round;
                       told.splits += 7;
                     }),
            "");
  EXPECT_EQ(told.rule().Remarks(), "") << "the library said which way is better";
}

TEST(BoostedTrees, WithoutTheAdaptorsWordNamesSayWhichSetIsWhich) {
  Boosting run;
  run.contexts.clear();
  run.trees = false;
  EXPECT_THAT(run.Run(150, [&](int round) { Learn(&run, round, 40); }), HasSubstr("held_out_worsens"));
}

TEST(BoostedTrees, DamagedTopicsHarmNobody) {
  for (const char* const text :
       {"", "[]", "{\"sets\": 5}", "{\"sets\": {\"train\": 1}, \"training\": []}", "{\"objective\": 7}"}) {
    Boosting run;
    run.contexts["boosting"] = run.contexts["boosting_leader"] = text;
    EXPECT_EQ(run.Run(30, [&](int round) { Learn(&run, round); }), "") << text;
  }
}

}  // namespace
}  // namespace tdbg::rules::profile
