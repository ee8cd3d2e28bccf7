#include "capture/openmp_team.h"

#include <dlfcn.h>

#include <atomic>
#include <exception>

namespace tdbg::capture {
namespace {

// libgomp's entry point for `#pragma omp parallel num_threads(n)`; its ABI since GCC 4.9.
using GompParallel = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

GompParallel Find() {
#if defined(__SANITIZE_THREAD__)
  return nullptr;  // TSan does not understand libgomp's barriers
#else
  static const auto found = reinterpret_cast<GompParallel>(::dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
#endif
}

struct Call {
  const std::function<void(int)>* work;
  int threads;
  std::atomic<int> next{0};
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error = nullptr;  // written by who set `failed`
};

/// An exception that left a thread of the team would end the process.
void Work(void* data) {
  auto* const call = static_cast<Call*>(data);
  // Numbers are handed out, not taken from omp_get_thread_num: the team's size is the runtime's decision.
  const int thread = call->next.fetch_add(1, std::memory_order_relaxed);
  if (thread >= call->threads) return;
  try {
    (*call->work)(thread);
  } catch (...) {
    if (!call->failed.test_and_set()) call->error = std::current_exception();
  }
}

}  // namespace

bool OpenMpTeam::Available() { return Find() != nullptr; }

void OpenMpTeam::Run(int threads, const std::function<void(int)>& work) {
  const GompParallel parallel = Find();
  if (parallel == nullptr || threads == 1) {
    work(0);
    return;
  }
  Call call{&work, threads};
  parallel(Work, &call, static_cast<unsigned>(threads), 0);
  if (call.error != nullptr) std::rethrow_exception(call.error);
}

}  // namespace tdbg::capture
