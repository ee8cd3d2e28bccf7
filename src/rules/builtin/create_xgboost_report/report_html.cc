// The page: one file, no scripts, no links, so that it can be mailed and opened in ten years.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/stable_sort.h"
#include "base/text.h"
#include "rules/builtin/confusion/confusion_matrix.h"
#include "rules/builtin/create_xgboost_report/report_data.h"
#include "rules/builtin/create_xgboost_report/svg_chart.h"

namespace tdbg::rules {
namespace {

using svg::Escaped;
using svg::Number;

constexpr size_t kMaxFeatures = 15;
constexpr size_t kBins = 20;
constexpr size_t kLabelBins = 10;
constexpr int32_t kMaxClassLines = 8;

constexpr char kHead[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>XGBoost training report</title>
<style>
:root { --ink: #1b1f24; --dim: #5b6570; --grid: #dfe3e8; --paper: #ffffff;
  --c0: #2f6fb3; --c1: #d9692b; --c2: #3c9a5f; --c3: #8a5bb5; --c4: #b5942f; --c5: #2b9aa8; --c6: #b5476b; --c7: #6b7480; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --dim: #9aa4af; --grid: #333b44; --paper: #14181d;
  --c0: #6aa9e9; --c1: #f0935e; --c2: #6cc98e; --c3: #b890e0; --c4: #dcc05c; --c5: #5cc8d6; --c6: #e07a9c; --c7: #9aa4af; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 720px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0; } h2 { font-size: 1.2em; margin-top: 2em; } h3 { font-size: 1em; }
.dim { color: var(--dim); }
table { border-collapse: collapse; } th, td { padding: .15em .9em .15em 0; text-align: right; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; display: block; margin: .5em 0; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--grid); fill: none; } .line { fill: none; stroke-width: 1.8; }
)";

std::string Style() {
  std::string style = kHead;
  for (int i = 0; i < 8; ++i)
    style += fmt::format(".line.c{0} {{ stroke: var(--c{0}); }} .mark.c{0} {{ fill: var(--c{0}); }}\n", i);
  return style + "</style></head><body>\n";
}

std::string Section(const std::string& title, const std::string& note, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<h2>{}</h2>\n<p class=\"dim\">{}</p>\n{}", title, note, content);
}

std::string Table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table><tr>";
  for (const std::string& cell : header) out += "<th>" + Escaped(cell) + "</th>";
  out += "</tr>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) out += "<td>" + Escaped(cell) + "</td>";
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

// "train-rmse" and "validation-rmse" share a picture.
std::string Metrics(const ReportData& data) {
  std::map<std::string, std::vector<svg::Line>> by_metric;
  for (const auto& [name, points] : data.metrics) {
    const size_t dash = name.find('-');
    by_metric[dash == std::string::npos ? name : name.substr(dash + 1)].push_back({name, points});
  }
  std::string out;
  for (const auto& [metric, lines] : by_metric) {
    out += svg::LineChart(lines, "iteration", metric);
    std::vector<std::vector<std::string>> rows;
    for (const svg::Line& line : lines) {
      // NaN is neither less nor more than anything: it would be both.
      auto finite = line.points;
      std::erase_if(finite, [](const auto& point) { return !std::isfinite(point.second); });
      const auto at = [](const std::pair<double, double>& point) {
        return fmt::format("{} at {:.0f}", Number(point.second), point.first);
      };
      const auto by_value = [](const auto& x, const auto& y) { return x.second < y.second; };
      const auto [least, most] = std::minmax_element(finite.begin(), finite.end(), by_value);
      rows.push_back({line.name, Number(line.points.back().second), finite.empty() ? "-" : at(*least),
                      finite.empty() ? "-" : at(*most)});
    }
    out += Table({"", "last", "least", "greatest"}, rows);
  }
  return Section("Metrics", "Each evaluation set's metric against the iteration.", out);
}

std::string BinName(const Bins& bins, size_t i) {
  return Number(bins.low + bins.width * static_cast<double>(i));
}

std::string Distribution(const ReportData& data) {
  std::vector<svg::Bar> bars;
  std::string note;
  if (data.classes) {
    std::map<int32_t, int64_t> counts;
    for (const int32_t label : data.classes->label) {
      if (label != kNoClass) ++counts[label];
    }
    for (const auto& [label, count] : counts)
      bars.push_back({std::to_string(label), static_cast<double>(count)});
    if (counts.empty()) return "";
    const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end(), by_count);
    note = fmt::format("{} in {}; the largest has {} times the labels of the smallest.",
                       base::Counted(data.labels.size(), "label"),
                       base::Counted(counts.size(), "class", "classes"),
                       Number(static_cast<double>(most->second) / static_cast<double>(least->second)));
  } else {
    const Bins bins = BinsOf(data.labels, kBins);
    for (size_t i = 0; i < bins.counts.size(); ++i)
      bars.push_back({BinName(bins, i), static_cast<double>(bins.counts[i])});
    note =
        fmt::format("{}; below each bar, where its bin begins.", base::Counted(data.labels.size(), "label"));
  }
  return Section("Labels", note, svg::BarChart(bars, data.classes ? "class" : "label", "labels"));
}

