// For tests of detectors: a training that is made up.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rules/profile/catalogue.h"
#include "rules/profile/detector.h"
#include "rules/worker_fates.h"
#include "trial/testing.h"

namespace tdbg::rules::profile {

// A training of one layer, as a detector sees it. Everything may be changed between two steps.
class Training : public StepContext, public SeesWorkers {
 public:
  explicit Training(void (*add)(Detectors*), DType dtype = DType::kFloat32,
                    const char* loss_name = "CrossEntropyLoss_output")
      : dtype_(dtype) {
    Tensor("Net_l1.weight", "weights", "linear", {16, 16}, dtype);
    Tensor("gradient/Net_l1.weight", "gradients", "linear", {16, 16}, dtype);
    Tensor(loss_name, "losses", "", {}, DType::kFloat32);
    Tensor("Net_norm.running_mean", "buffers", "norm", {16}, DType::kFloat32);
    Tensor("Net_norm.weight", "weights", "norm", {16}, DType::kFloat32);
    Tensor("context/lr/SGD/0", "context", "", {}, DType::kFloat32);
    Tensor("context/optimizer_step/SGD", "context", "", {}, DType::kFloat32);
    contexts["optimizer/SGD"] =
        R"({"class": "SGD", "groups": [{"parameters": ["Net_l1.weight", "Net_norm.weight"], "options": {}}]})";
    add(&detectors_);
  }

  // What it found first: "id at step".
  std::string Run(int steps, const std::function<void(int)>& at) {
    for (int step = 0; step < steps; ++step) {
      at(step);
      Step(ModeKey::kTrain);
    }
    return found_;
  }

  void Step(ModeKey mode) {
    info_ = {};
    info_.global_step = info_.mode_step = step_++;
    info_.mode = mode;
    info_.wall_nanos = wall_nanos += static_cast<int64_t>(seconds * 1e9);
    batches_.clear();
    scalars_.clear();
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      rank_ = rank;
      if (of_rank) of_rank(rank);
      RowsOfRank(mode);
    }
    rows_.clear();  // behind Index, which may move what the span is of
    for (uint32_t rank = 0; rank < ranks; ++rank) rows_.emplace_back(batches_[rank]->Span(tensor_of_), rank);
    digest_.Take(*this);
    std::vector<Finding> findings;
    for (const auto& detector : detectors_) detector->Judge(digest_, &findings);
    Take(findings);
  }

  // What it found first, the end of the run included.
  std::string End() {
    std::vector<Finding> findings;
    for (const auto& detector : detectors_) detector->AtEnd(*this, &findings);
    Take(findings);
    return found_;
  }

  const std::vector<Finding>& findings() const { return findings_; }

  // All that it found, in order: "id at step, id at step".
  const std::string& found_all() const { return found_all_; }

  std::string Unjudged() const {
    std::string text;
    for (const auto& detector : detectors_) text += detector->Unjudged();
    return text;
  }

  double weight = 4, gradient = 0.1, loss = 1, running_mean = 1, rate = 0.01, bias_gradient = -1;
  double seconds = 0.02;  // from the step before
  int64_t wall_nanos = 1'000'000'000;
  uint64_t gradient_zeros = 0, weight_zeros = 0;
  std::vector<WorkerFate> fates;
  std::map<std::string, std::string> errors;  // by worker
  std::map<std::string, double> more_losses;  // beside `loss`, by name
  std::optional<double> differentiated;
  std::map<std::string, double> series;
  std::map<std::string, std::string, std::less<>> contexts;
  int64_t attempt_number = 0;
  bool incomplete = false;     // its rows were dropped
  bool weight_is_nan = false;  // what a step shows that has no other rows of weights
  bool sgd_steps = true;
  uint32_t ranks = 1;                          // up to 4
  std::function<void(uint32_t rank)> of_rank;  // called before the rank's part of a step is made

  const StepInfo& info() const override { return info_; }
  int64_t attempt() const override { return attempt_number; }
  bool statistics_incomplete() const override { return incomplete; }
  const std::string* Context(std::string_view topic) const override {
    const auto found = contexts.find(topic);
    return found == contexts.end() ? nullptr : &found->second;
  }
  size_t tensor_count() const override { return tensors_.size(); }
  const TensorInfo& tensor(TensorIndex tensor) const override { return tensors_[tensor]; }
  const std::string& worker_name(WorkerIndex worker) const override { return workers_[worker]; }
  std::vector<WorkerFate> workers() const override { return fates; }
  std::string ErrorOf(const std::string& worker) const override {
    const auto found = errors.find(worker);
    return found == errors.end() ? "" : found->second;
  }
  std::span<const Rows> rows() const override { return rows_; }
  std::span<const StepContext::Scalar> scalars() const override { return scalars_; }
  std::span<const WorkerIndex> raw_workers() const override { return {}; }
  Result<TensorValue> Raw(TensorIndex, WorkerIndex) const override { return NotFound("no raw values"); }
  std::vector<RawValue> RawsOf(TensorIndex) const override { return {}; }
  Result<TensorValue> Read(const RawValue&) const override { return NotFound("no raw values"); }
  std::optional<TensorIndex> StatisticOf(TensorIndex, std::string_view) const override { return {}; }
  Result<Histogram> HistogramOf(const StepContext::Row&) const override { return NotFound("none"); }

