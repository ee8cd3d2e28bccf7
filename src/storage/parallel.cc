#include "storage/parallel.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace tdbg::storage {

Status InParallel(size_t count, int at_once, const std::function<Status(size_t)>& f) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failed;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      const Status done = f(i);
      if (done.ok()) continue;
      const std::lock_guard guard(mutex);
      if (failed.ok()) failed = done;
      next = count;
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < at_once && static_cast<size_t>(i) < count; ++i) others.emplace_back(work);
  work();
  others.clear();
  return failed;
}

}  // namespace tdbg::storage
