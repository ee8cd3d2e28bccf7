// A training of boosted trees as its detectors need it: the metrics of a round, and what the adaptor says of
// the call (python/tdbg/adaptors/boosting/facts.py).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules/step_context.h"

namespace tdbg::rules::profile {

/// What is known of labels.
struct LabelRange {
  double lowest = 0, highest = 0, mean = 0, deviation = 0;
};

/// A data set that is evaluated after each round.
struct EvaluatedSet {
  std::string name;
  bool training = false;  ///< the rows that are trained on
  bool held_out = false;  ///< neither: nobody said which it is
  double samples = 0;     ///< rows, or queries of a ranking; 0: not known
  std::optional<LabelRange> labels;
};

/// A metric of one set after a round. Only those are here of which it is known which way is better.
struct Metric {
  TensorIndex tensor = 0;
  std::string name;    ///< as recorded: "eval-logloss"
  std::string metric;  ///< "logloss"
  size_t set = 0;      ///< index into Rounds::sets()
  bool higher_is_better = false;
  /// What it is of predictions: a loss, which every change moves; a rate, of wrong answers; an order.
  enum class Of : uint8_t { kLoss, kRate, kOrder } of = Of::kRate;
  double value = 0;
  /// How far from perfect: 0 is. Comparable with other rounds of the same metric.
  double badness() const { return higher_is_better ? 1 - value : value; }
};

class Rounds {
 public:
  /// \pre steps come in order
  void Take(const StepContext& step);

  /// Did the adaptor say that trees are boosted?
  bool said() const { return said_; }
  const std::vector<EvaluatedSet>& sets() const { return sets_; }
  const std::vector<Metric>& metrics() const { return metrics_; }  ///< finite ones, of the lowest rank
  /// Names of metrics that were left out: nobody knows which way is better.
  const std::vector<std::string>& unknown() const { return unknown_; }

  // Of the call. Without the adaptor's word nothing is known.
  bool cv() const { return cv_; }
  bool early_stopping() const { return early_stopping_; }
  const std::string& stops_by() const { return stops_by_; }  ///< the set by which it does; empty: several
  bool weighted() const { return weighted_; }  ///< rows or classes have weights that some metrics are without
  bool drops() const { return drops_; }        ///< rounds take earlier trees away for a while (DART)
  /// Its name; empty: the script computes gradients by itself; nothing: not known.
  const std::optional<std::string>& objective() const { return objective_; }
  std::optional<double> features() const { return features_; }
  double training_rows() const { return training_rows_; }
  const std::optional<LabelRange>& training_labels() const { return training_labels_; }

  // Of the trees so far. Nothing where this round was not looked at.
  std::optional<double> splits() const { return splits_; }
  std::optional<double> leading_share() const { return share_; }  ///< of all gain, the largest of a feature
  const std::string& leader() const { return leader_; }           ///< the feature that has it
  std::optional<double> learning_rate() const { return rate_; }

 private:
  struct Known {
    enum class Is : uint8_t { kNothing, kMetric, kSplits, kShare, kRate } is = Is::kNothing;
    Metric metric;
  };
  void LearnCall(const StepContext& step);
  void LearnTensors(const StepContext& step);
  Known Learn(const std::string& name);
  size_t SetOf(const std::string& name);
  void See(TensorIndex tensor, double value);

  bool said_ = false, cv_ = false, early_stopping_ = false, weighted_ = false, drops_ = false;
  std::string topic_, stops_by_, leader_;
  std::optional<std::string> objective_;
  std::optional<double> features_, splits_, share_, rate_;
  double training_rows_ = 0;
  std::optional<LabelRange> training_labels_;
  std::map<std::string, bool> higher_is_better_;
  std::vector<EvaluatedSet> sets_;
  std::vector<Known> known_;  // by TensorIndex
  std::vector<Metric> metrics_;
  std::vector<std::string> unknown_;
};

/// Is it what a training by this objective makes smaller?
bool IsOwnMetric(std::string_view objective, std::string_view metric);

}  // namespace tdbg::rules::profile
