// Rows that stand for 16, 256, ... steps (docs/format.md, "Levels"): where single steps' rows were dropped,
// and where nobody needs to look at each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/reader/level_reader.h"
#include "trial/access.h"

namespace tdbg {

struct WorkerLevels;

/// A view of a trial's coarse rows. Cheap to construct; borrows the trial. Answers are of the last Refresh of
/// the trial that found something. \threadsafety The trial's.
class CoarseRows {
 public:
  static constexpr TensorIndex kNoTensor = ~TensorIndex{0};

  explicit CoarseRows(const Trial& trial) : trial_(&trial) {}

  /// Rows [begin, end) of one worker's file, all of one group of steps. Valid until the trial's next Refresh.
  struct Span {
    WorkerIndex worker = 0;
    uint32_t level = 0;
    int64_t step_first = 0, step_last = 0;
    const store::LevelRows* rows = nullptr;
    size_t begin = 0, end = 0;
    std::span<const TensorIndex> tensor_of;  ///< by the file's own ids; beyond it, or kNoTensor: unknown
    bool keeps_parts = false;                ///< its rows of a tensor that is in parts are those of a part

    TensorIndex TensorAt(size_t row) const {
      const uint32_t id = rows->summaries.tensor[row];
      return id < tensor_of.size() ? tensor_of[id] : kNoTensor;
    }
  };
  /// The longest group that tells of exactly the steps at positions [begin, begin + n), n <= end - begin, and
  /// that every worker has: a span for each. Where tensors are kept in parts there is none: of what the parts
  /// are together only single steps tell.
  /// \return n; 0: there is none
  size_t From(size_t begin, size_t end, std::vector<Span>* spans) const;
  /// The shortest groups that tell of a step, one of each worker that has any.
  void Of(size_t position, std::vector<Span>* spans) const;
  /// Rows of the step were dropped, since coarse ones tell of it.
  bool IsThinned(size_t position) const;

  struct Thinned {
    size_t steps = 0;
    int64_t first = -1, last = -1;  ///< global steps; others between them may be whole
  };
  /// Those steps of the overlay. Looks at each.
  Thinned ThinnedSteps() const;

  /// Points of a tensor's line at steps whose rows were dropped: of each group the first, smallest, largest
  /// and last value, each at its step, and the first that are not finite; ascending.
  struct Points {
    std::vector<int64_t> steps;
    std::vector<double> values;
    /// A step's rows were dropped, and no coarse row says what was asked for.
    bool lost = false;
  };
  /// \param field   "value" or one of format::kDrawnNames
  /// \param worker  as for Trial::series
  Points PointsOf(TensorIndex tensor, std::string_view field, std::string_view worker, int64_t begin,
                  int64_t end) const;

 private:
  const Trial* trial_;
};

/// What the trial's damage() says of coarse rows that were looked at.
std::vector<std::string> DamagedLevelsOf(const WorkerLevels& levels);

}  // namespace tdbg
