#include "rules/builtin/create_xgboost_report/report_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tdbg::rules {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

// The example of scikit-learn's precision_recall_fscore_support: labels 0 1 2 0 1 2, predictions 0 2 1 0 0 1.
TEST(ReportDataTest, AveragesAreScikitLearns) {
  const std::vector<ClassScore> classes = {{2, 3, 2}, {2, 2, 0}, {2, 1, 0}};
  const Averages averages = AveragesOf(classes);
  EXPECT_NEAR(averages.macro.precision, 2.0 / 9, 1e-12);
  EXPECT_NEAR(averages.macro.recall, 1.0 / 3, 1e-12);
  EXPECT_NEAR(averages.macro.f1, 0.8 / 3, 1e-12);
  EXPECT_NEAR(averages.micro.precision, 1.0 / 3, 1e-12);
  EXPECT_NEAR(averages.micro.f1, 1.0 / 3, 1e-12);
  EXPECT_NEAR(averages.weighted.f1, 0.8 / 3, 1e-12);
  EXPECT_EQ(AveragesOf({}).macro.f1, 0);
  const std::vector<ClassScore> uneven = {{3, 3, 3}, {1, 1, 0}, {0, 0, 0}};
  EXPECT_NEAR(AveragesOf(uneven).macro.recall, 0.5, 1e-12) << "a class that is nowhere does not count";
  EXPECT_NEAR(AveragesOf(uneven).weighted.recall, 0.75, 1e-12);
}

TEST(ReportDataTest, TheAreaUnderTheCurve) {
  EXPECT_DOUBLE_EQ(AreaUnder(RocCurve({0, 0, 1, 1}, {0.1, 0.4, 0.35, 0.8})), 0.75);
  EXPECT_DOUBLE_EQ(AreaUnder(RocCurve({0, 1, 0, 1}, {0.5, 0.5, 0.5, 0.5})), 0.5)
      << "equal scores say nothing";
  EXPECT_DOUBLE_EQ(AreaUnder(RocCurve({0, 1}, {0.1, 0.9})), 1);
  EXPECT_DOUBLE_EQ(AreaUnder(RocCurve({0, 1}, {0.9, 0.1})), 0);
  EXPECT_THAT(RocCurve({1, 0}, {0.9, 0.1}), ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 1)));
  EXPECT_TRUE(RocCurve({1, 1}, {0.9, 0.1}).empty());
  EXPECT_TRUE(RocCurve({}, {}).empty());
  EXPECT_DOUBLE_EQ(AreaUnder(RocCurve({0, 1, 1}, {0.1, 0.9, std::nan("")})), 1)
      << "what is not finite is left out";
}

TEST(ReportDataTest, BinsHoldEveryFiniteValueOnce) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Bins bins = BinsOf({0, 1, 2, 3, 4, infinity, std::nan("")}, 4);
  EXPECT_THAT(bins.counts, ElementsAre(1, 1, 1, 2));
  EXPECT_THAT(BinsOf({7, 7, 7}, 4).counts, ElementsAre(3));
  EXPECT_TRUE(BinsOf({std::nan("")}, 4).counts.empty());
}

ReportData Classification() {
  ReportData data;
  data.last_step = 9;
  data.metrics["train-logloss"] = {{0, 0.6}, {5, 0.4}};
  data.metrics["validation-logloss"] = {{0, 0.65}, {5, std::nan("")}};
  data.importance["weight"] = {{"<f0>", 0.7}, {"f1", 0.3}};
  data.predictions_step = 5;
  data.labels = {0, 1, 1, 0};
  data.predictions = {0.2, 0.9, 0.3, 0.1};
  data.classes.emplace();
  data.classes->label = {0, 1, 1, 0};
  data.classes->prediction = {0, 1, 0, 0};
  data.classes->has_predictions = true;
  data.class_accuracy[0] = {{0, 0.5}, {5, 1}};
  data.hyperparameters["objective"] = "binary:logistic";
  return data;
}

TEST(ReportHtmlTest, AClassificationHasItsSectionsAndNoResiduals) {
  const std::string page = ReportHtml(Classification());
  for (const char* heading :
       {"<h2>Labels", "<h2>Metrics", "<h2>Feature importance", "<h2>Confusion matrix",
        "<h2>Precision, recall, F1", "<h2>Accuracy of each class", "<h2>ROC", "<h2>Hyperparameters"}) {
    EXPECT_THAT(page, HasSubstr(heading));
  }
  EXPECT_THAT(page, Not(HasSubstr("<h2>Residuals")));
  EXPECT_THAT(page, HasSubstr("3 of 4 right, an accuracy of 0.750"));
  EXPECT_THAT(page, HasSubstr("area under the curve is 1.000"));
  EXPECT_THAT(page, HasSubstr("The training goes on; up to iteration 9"));
  EXPECT_THAT(page, HasSubstr("&lt;f0&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<f0>"))) << "names of features are the user's";
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("<td>nan</td><td>0.65 at 0</td><td>0.65 at 0</td>"))
      << "the last is what it is";
  for (const char* coordinate : {"Mnan", "Lnan", " nan", "\"nan"})
    EXPECT_THAT(page, Not(HasSubstr(coordinate)));
  EXPECT_TRUE(page.ends_with("</body></html>\n"));
}

TEST(ReportHtmlTest, ARegressionHasResidualsAndNoClasses) {
  ReportData data;
  data.last_step = data.predictions_step = 50;
  data.final = true;
  data.labels = {1, 2, 3, 4};
  data.predictions = {1.5, 2, 3, 2};
  const std::string page = ReportHtml(data);
  EXPECT_THAT(page, HasSubstr("Final, after iteration 50"));
  EXPECT_THAT(page, HasSubstr("<h2>Residuals"));
  EXPECT_THAT(page, HasSubstr("mean absolute error 0.625"));
  EXPECT_THAT(page, HasSubstr("<h2>Absolute error by label"));
  EXPECT_THAT(page, Not(HasSubstr("<h2>ROC")));
  EXPECT_THAT(page, Not(HasSubstr("<h2>Confusion")));
}

TEST(ReportHtmlTest, LongSeriesAreThinned) {
  ReportData data;
  data.last_step = 100'000;
  for (int i = 0; i < 100'000; ++i) data.metrics["train-rmse"].emplace_back(i, 1.0 / (i + 1));
  EXPECT_LT(ReportHtml(data).size(), 100'000u);
}

}  // namespace
}  // namespace tdbg::rules
