#include "rules/profile/rounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace tdbg::rules::profile {
namespace {

using Json = nlohmann::json;

// Which way is better, by the names that XGBoost and LightGBM have. Those behind `higher` lie below 1, which
// is perfect.
struct Kind {
  std::string_view name;
  bool higher;
  Metric::Of of;
};
constexpr auto kLoss = Metric::Of::kLoss, kRate = Metric::Of::kRate, kOrder = Metric::Of::kOrder;
constexpr auto kKinds = std::to_array<Kind>({
    // Both of them.
    {"rmse", false, kLoss},
    {"mape", false, kLoss},
    {"quantile", false, kLoss},
    {"auc", true, kOrder},
    {"ndcg", true, kOrder},
    {"map", true, kOrder},
    // XGBoost.
    {"rmsle", false, kLoss},
    {"mae", false, kLoss},
    {"mphe", false, kLoss},
    {"logloss", false, kLoss},
    {"mlogloss", false, kLoss},
    {"error", false, kRate},
    {"merror", false, kRate},
    {"poisson-nloglik", false, kLoss},
    {"gamma-nloglik", false, kLoss},
    {"gamma-deviance", false, kLoss},
    {"tweedie-nloglik", false, kLoss},
    {"cox-nloglik", false, kLoss},
    {"aft-nloglik", false, kLoss},
    {"aucpr", true, kOrder},
    {"pre", true, kRate},
    {"interval-regression-accuracy", true, kRate},
    // LightGBM.
    {"l1", false, kLoss},
    {"l2", false, kLoss},
    {"huber", false, kLoss},
    {"fair", false, kLoss},
    {"poisson", false, kLoss},
    {"gamma", false, kLoss},
    {"gamma_deviance", false, kLoss},
    {"tweedie", false, kLoss},
    {"binary_logloss", false, kLoss},
    {"multi_logloss", false, kLoss},
    {"cross_entropy", false, kLoss},
    {"cross_entropy_lambda", false, kLoss},
    {"kullback_leibler", false, kLoss},
    {"binary_error", false, kRate},
    {"multi_error", false, kRate},
    {"average_precision", true, kOrder},
    {"auc_mu", true, kOrder},
    {"r2", true, kLoss},
    // Scripts.
    {"loss", false, kLoss},
    {"accuracy", true, kRate},
});

struct Own {
  std::string_view objective, metric;
};
constexpr auto kOwnMetrics = std::to_array<Own>({
    {"reg:squarederror", "rmse"},
    {"reg:linear", "rmse"},
    {"reg:squaredlogerror", "rmsle"},
    {"reg:absoluteerror", "mae"},
    {"reg:pseudohubererror", "mphe"},
    {"reg:logistic", "logloss"},
    {"binary:logistic", "logloss"},
    {"binary:logitraw", "logloss"},
    {"multi:softprob", "mlogloss"},
    {"multi:softmax", "mlogloss"},
    {"count:poisson", "poisson-nloglik"},
    {"regression", "l2"},
    {"regression", "rmse"},
    {"regression_l2", "l2"},
    {"regression_l2", "rmse"},
    {"l2", "l2"},
    {"mse", "l2"},
    {"rmse", "rmse"},
    {"mean_squared_error", "l2"},
    {"regression_l1", "l1"},
    {"l1", "l1"},
    {"mae", "l1"},
    {"huber", "huber"},
    {"poisson", "poisson"},
    {"binary", "binary_logloss"},
    {"multiclass", "multi_logloss"},
    {"softmax", "multi_logloss"},
    {"cross_entropy", "cross_entropy"},
});

// "ndcg" of "ndcg@5-".
std::string_view Base(std::string_view metric) {
  metric = metric.substr(0, metric.find('@'));
  if (metric.ends_with('-')) metric.remove_suffix(1);
  return metric;
}

double NumberOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

bool Is(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<LabelRange> LabelsOf(const Json& json) {
  if (!json.contains("lowest")) return std::nullopt;
  return LabelRange{NumberOf(json, "lowest"), NumberOf(json, "highest"), NumberOf(json, "mean"),
                    NumberOf(json, "deviation")};
}

}  // namespace

bool IsOwnMetric(std::string_view objective, std::string_view metric) {
  return std::ranges::any_of(
      kOwnMetrics, [&](const Own& own) { return own.objective == objective && own.metric == Base(metric); });
}

void Rounds::Take(const StepContext& step) {
  LearnCall(step);
  LearnTensors(step);
  metrics_.clear();
  splits_.reset();
  share_.reset();
  rate_.reset();
  for (const Rows rows : step.rows()) {
    for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
      if (rows.point(i) != Point::kNone || rows.sub(i) != 0 || rows.is_empty(i) || !rows.is_finite(i))
        continue;
      See(rows.tensor(i), rows.mean(i));
    }
  }
  for (const StepContext::Scalar& scalar : step.scalars()) {
    if (scalar.sub.sub == 0) See(scalar.tensor, scalar.value);
  }
}

