#include <algorithm>

#include "plan/plan.h"

namespace tdbg::plan {

bool Schedule::Due(int64_t mode_step) const {
  // smdebug: the listed steps are due whatever start and end say.
  if (std::binary_search(steps.begin(), steps.end(), mode_step)) return true;
  if (mode_step < start || (end >= 0 && mode_step >= end)) return false;
  return interval >= 1 && mode_step % interval == 0;
}

}  // namespace tdbg::plan
