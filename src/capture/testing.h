// For tests: a sink that remembers everything, and a recorder over it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/recorder.h"

namespace tdbg::capture {

class FakeSink : public Sink {
 public:
  void AppendTensorDef(const format::TensorDef& def) override { defs.push_back(def); }
  void AppendSummaries(int64_t, std::span<const format::SummaryRow> rows,
                       std::span<const uint8_t> histograms) override {
    log.push_back("summaries");
    for (const format::SummaryRow& row : rows) {
      summaries.push_back(row);
      const auto bytes = histograms.subspan(row.histogram_offset, row.histogram_bytes);
      histogram_of.push_back(row.histogram_bytes == 0 ? Histogram{} : *DecodeHistogram(bytes));
    }
  }
  void AppendScalars(int64_t, std::span<const format::ScalarRow> rows) override {
    scalars.insert(scalars.end(), rows.begin(), rows.end());
  }
  bool AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub, const TensorView& view,
                 format::DropKind worth) override {
    if (worth == format::DropKind::kSummary) {
      log.push_back("statistic");
      statistics.push_back({step, defs.at(tensor).name, sub, *DecodeStatistic(view)});
      return true;
    }
    log.push_back("raw");
    raws.push_back({step, tensor});
    raw_bytes.emplace_back(view.byte_count());
    CopyContiguous(view, raw_bytes.back().data());
    return true;
  }
  void AppendContext(const format::ContextRecord& record) override { contexts.push_back(record); }
  void Discard() override { ++discards; }
  void Commit(const format::Commit& commit) override {
    log.push_back("commit");
    commits.push_back(commit);
  }
  void Heartbeat(int64_t step, int64_t) override { heartbeats.push_back(step); }
  void CountDropped(format::DropCause cause, format::DropKind, int64_t, uint64_t count, uint64_t) override {
    for (uint64_t i = 0; i < count; ++i) dropped.push_back(cause);
  }

  struct Derived {
    int64_t step;
    std::string name;
    format::SubKey sub;
    StatisticValue value;
  };

  std::vector<std::string> log;
  std::vector<Derived> statistics;
  std::vector<format::TensorDef> defs;
  std::vector<format::SummaryRow> summaries;
  std::vector<Histogram> histogram_of;
  std::vector<format::ScalarRow> scalars;
  std::vector<std::pair<int64_t, uint32_t>> raws;
  std::vector<std::vector<std::byte>> raw_bytes;
  std::vector<format::ContextRecord> contexts;
  std::vector<format::Commit> commits;
  std::vector<int64_t> heartbeats;
  std::vector<format::DropCause> dropped;
  int discards = 0;
};

/// The default plan, with raw tensors of `kind` at every `interval`th TRAIN step.
inline plan::Plan PlanWithRaw(const std::string& collection, int64_t interval) {
  plan::Plan plan = plan::Plan::Default();
  for (plan::CollectionPlan& c : plan.collections) {
    if (c.name == collection) c.raw[1] = plan::Schedule{.interval = interval};
  }
  return plan;
}

/// The default plan, with derived statistics of outputs and nothing else of them.
inline plan::Plan PlanWithStatistics(const std::vector<const char*>& ids) {
  plan::Plan plan = plan::Plan::Default();
  plan::CollectionPlan own;
  own.name = "rule:Own";
  own.kinds = {"output"};
  own.keep = true;
  own.summaries = own.histogram = false;
  for (const char* id : ids) own.statistics.push_back(*Statistic::FromId(id));
  plan.collections.push_back(own);
  return plan;
}

/// What it records does not depend on how fast the machine is.
inline plan::Plan WithoutLimit(plan::Plan plan) {
  plan.overhead = 0;
  return plan;
}

class RecorderTest : public testing::Test {
 protected:
  void Start(const plan::Plan& plan, RecorderOptions options = {}) {
    recorder_ = std::make_unique<Recorder>(*plan::CompiledPlan::Compile(WithoutLimit(plan)), &sink_, options);
  }
  Recorder::Id Define(const std::string& name, const std::string& kind, std::vector<int64_t> shape,
                      DType dtype = DType::kFloat32) {
    return recorder_->Define({.name = name, .kind = kind, .dtype = dtype, .shape = std::move(shape)});
  }
  void PutFloats(Recorder::Id id, const std::vector<float>& values) {
    const int64_t shape[] = {static_cast<int64_t>(values.size())};
    recorder_->Put(id, {values.data(), DType::kFloat32, shape, {}}, {});
  }
  void Step(ModeKey mode, const std::function<void()>& body = [] {}) {
    recorder_->BeginStep(mode);
    body();
    recorder_->EndStep(false);
  }

  FakeSink sink_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace tdbg::capture