// Of several ranks the lowest one's: they come by rank.
void Rounds::See(TensorIndex tensor, double value) {
  const Known& known = known_[tensor];
  switch (known.is) {
    case Known::Is::kNothing:
      return;
    case Known::Is::kSplits:
      if (!splits_) splits_ = value;
      return;
    case Known::Is::kShare:
      if (!share_) share_ = value;
      return;
    case Known::Is::kRate:
      if (!rate_) rate_ = value;
      return;
    case Known::Is::kMetric:
      break;
  }
  const bool seen = std::ranges::any_of(metrics_, [&](const Metric& one) { return one.tensor == tensor; });
  if (seen || !std::isfinite(value)) return;
  Metric& metric = metrics_.emplace_back(known.metric);
  metric.tensor = tensor;
  metric.value = value;
}

void Rounds::LearnCall(const StepContext& step) {
  if (const std::string* const leader = step.Context("boosting_leader")) {
    const Json json = Json::parse(*leader, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) leader_ = TextOf(json, "name");
  }
  const std::string* const text = step.Context("boosting");
  if (text == nullptr || *text == topic_) return;
  topic_ = *text;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  said_ = true;
  cv_ = Is(json, "cv");
  early_stopping_ = Is(json, "early_stopping");
  weighted_ = Is(json, "weighted");
  drops_ = Is(json, "drops");
  stops_by_ = TextOf(json, "stops_by");
  objective_ = TextOf(json, "objective");
  if (const double features = NumberOf(json, "features"); features > 0) features_ = features;
  if (json.contains("training") && json["training"].is_object()) {
    training_rows_ = NumberOf(json["training"], "rows");
    training_labels_ = LabelsOf(json["training"]);
  }
  if (json.contains("higher_is_better") && json["higher_is_better"].is_object()) {
    for (const auto& [name, higher] : json["higher_is_better"].items()) {
      if (higher.is_boolean()) higher_is_better_[name] = higher.get<bool>();
    }
  }
  sets_.clear();
  known_.clear();  // what they are is known only now
  unknown_.clear();
  if (!json.contains("sets") || !json["sets"].is_object()) return;
  for (const auto& [name, one] : json["sets"].items()) {
    if (!one.is_object()) continue;
    EvaluatedSet& set = sets_.emplace_back();
    set.name = name;
    set.training = Is(one, "training");
    set.held_out = !set.training;
    const double groups = NumberOf(one, "groups");
    set.samples = groups > 0 ? groups : NumberOf(one, "rows");
    set.labels = LabelsOf(one);
  }
}

void Rounds::LearnTensors(const StepContext& step) {
  while (known_.size() < step.tensor_count()) {
    const TensorInfo& info = step.tensor(static_cast<TensorIndex>(known_.size()));
    Known known;
    if (info.name == "context/boosting/splits") {
      known.is = Known::Is::kSplits;
    } else if (info.name == "context/boosting/leading_share") {
      known.is = Known::Is::kShare;
    } else if (info.name == "context/learning_rate") {
      known.is = Known::Is::kRate;
    } else if (std::ranges::find(info.collections, "metrics") != info.collections.end()) {
      known = Learn(info.name);
    }
    known_.push_back(std::move(known));
  }
}

// The set of "eval-poisson-nloglik"; sets_.size(): of none.
size_t Rounds::SetOf(const std::string& name) {
  size_t found = sets_.size(), longest = 0;
  for (size_t i = 0; i < sets_.size(); ++i) {
    const std::string& set = sets_[i].name;
    if (set.size() >= longest && name.starts_with(set + "-")) {
      longest = set.size();
      found = i;
    }
  }
  const size_t dash = name.find('-');
  if (found < sets_.size() || said_ || dash == std::string::npos || dash == 0) return found;
  // Nobody said which sets there are: a name is all that is known of one.
  EvaluatedSet& set = sets_.emplace_back();
  set.name = name.substr(0, dash);
  set.training = set.name.starts_with("train");
  return sets_.size() - 1;
}

Rounds::Known Rounds::Learn(const std::string& name) {
  Known known;
  if (cv_ && name.ends_with("-std")) return known;  // a deviation over folds
  const size_t set = SetOf(name);
  if (set == sets_.size()) return known;
  Metric& metric = known.metric;
  metric.name = name;
  metric.set = set;
  metric.metric = name.substr(sets_[set].name.size() + 1);
  const auto kind = std::ranges::find(kKinds, Base(metric.metric), &Kind::name);
  const auto told = higher_is_better_.find(metric.metric);
  if (kind != kKinds.end() && (told == higher_is_better_.end() || told->second == kind->higher)) {
    metric.higher_is_better = kind->higher;
    metric.of = kind->of;
  } else if (told != higher_is_better_.end() && !told->second) {
    metric.higher_is_better = false;  // what its best value is nobody knows: a negative one is not judged
  } else {
    if (std::ranges::find(unknown_, metric.metric) == unknown_.end()) unknown_.push_back(metric.metric);
    return known;
  }
  known.is = Known::Is::kMetric;
  // Without the adaptor's word a set beside the training's is taken for held out.
  if (!said_) {
    const bool any = std::ranges::any_of(sets_, &EvaluatedSet::training);
    for (EvaluatedSet& one : sets_) one.held_out = any && !one.training;
  }
  return known;
}

}  // namespace tdbg::rules::profile
