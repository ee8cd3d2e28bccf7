#include "base/background.h"

#include <sched.h>

namespace tdbg::base {

void StayInBackground() {
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_BATCH, &none);  // 0: the calling thread, not its process
}

}  // namespace tdbg::base