std::string Importance(const ReportData& data) {
  std::string out;
  for (const auto& [kind, features] : data.importance) {
    std::vector<svg::Bar> bars;
    for (const auto& [feature, value] : features) bars.push_back({feature, value});
    base::StableSort(&bars, [](const svg::Bar& a, const svg::Bar& b) { return a.value > b.value; });
    const size_t all = bars.size();
    if (all > kMaxFeatures) bars.resize(kMaxFeatures);
    out += fmt::format("<h3>{}{}</h3>\n", Escaped(kind),
                       all > bars.size() ? fmt::format(" (the {} largest of {})", bars.size(), all) : "");
    out += svg::Ranking(bars);
  }
  return Section(
      "Feature importance",
      "weight: how often a feature is split on; gain: what a split gains on average; cover: how many rows it "
      "decides; total_: summed over splits.",
      out);
}

std::string Share(double value) { return fmt::format("{:.3f}", value); }

std::string Classification(const ReportData& data) {
  if (!data.classes) return "";
  const ConfusionMatrix matrix(*data.classes);
  std::vector<std::vector<int64_t>> rows;
  std::vector<int64_t> totals;
  std::vector<ClassScore> scores(static_cast<size_t>(matrix.categories()));
  int64_t right = 0, all = 0;
  for (int32_t label = 0; label < matrix.categories(); ++label) {
    std::vector<int64_t>& row = rows.emplace_back();
    ClassScore& score = scores[static_cast<size_t>(label)];
    for (int32_t other = 0; other < matrix.categories(); ++other) {
      row.push_back(matrix.cell(label, other));
      score.predicted += matrix.cell(other, label);
    }
    score.labels = matrix.row_total(label);
    score.right = matrix.cell(label, label);
    right += score.right;
    all += score.labels;
    totals.push_back(score.labels);
  }
  if (all == 0) return "";
  std::vector<std::vector<std::string>> table;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].labels == 0 && scores[i].predicted == 0) continue;
    table.push_back({std::to_string(i), std::to_string(scores[i].labels), Share(scores[i].precision()),
                     Share(scores[i].recall()), Share(scores[i].f1())});
  }
  const Averages averages = AveragesOf(scores);
  for (const auto& [name, average] : {std::pair{"micro average", averages.micro},
                                      {"macro average", averages.macro},
                                      {"weighted average", averages.weighted}}) {
    table.push_back(
        {name, std::to_string(all), Share(average.precision), Share(average.recall), Share(average.f1)});
  }
  std::string out = Section(
      "Confusion matrix",
      fmt::format(
          "At iteration {}: {} of {} right, an accuracy of {}. Rows are labels, columns predictions, colours "
          "shares of the row.",
          data.predictions_step, right, all, Share(static_cast<double>(right) / static_cast<double>(all))),
      svg::HeatMap(rows, totals, "prediction", "label"));
  out += Section("Precision, recall, F1", "Of each class, and averaged as scikit-learn does.",
                 Table({"class", "labels", "precision", "recall", "F1"}, table));
  std::vector<svg::Line> lines;
  for (const auto& [label, points] : data.class_accuracy) {
    if (label < kMaxClassLines) lines.push_back({"class " + std::to_string(label), points});
  }
  return out + Section("Accuracy of each class",
                       data.class_accuracy.size() > lines.size()
                           ? fmt::format("Share of a class's labels predicted right; the first {} classes.",
                                         lines.size())
                           : "Share of a class's labels predicted right, against the iteration.",
                       svg::LineChart(lines, "iteration", "share right"));
}

