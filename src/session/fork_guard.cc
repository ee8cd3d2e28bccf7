#include "session/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace tdbg::session {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkListener*> listeners;
};

Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

void AddForkListener(ForkListener* listener) {
  // Held across fork, so that the child never finds the list half changed or the mutex held by nobody.
  static const int registered =
      ::pthread_atfork([] { TheRegistry().mutex.lock(); }, [] { TheRegistry().mutex.unlock(); },
                       [] {
                         for (ForkListener* l : TheRegistry().listeners) l->OnForkedChild();
                         TheRegistry().listeners.clear();
                         TheRegistry().mutex.unlock();
                       });
  (void)registered;
  const std::lock_guard guard(TheRegistry().mutex);
  TheRegistry().listeners.push_back(listener);
}

void RemoveForkListener(ForkListener* listener) {
  const std::lock_guard guard(TheRegistry().mutex);
  auto& all = TheRegistry().listeners;
  all.erase(std::remove(all.begin(), all.end(), listener), all.end());
}

}  // namespace tdbg::session
