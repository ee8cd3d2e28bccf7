// What the report shows, gathered step by step. Memory: the series of the metrics, and one step's labels.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rules/class_values.h"

namespace tdbg::rules {

/// How good the predictions of one class are.
struct ClassScore {
  int64_t labels = 0, predicted = 0, right = 0;
  double precision() const {
    return predicted ? static_cast<double>(right) / static_cast<double>(predicted) : 0;
  }
  double recall() const { return labels ? static_cast<double>(right) / static_cast<double>(labels) : 0; }
  double f1() const {
    const double sum = precision() + recall();
    return sum > 0 ? 2 * precision() * recall() / sum : 0;
  }
};

struct Average {
  double precision = 0, recall = 0, f1 = 0;
};
/// scikit-learn's averages: over all decisions, over classes, over classes by their labels. Classes that
/// appear in neither labels nor predictions do not count; what divides by nothing is 0.
struct Averages {
  Average micro, macro, weighted;
};
Averages AveragesOf(const std::vector<ClassScore>& classes);

/// The curve from (0,0) to (1,1): share of negatives above a score, share of positives above it. Equal scores
/// are one step. Empty unless there are labels of 0 and of 1.
std::vector<std::pair<double, double>> RocCurve(const std::vector<double>& labels,
                                                const std::vector<double>& scores);
double AreaUnder(const std::vector<std::pair<double, double>>& curve);

/// `count` bins of equal width over the finite values.
struct Bins {
  double low = 0, width = 0;
  std::vector<int64_t> counts;
  size_t Of(double value) const;
};
Bins BinsOf(const std::vector<double>& values, size_t count);

struct ReportData {
  int64_t last_step = -1;
  bool final = false;
  std::map<std::string, std::string> hyperparameters;
  std::map<std::string, std::vector<std::pair<double, double>>> metrics;  // by name: (step, value)
  std::map<std::string, std::map<std::string, double>> importance;        // by kind, by feature: the latest
  int64_t predictions_step = -1;                                          // of what follows
  std::vector<double> labels, predictions;                                // one to one, or empty
  std::optional<ClassValues> classes;                                     // of a classification
  std::map<int32_t, std::vector<std::pair<double, double>>> class_accuracy;  // by class: (step, share right)
};

/// The whole page.
std::string ReportHtml(const ReportData& data);

}  // namespace tdbg::rules
