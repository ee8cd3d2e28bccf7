// For tests of rules and of the engine: steps in memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rules/step_source.h"
#include "trial/testing.h"

namespace tdbg::rules {

/// Rows of a step, as a segment has them.
class MemoryRows {
 public:
  void Add(uint32_t tensor, double mean_abs, uint64_t nan_count = 0) {
    Summary summary;
    summary.count = 4;
    summary.nan_count = nan_count;
    summary.l1 = mean_abs * 4;
    summary.variance = summary.m3 = summary.m4 = summary.l2 = summary.abs_min = summary.abs_max = 0;
    summary.mean = summary.min = summary.max = mean_abs;
    batch_.Add(tensor, summary);
  }
  Rows Span(const std::vector<TensorIndex>& tensor_of) { return Rows(batch_.Span(tensor_of)); }

 private:
  MemoryBatch batch_;
};

/// A run of one worker whose tests are verbs: Tensor, Step, Lose.
class MemorySource : public StepSource {
 public:
  TensorIndex Tensor(const std::string& name, const std::string& collection) {
    TensorInfo info;
    info.name = name;
    info.collections = {collection};
    tensors_.push_back(info);
    tensor_of_.push_back(static_cast<TensorIndex>(tensor_of_.size()));
    return tensor_of_.back();
  }
  /// The next step: tensor -> mean of the absolute values. NaN: all its elements are.
  StepInfo& Step(const std::map<TensorIndex, double>& values) {
    MemoryStep& step = steps_.emplace_back();
    step.info_.global_step = step.info_.mode_step = static_cast<int64_t>(steps_.size()) - 1;
    step.info_.mode = ModeKey::kTrain;
    step.attempt_ = attempt;
    for (const auto& [tensor, value] : values) step.data_.Add(tensor, value, std::isnan(value) ? 4 : 0);
    ++complete;
    return step.info_;
  }
  void Shed(size_t position) { steps_[position].incomplete_ = true; }
  void DropSteps(size_t from = 0) {
    steps_.resize(from);
    complete = from;
  }
  /// An attempt that is there and is not shown yet: its steps begin at `first`, with such values of a tensor.
  void Later(size_t first, TensorIndex tensor, std::vector<double> values) {
    later_.push_back([this, first, tensor, values = std::move(values)] {
      if (first < steps_.size()) {
        DropSteps(first);
        base = static_cast<int64_t>(first);
        ++generation;
      }
      ++attempt;
      for (const double value : values) Step({{tensor, value}});
    });
  }

  uint64_t overlay_generation() const override { return generation; }
  int64_t overlay_base() const override { return base; }
  size_t complete_count() const override { return complete; }
  size_t step_count() const override { return steps_.size(); }
  StepInfo Info(size_t position) const override { return steps_[position].info_; }
  int64_t AttemptOf(size_t position) const override { return steps_[position].attempt_; }
  bool BeginsApart(size_t position) const override {
    return position > 0 && AttemptOf(position - 1) != AttemptOf(position) &&
           apart.contains(AttemptOf(position));
  }
  bool HasNextAttempt() const override { return !later_.empty(); }
  void ShowNextAttempt() override {
    const std::function<void()> takes_over = std::move(later_.front());
    later_.pop_front();
    takes_over();
  }
  bool IsAwaited(size_t position, const std::vector<LostWorker>& declared) const override {
    const int64_t step = steps_[position].info_.global_step;
    return std::any_of(missing.begin(), missing.end(), [&](const std::string& worker) {
      return std::none_of(declared.begin(), declared.end(), [&](const LostWorker& one) {
        return one.worker == worker && step >= one.from_step;
      });
    });
  }
  const StepContext& At(size_t position, const std::vector<LostWorker>&) override {
    MemoryStep& step = steps_[position];
    step.source_ = this;
    step.rows_ = {step.data_.Span(tensor_of_)};
    ++looked_at;
    return step;
  }
  std::vector<DroppedInfo> dropped() const override { return lost; }
  std::vector<std::string> damage() const override { return damaged; }

  uint64_t generation = 0;
  int64_t base = 0;
  int64_t attempt = 0;      ///< of the steps to come
  std::set<int64_t> apart;  ///< attempts of which nobody knows how they follow
  size_t complete = 0;
  size_t looked_at = 0;
  std::vector<std::string> missing, damaged;
  std::vector<DroppedInfo> lost;

 private:
  class MemoryStep : public StepContext {
   public:
    const StepInfo& info() const override { return info_; }
    bool statistics_incomplete() const override { return incomplete_; }
    size_t tensor_count() const override { return source_->tensors_.size(); }
    const TensorInfo& tensor(TensorIndex tensor) const override { return source_->tensors_[tensor]; }
    const std::string& worker_name(WorkerIndex) const override { return source_->worker_; }
    std::span<const Rows> rows() const override { return rows_; }
    std::span<const Scalar> scalars() const override { return {}; }
    std::span<const WorkerIndex> raw_workers() const override { return {}; }
    Result<TensorValue> Raw(TensorIndex, WorkerIndex) const override { return NotFound("no raw values"); }
    std::vector<RawValue> RawsOf(TensorIndex) const override { return {}; }
    Result<TensorValue> Read(const RawValue&) const override { return NotFound("no raw values"); }
    std::optional<TensorIndex> StatisticOf(TensorIndex, std::string_view) const override { return {}; }
    Result<Histogram> HistogramOf(const Row&) const override { return NotFound("no histograms"); }

   private:
    friend class MemorySource;
    StepInfo info_;
    int64_t attempt_ = 0;
    bool incomplete_ = false;
    MemoryRows data_;
    std::vector<Rows> rows_;
    const MemorySource* source_ = nullptr;
  };

  std::vector<TensorInfo> tensors_;
  std::vector<TensorIndex> tensor_of_;
  std::deque<MemoryStep> steps_;
  std::string worker_ = "worker_0";
  std::deque<std::function<void()>> later_;
};

}  // namespace tdbg::rules
