// Puts a scenario on disk, as a training process would have: real journals and segments, through the store's
// writer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/records.h"
#include "scenario.h"
#include "store/writer/worker_writer.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"

namespace tdbg::scenarios {

class RunWriter {
 public:
  /// `directory` must not exist. Tensors of `scenario` are defined, none of its steps written.
  static Result<std::unique_ptr<RunWriter>> Create(const std::string& directory, const Scenario& scenario);

  /// One worker's part of one step.
  Status Write(int64_t worker, const Step& step);
  /// Says goodbye for all workers and seals.
  void End();

 private:
  RunWriter() = default;

  std::vector<Tensor> tensors_;
  std::map<std::string, format::TensorId> ids_;
  std::vector<std::unique_ptr<store::WorkerWriter>> workers_;
};

/// All of a scenario: its run, and the other one beside it where there is one.
Status WriteRuns(const Scenario& scenario, const std::string& directory);
/// Only the other one, as `other` beside `directory`.
Status WriteOther(const Scenario& scenario, const std::string& directory);

}  // namespace tdbg::scenarios
