#include "base/background.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <utility>

#include "base/catching.h"
#include "base/posix.h"

namespace tdbg::base {

Result<std::thread> StartInBackground(const char* name, std::function<void()> body) {
  const sigset_t all = AllSignalsButFaults();
  sigset_t previous;
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  auto started = Catching([&]() -> Result<std::thread> {
    return std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      StayInBackground();
      body();
    });
  });
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return started;
}

void StayInBackground() {
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_BATCH, &none);  // 0: the calling thread, not its process
}

}  // namespace tdbg::base
