#include "store/writer/leftover_sealer.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>

#include "base/background.h"
#include "store/writer/worker_writer.h"

namespace tdbg::store {

LeftoverSealer::LeftoverSealer(base::FileSystem* files, std::vector<std::string> worker_directories)
    : files_(files), worker_directories_(std::move(worker_directories)) {
  // The thread inherits the mask: the job's handlers never run on it.
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
    // No thread to be had: `tdbg run` seals them, or the next attempt.
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

LeftoverSealer::~LeftoverSealer() {
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

void LeftoverSealer::Run() noexcept {
  pthread_setname_np(pthread_self(), "tdbg-leftovers");
  base::StayInBackground();
  for (const std::string& directory : worker_directories_) {
    if (stop_.load(std::memory_order_relaxed)) return;
    try {
      (void)SealLeftovers(*files_, directory, &stop_).ok();
    } catch (const std::exception&) {  // std::bad_alloc is what can be
    }
  }
}

}  // namespace tdbg::store
