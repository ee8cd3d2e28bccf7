#include <algorithm>
#include <iterator>

#include "plan/hook_config.h"
#include "plan/plan.h"

namespace tdbg::plan {

bool Schedule::Due(int64_t mode_step) const {
  // smdebug: the listed steps are due whatever start and end say.
  if (std::binary_search(steps.begin(), steps.end(), mode_step)) return true;
  if (mode_step < start || (end >= 0 && mode_step >= end)) return false;
  return interval >= 1 && mode_step % interval == 0;
}

Schedule MoreOf(const Schedule& a, const Schedule& b) {
  Schedule more = a.end == 0 ? b : a;
  if (a.end != 0 && b.end != 0) {
    more.interval = std::min(a.interval, b.interval);
    more.start = std::min(a.start, b.start);
    more.end = a.end < 0 || b.end < 0 ? -1 : std::max(a.end, b.end);
  }
  more.steps.clear();
  std::set_union(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                 std::back_inserter(more.steps));
  return more;
}

}  // namespace tdbg::plan
