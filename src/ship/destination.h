// Where steps of a run are shipped to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tdbg/status.h"
#include "trial/access.h"

namespace tdbg::ship {

/// What was written, in numbers.
struct Shipped {
  int64_t steps = 0;
  uint64_t bytes = 0;
  std::vector<std::pair<std::string, uint64_t>>
      counts;  ///< "scalars", "tensors", ...: each in the plural, by an s
};

/// One format, being written from a run's steps as they come. A failed call leaves it unusable.
class Destination {
 public:
  virtual ~Destination() = default;
  /// A complete step, by its position in access.steps(). Ascending, except after Rewind.
  virtual Status Take(const TrialAccess& access, size_t step) = 0;
  /// A later attempt took over from this global step on: what was taken of it and after it no longer holds.
  virtual Status Rewind(int64_t global_step) = 0;
  /// Makes visible what was taken.
  virtual Status Flush() = 0;
  /// No more will come. \pre Flush returned OK after the last Take
  virtual Status Finish(const TrialAccess& access) = 0;
  virtual Shipped shipped() const = 0;
};

/// Which steps, tensors and workers are shipped.
class Choice {
 public:
  struct Options {
    std::string regex, collection;  ///< as Selection::Make takes them
    int64_t begin = 0, end = -1;    ///< global steps, end exclusive; -1: no end
    int64_t every = 1;              ///< mode steps that are multiples of it
    std::string worker;             ///< empty: all
  };
  /// \error kInvalidArgument  the regex, every < 1
  static Result<Choice> Make(const Options& options);

  bool WantsStep(const StepInfo& step) const {
    return step.global_step >= options_.begin && (options_.end < 0 || step.global_step < options_.end) &&
           step.mode_step % options_.every == 0;
  }
  bool WantsWorker(const TrialAccess::Worker& worker) const {
    return options_.worker.empty() || worker.name == options_.worker;
  }
  bool WantsTensor(TensorIndex tensor) const { return tensors_.contains(tensor); }
  /// Looks at tensors that are new. Call before asking about a step's tensors.
  void Update(const TrialAccess& access) { tensors_.Update(access); }
  std::span<const TensorIndex> tensors() const { return tensors_.tensors(); }
  const Options& options() const { return options_; }

 private:
  Choice(Options options, Selection tensors) : options_(std::move(options)), tensors_(std::move(tensors)) {}

  Options options_;
  Selection tensors_;
};

}  // namespace tdbg::ship
