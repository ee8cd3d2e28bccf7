// When attempts began and evaluations ran: what a strip of the whole run shows beside what was found.
#pragma once

#include <cstdint>
#include <vector>

#include "query/answer.h"
#include "trial/access.h"

namespace tdbg::query {

/// Takes in each complete step once, of which single steps are there. Bounded: in a run of more than
/// `kMostEvaluations` evaluations those that are near each other are one range, with the training steps
/// between.
class Phases {
 public:
  static constexpr size_t kMostEvaluations = 256;

  void Update(const TrialAccess& access);

  /// [{"attempt", "first_step"}]: the attempts that have steps in the run as it is read, in order of their
  /// steps.
  Json Attempts() const;
  /// [[first, last]], global steps, both included: ranges of steps of the modes EVAL and PREDICT.
  Json Evaluations() const;

 private:
  struct Attempt {
    int64_t attempt = 0;
    int64_t first_step = 0;
  };
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
  };
  void TakeInEvaluation(int64_t step);
  void Thin();  ///< leaves half as many ranges as there may be, or fewer

  uint64_t overlay_generation_ = 0;
  size_t taken_ = 0;
  bool evaluating_ = false;  ///< the last step belongs to the last range
  std::vector<Attempt> attempts_;
  int64_t near_ = 0;  ///< ranges that lie so many steps apart are one
  std::vector<Range> evaluations_;
};

}  // namespace tdbg::query
