#include "rules/builtin/create_xgboost_report/report_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tdbg::rules {

Averages AveragesOf(const std::vector<ClassScore>& classes) {
  ClassScore all;
  Averages averages;
  double present = 0, labels = 0;
  for (const ClassScore& score : classes) {
    if (score.labels == 0 && score.predicted == 0) continue;
    all.labels += score.labels;
    all.predicted += score.predicted;
    all.right += score.right;
    const auto weight = static_cast<double>(score.labels);
    const auto add = [&](Average* to, double factor) {
      to->precision += factor * score.precision();
      to->recall += factor * score.recall();
      to->f1 += factor * score.f1();
    };
    add(&averages.macro, 1);
    add(&averages.weighted, weight);
    ++present;
    labels += weight;
  }
  averages.micro = {all.precision(), all.recall(), all.f1()};
  const auto divide = [](Average* a, double by) {
    if (by > 0) *a = {a->precision / by, a->recall / by, a->f1 / by};
  };
  divide(&averages.macro, present);
  divide(&averages.weighted, labels);
  return averages;
}

std::vector<std::pair<double, double>> RocCurve(const std::vector<double>& labels,
                                                const std::vector<double>& scores) {
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return !std::isfinite(scores[i]) || !std::isfinite(labels[i]); });
  std::ranges::sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const auto positives =
      static_cast<double>(std::ranges::count_if(order, [&](size_t i) { return labels[i] > 0; }));
  const double negatives = static_cast<double>(order.size()) - positives;
  if (positives == 0 || negatives == 0) return {};
  std::vector<std::pair<double, double>> curve = {{0, 0}};
  double right = 0, wrong = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    (labels[order[i]] > 0 ? right : wrong) += 1;
    if (i + 1 < order.size() && scores[order[i + 1]] == scores[order[i]]) continue;
    curve.emplace_back(wrong / negatives, right / positives);
  }
  return curve;
}

double AreaUnder(const std::vector<std::pair<double, double>>& curve) {
  double area = 0;
  for (size_t i = 1; i < curve.size(); ++i) {
    area += (curve[i].first - curve[i - 1].first) * (curve[i].second + curve[i - 1].second) / 2;
  }
  return area;
}

size_t Bins::Of(double value) const {
  const double at = width > 0 ? (value - low) / width : 0;
  return std::min(static_cast<size_t>(std::max(at, 0.0)), counts.size() - 1);
}

Bins BinsOf(const std::vector<double>& values, size_t count) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  Bins bins;
  if (low > high) return bins;
  bins.low = low;
  bins.width = (high - low) / static_cast<double>(count);
  bins.counts.resize(bins.width > 0 ? count : 1);
  for (const double value : values) {
    if (std::isfinite(value)) ++bins.counts[bins.Of(value)];
  }
  return bins;
}

}  // namespace tdbg::rules
