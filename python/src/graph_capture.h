// Tensors of a TensorFlow graph, recorded where they are computed: an operation of ours in the graph gets the
// tensor, puts it into the run and passes it on, without a copy and without the interpreter.
//
// Asked for as an output of the step instead, a gradient would have to live until the step is over; the
// update that could write into its memory needs other memory then, and every output costs a step 40 us by
// itself.
//
// The operation is registered through TensorFlow's C interface (tensorflow/c/ops.h, kernels.h), whose symbols
// are looked up in the library that the process has loaded: nothing of ours is linked to it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tdbg/run.h"

namespace tdbg::python {

/// What became of the tensor of a training's batch.
struct BatchMark {
  std::optional<uint32_t> fingerprint;  ///< none: it is empty
  DType dtype;
  std::vector<int64_t> shape;  ///< empty: of no axes
};

/// The slots of the graphs that record into one run. A slot is the number that an operation carries.
/// \threadsafety `begin` and `end` belong to the thread that runs a step; operations of one step may run in
/// any thread, and wait for one another.
class GraphCapture {
 public:
  /// \param run  not owned; outlives this.
  explicit GraphCapture(Run* run);
  ~GraphCapture();  ///< operations that are left in a graph pass their tensors on
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  /// Registers the operation with TensorFlow, once for the process.
  /// \param library  path of libtensorflow_framework, which the process has loaded
  /// \return empty, or why there is none
  static std::string Install(const std::string& library);
  static constexpr const char* kOperation = "TdbgCapture";

  /// Slot of a tensor. It is defined in the run when its first value comes: then its shape is known.
  /// `spec.shape` and `spec.dtype` are not read.
  int64_t AddTensor(const TensorSpec& spec, int sub);
  /// Slot of a number: of a series, one element of any real type.
  int64_t AddNumber(Run::Id series);
  /// Slot of the batch that a step is given: see BatchMark.
  int64_t AddBatch();

  /// From here to `End` operations put into the run's open step; before and after they pass tensors on.
  void Begin();
  /// The step's batch, if its operation ran.
  std::optional<BatchMark> End();

  struct State;

 private:
  Run* run_;
  std::shared_ptr<State> state_;
};

void BindGraphCapture(nanobind::module_* m);

}  // namespace tdbg::python