std::string Roc(const ReportData& data) {
  if (!data.classes || data.predictions.size() != data.labels.size()) return "";
  const bool binary = std::ranges::all_of(data.labels, [](double l) { return l == 0 || l == 1; });
  const auto curve =
      binary ? RocCurve(data.labels, data.predictions) : std::vector<std::pair<double, double>>();
  if (curve.empty()) return "";
  return Section("ROC",
                 fmt::format("At iteration {}; the area under the curve is {}.", data.predictions_step,
                             Share(AreaUnder(curve))),
                 svg::LineChart({{"model", curve}, {"chance", {{0, 0}, {1, 1}}}}, "false positive rate",
                                "true positive rate"));
}

std::string Residuals(const ReportData& data) {
  if (data.classes || data.labels.empty() || data.predictions.size() != data.labels.size()) return "";
  std::vector<double> residuals;
  double sum = 0, squares = 0, absolute = 0;
  const Bins label_bins = BinsOf(data.labels, kLabelBins);
  if (label_bins.counts.empty()) return "";
  std::vector<double> errors(label_bins.counts.size());
  std::vector<int64_t> counts(label_bins.counts.size());
  for (size_t i = 0; i < data.labels.size(); ++i) {
    const double residual = data.labels[i] - data.predictions[i];
    if (!std::isfinite(residual)) continue;
    residuals.push_back(residual);
    sum += residual;
    squares += residual * residual;
    absolute += std::abs(residual);
    errors[label_bins.Of(data.labels[i])] += std::abs(residual);
    ++counts[label_bins.Of(data.labels[i])];
  }
  if (residuals.empty()) return "";
  const auto n = static_cast<double>(residuals.size());
  const Bins bins = BinsOf(residuals, kBins);
  std::vector<svg::Bar> bars, error_bars;
  for (size_t i = 0; i < bins.counts.size(); ++i)
    bars.push_back({BinName(bins, i), static_cast<double>(bins.counts[i])});
  for (size_t i = 0; i < errors.size(); ++i)
    error_bars.push_back(
        {BinName(label_bins, i), counts[i] ? errors[i] / static_cast<double>(counts[i]) : 0});
  return Section(
             "Residuals",
             fmt::format(
                 "Label minus prediction at iteration {}: mean {}, root of the mean square {}, mean absolute "
                 "error {}, of {}.",
                 data.predictions_step, Number(sum / n), Number(std::sqrt(squares / n)), Number(absolute / n),
                 base::Counted(residuals.size(), "row")),
             svg::BarChart(bars, "residual", "rows")) +
         Section("Absolute error by label",
                 "Mean of the absolute error of the rows in each bin of the label.",
                 svg::BarChart(error_bars, "label", "mean absolute error"));
}

std::string Hyperparameters(const ReportData& data) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : data.hyperparameters) rows.push_back({name, value});
  return rows.empty()
             ? ""
             : Section("Hyperparameters", "As the training started.", Table({"name", "value"}, rows));
}

}  // namespace

std::string ReportHtml(const ReportData& data) {
  std::string page = Style();
  page += "<h1>XGBoost training report</h1>\n";
  page += fmt::format("<p class=\"dim\">{}</p>\n",
                      data.final ? fmt::format("Final, after iteration {}.", data.last_step)
                                 : fmt::format("The training goes on; up to iteration {}.", data.last_step));
  page += Distribution(data) + Metrics(data) + Importance(data) + Classification(data) + Roc(data) +
          Residuals(data) + Hyperparameters(data);
  return page + "</body></html>\n";
}

}  // namespace tdbg::rules
