// Where the recorder's rows go. The store's writer in training, a list in tests.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "format/records.h"
#include "tdbg/tensor.h"

namespace tdbg::capture {

/// store::WorkerWriter's calls that the hot path makes; their meaning is documented there.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void AppendTensorDef(const format::TensorDef& def) = 0;
  virtual void AppendSummaries(int64_t step, std::span<const format::SummaryRow> rows,
                               std::span<const uint8_t> histograms) = 0;
  virtual void AppendScalars(int64_t step, std::span<const format::ScalarRow> rows) = 0;
  virtual bool AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub, const TensorView& view,
                         format::DropKind worth) = 0;
  virtual void AppendContext(const format::ContextRecord& record) = 0;
  /// Forgets what was appended since the last commit, except for definitions and context: the next one has
  /// them.
  virtual void Discard() = 0;
  virtual void Commit(const format::Commit& commit) = 0;
  virtual void Heartbeat(int64_t step, int64_t wall_nanos) = 0;
  virtual void CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                            uint64_t bytes) = 0;
};

}  // namespace tdbg::capture
