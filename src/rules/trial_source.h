// Steps of an opened trial.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rules/step_source.h"
#include "rules/worker_fates.h"
#include "trial/access.h"

namespace tdbg::rules {

/// Borrows the trial; make a new one after each Refresh.
class TrialSource : public StepSource {
 public:
  /// \param stopped  attempts that somebody asked to stop
  explicit TrialSource(const Trial& trial, std::vector<int64_t> stopped = {});

  uint64_t overlay_generation() const override { return access_.overlay_generation(); }
  int64_t overlay_base() const override { return access_.overlay_base(); }
  void ShowFirstAttempt() override {
    access_.ShowUpTo(-1);
    if (access_.HasNextAttempt()) access_.ShowNextAttempt();
  }
  bool HasNextAttempt() const override { return access_.HasNextAttempt(); }
  void ShowNextAttempt() override { access_.ShowNextAttempt(); }
  size_t complete_count() const override { return access_.complete_count(); }
  size_t step_count() const override { return access_.steps().size(); }
  StepInfo Info(size_t position) const override { return access_.steps()[position].info; }
  int64_t AttemptOf(size_t position) const override { return access_.steps()[position].attempt; }
  bool BeginsApart(size_t position) const override {
    return position > 0 && AttemptOf(position - 1) != AttemptOf(position) &&
           access_.IsLaidBehind(AttemptOf(position));
  }
  bool IsAwaited(size_t position, const std::vector<LostWorker>& lost) const override;
  const StepContext& At(size_t position, const std::vector<LostWorker>& lost) override;
  std::vector<DroppedInfo> dropped() const override { return access_.trial().dropped(); }
  std::vector<std::string> damage() const override { return access_.trial().damage(); }

 private:
  class Step : public StepContext, public SeesWorkers {
   public:
    explicit Step(const TrialAccess& access) : access_(access) {}
    const StepInfo& info() const override { return step_.info; }
    int64_t attempt() const override { return step_.attempt; }
    bool statistics_incomplete() const override { return incomplete_; }
    size_t tensor_count() const override { return access_.tensor_count(); }
    const TensorInfo& tensor(TensorIndex tensor) const override { return access_.tensor(tensor); }
    const std::string& worker_name(WorkerIndex worker) const override {
      return access_.workers()[shown_.empty() ? worker : first_.at(worker)].name;
    }
    std::vector<WorkerFate> workers() const override;
    std::string ErrorOf(const std::string& worker) const override;
    void ShowRowsThatKnow(uint64_t columns) const override;
    void ShowValuesBy(const RunPlan* plan) const override { plan_ = plan; }
    std::span<const HiddenRow> hidden_rows() const override { return hidden_; }
    std::span<const Rows> rows() const override { return rows_; }
    const std::string* Context(std::string_view topic) const override {
      const auto* const record = access_.ContextAt(topic, step_.info.global_step);
      return record == nullptr ? nullptr : &record->json;
    }
    std::span<const Scalar> scalars() const override;
    std::span<const WorkerIndex> raw_workers() const override;
    Result<TensorValue> Raw(TensorIndex tensor, WorkerIndex worker) const override;
    std::vector<RawValue> RawsOf(TensorIndex tensor) const override;
    Result<TensorValue> Read(const RawValue& raw) const override { return access_.ReadRaw(raw.in_trial); }
    std::optional<TensorIndex> StatisticOf(TensorIndex tensor, std::string_view statistic_id) const override {
      return access_.StatisticOf(tensor, statistic_id);
    }
    Result<Histogram> HistogramOf(const Row& row) const override {
      return access_.HistogramOf(row.in_trial());
    }

   private:
    friend class TrialSource;
    bool Drops(WorkerIndex worker) const;
    // By its rank: the same in every attempt, in whatever order a reader finds workers. Of two names with
    // one rank the second that was found has a number behind all ranks.
    WorkerIndex Shown(WorkerIndex worker) const { return shown_.empty() ? worker : shown_[worker]; }
    // This attempt's one of the name of a worker that is shown.
    WorkerIndex OfAttempt(WorkerIndex shown) const;
    void ShowWorkers();
    bool HidesValuesOf(TensorIndex tensor) const;

    const TrialAccess& access_;
    std::vector<int64_t> stopped_;  // attempts
    static constexpr WorkerIndex kMostRanks = 1 << 20;
    std::vector<WorkerIndex> shown_;  // by the trial's WorkerIndex; empty: they are the same
    std::map<WorkerIndex, WorkerIndex>
        first_;  // of what is shown, the trial's, in the first attempt that has it
    TrialAccess::Step step_;
    size_t position_ = 0;
    bool shed_ = false;
    mutable bool incomplete_ = false;
    mutable const RunPlan* plan_ = nullptr;
    mutable uint64_t columns_ = 0;
    mutable bool all_known_ = true;  // no row of the step lacks a column
    mutable std::vector<Rows> rows_;
    std::vector<WorkerIndex> lost_workers_;  // workers of the attempt that are lost at this step
    mutable std::vector<HiddenRow> hidden_;
    mutable std::vector<Scalar> scalars_;
    mutable bool scalars_read_ = false;
    mutable std::vector<WorkerIndex> raw_workers_;
  };

  bool StatisticsShed(size_t position, const TrialAccess::Step& step, std::span<const WorkerIndex> dropped);

  TrialAccess access_;
  Step step_;
  std::optional<std::vector<DroppedInfo>> dropped_;  // asked for once, and only where a step lost something
};

}  // namespace tdbg::rules
