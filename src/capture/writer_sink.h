// The sink of a real run.
#pragma once

#include "capture/sink.h"
#include "store/writer/worker_writer.h"

namespace tdbg::capture {

/// Borrows the writer.
class WriterSink final : public Sink {
 public:
  explicit WriterSink(store::WorkerWriter* writer) : writer_(writer) {}

  void AppendTensorDef(const format::TensorDef& def) override { writer_->AppendTensorDef(def); }
  void AppendSummaries(int64_t step, std::span<const format::SummaryRow> rows,
                       std::span<const uint8_t> histograms) override {
    writer_->AppendSummaries(step, rows, histograms);
  }
  void AppendScalars(int64_t step, std::span<const format::ScalarRow> rows) override {
    writer_->AppendScalars(step, rows);
  }
  bool AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub, const TensorView& view,
                 format::DropKind worth) override {
    return writer_->AppendRaw(step, tensor, sub, view, worth);
  }
  void AppendContext(const format::ContextRecord& record) override { writer_->AppendContext(record); }
  void Discard() override { writer_->Discard(); }
  void Commit(const format::Commit& commit) override { writer_->Commit(commit); }
  void Heartbeat(int64_t step, int64_t wall_nanos) override { writer_->Heartbeat(step, wall_nanos); }
  void CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                    uint64_t bytes) override {
    writer_->CountDropped(cause, kind, step, count, bytes);
  }

 private:
  store::WorkerWriter* writer_;
};

}  // namespace tdbg::capture
