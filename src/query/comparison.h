// Compares two runs: at which step they begin to differ, and by how much.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::query {

/// Equal: both NaN, or |a - b| <= atol + rtol * |b|. Both 0: a == b.
struct Tolerance {
  double rtol = 0, atol = 0;
  bool exact() const { return rtol == 0 && atol == 0; }
  bool Holds(double a, double b) const;
};

/// One tensor of one worker at one step, different in the two runs.
struct Difference {
  StepInfo step;
  std::string tensor, worker;
  bool by_values = false;  ///< otherwise by statistics, because one of the two has no raw value there
  double max_abs = 0;      ///< of |a - b|; NaN if one of them is not finite. Statistics: of `field`
  double a = 0, b = 0;     ///< where the difference is largest, relative to |b|
  int64_t elements = 0, different = 0;  ///< by values
  int64_t index = -1;                   ///< by values: of a and b, in C order; -1: no numbers (complex, text)
  std::string field;                    ///< by statistics
  std::string shape_a, shape_b;  ///< set where dtype or shape differ at this step: nothing was compared
};

struct Comparison {
  struct Declared {
    std::string tensor, a, b;  ///< "float32 [3, 4]"
  };
  struct Part {
    std::vector<std::string> tensors, workers;
    std::vector<int64_t> steps;  ///< global
    bool empty() const { return tensors.empty() && workers.empty() && steps.empty(); }
  };
  Part only_a, only_b;  ///< what the other does not have and never will
  /// What the other run has and this one, still being recorded, has not reached yet: no difference so far.
  Part to_come_a, to_come_b;
  std::vector<Declared> shapes;                   ///< declared dtype or shape differ
  int64_t steps = 0, values = 0, statistics = 0;  ///< compared
  int64_t elements = 0;                           ///< of those values
  int64_t last_step = -1;                         ///< that was compared
  /// Where to go on: the first step that was not looked at because `go_on` said so; -1: all were, or they
  /// part.
  int64_t next_step = -1;
  /// Of these steps, those of which one of the runs has dropped rows since (`tdbg compact --budget`): they
  /// were compared in what is left of them.
  int64_t thinned = 0;
  int64_t unread = 0;  ///< values and statistics that are damaged in one of the two; the trials say how
  std::vector<Difference> first;  ///< of the first step with any: all of its differences, in the order in
                                  ///< which the first run came to know its tensors
  bool same() const;
};

/// Complete steps both have, ascending, up to the first that differs. Values are compared where both kept
/// them, else statistics. Of a tensor that is kept in parts (FSDP) each worker's part, or the whole (worker
/// "") where the runs divide it differently.
/// \param go_on  called before each step with what was found so far; false: leave it there
/// \error kInvalidArgument  the regex;
Result<Comparison> Compare(const Trial& a, const Trial& b, const TensorFilter& which,
                           const Tolerance& tolerance,
                           const std::function<bool(int64_t step, const Comparison& so_far)>& go_on);

}  // namespace tdbg::query