 private:
  void RowsOfRank(ModeKey mode) {
    batches_.push_back(std::make_unique<MemoryBatch>());
    if (mode == ModeKey::kTrain && !incomplete) {
      Row(0, 256, weight, 0.1, weight_zeros);
      if (gradient >= 0) Row(1, 256, gradient, 0.1, gradient_zeros);
      Row(3, 16, running_mean, 0.1);
      if (bias_gradient >= 0) Row(Index("gradient/Net_l1.bias", "gradients"), 16, bias_gradient, 0.1);
      if (bias_gradient >= 0) Row(Index("Net_l1.bias", "biases"), 16, 1, 0.1);
      Row(4, 16, 4, 0.1);
    }
    if (weight_is_nan) Row(0, 256, weight, std::numeric_limits<double>::quiet_NaN());
    Row(2, 1, std::abs(loss), loss);
    for (const auto& [name, value] : more_losses) Row(Index(name, "losses"), 1, std::abs(value), value);
    if (sgd_steps) Scalar(5, rate);
    if (sgd_steps) Scalar(6, step_);
    for (const auto& [name, value] : series) Scalar(Index("context/" + name), value);
    if (differentiated) Scalar(Index("backward_loss"), *differentiated);
  }
  void Take(const std::vector<Finding>& findings) {
    findings_.insert(findings_.end(), findings.begin(), findings.end());
    for (const Finding& finding : findings) {
      EXPECT_NE(Find(finding.detector), nullptr) << finding.detector;
      EXPECT_FALSE(finding.text.empty());
      found_all_ +=
          (found_all_.empty() ? "" : ", ") + finding.detector + " at " + std::to_string(finding.global_step);
      if (found_.empty()) found_ = finding.detector + " at " + std::to_string(finding.global_step);
    }
  }
  void Tensor(const std::string& name, const char* collection, const char* module_kind,
              std::vector<int64_t> shape, DType dtype) {
    TensorInfo info;
    info.name = name;
    info.collections = {collection};
    info.module_kind = module_kind;
    info.shape = std::move(shape);
    info.dtype = dtype;
    info.order = static_cast<uint32_t>(tensors_.size());
    tensor_of_.push_back(static_cast<TensorIndex>(tensors_.size()));
    tensors_.push_back(std::move(info));
  }
  TensorIndex Index(const std::string& name, const char* collection = "context") {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return static_cast<TensorIndex>(i);
    }
    Tensor(name, collection, "", {}, std::string_view(collection) == "context" ? DType::kFloat32 : dtype_);
    return static_cast<TensorIndex>(tensors_.size() - 1);
  }
  void Row(uint32_t tensor, uint64_t count, double l2, double mean, uint64_t zeros = 0) {
    Summary summary;
    summary.count = count;
    summary.nan_count = std::isnan(mean) ? count : 0;
    summary.l1 = summary.l2 = l2;
    summary.zero_count = l2 == 0 ? count : zeros;
    summary.m3 = summary.m4 = 0;
    summary.variance = count > 1 ? l2 * l2 / static_cast<double>(count) : 0;
    summary.mean = summary.min = summary.max = summary.abs_min = summary.abs_max = mean;
    batches_.back()->Add(tensor, summary);
  }
  void Scalar(TensorIndex tensor, double value) {
    StepContext::Scalar scalar;
    scalar.tensor = tensor;
    scalar.worker = rank_;
    scalar.value = value;
    scalars_.push_back(scalar);
  }

  const DType dtype_;
  Digest digest_;
  Detectors detectors_;
  StepInfo info_;
  int64_t step_ = 0;
  uint32_t rank_ = 0;  // whose rows are being made
  std::string found_, found_all_;
  std::vector<Finding> findings_;
  const std::vector<std::string> workers_ = {"worker_0", "worker_1", "worker_2", "worker_3"};
  std::vector<TensorInfo> tensors_;
  std::vector<TensorIndex> tensor_of_;
  std::vector<std::unique_ptr<MemoryBatch>> batches_;
  std::vector<Rows> rows_;
  std::vector<StepContext::Scalar> scalars_;
};

/// A training that is looked at: in each of the first 20 steps, and in every 8th.
class Looked : public Training {
 public:
  Looked(void (*add)(Detectors*), const char* function, const char* loss_name, bool single = true)
      : Training(add, DType::kFloat32, loss_name) {
    contexts["predictions"] =
        std::string(R"({"function": ")") + function + R"(", "single": )" + (single ? "true}" : "false}");
  }

  // \param at  sets the numbers of a step, as if each were looked at
  std::string RunLooked(int steps, const std::function<void(int)>& at) {
    return Run(steps, [&](int step) {
      weight += 0.01;
      at(step);
      if (step < 20 || step % 8 == 0) return;
      std::erase_if(series, [](const auto& one) {
        return one.first.starts_with("targets/") || one.first.starts_with("predictions/");
      });
    });
  }

  void Regression(double target_mean, double target_std, double std, double correlation, double bias = 0) {
    series["targets/mean"] = target_mean;
    series["targets/std"] = series["targets/between"] = target_std;
    series["predictions/mean"] = target_mean + bias;
    series["predictions/std"] = series["predictions/between"] = std;
    series["predictions/correlation"] = correlation;
    series["targets/guess"] = target_std * target_std;
    loss = series["predictions/loss"] =
        target_std * target_std + std * std - 2 * correlation * std * target_std + bias * bias;
  }
};

}  // namespace tdbg::rules::profile
