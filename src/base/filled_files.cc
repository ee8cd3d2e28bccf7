#include "base/filled_files.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace tdbg::base {
namespace {

struct Registered {
  std::string directory;
  std::weak_ptr<Filler> filler;
};
std::mutex mutex;
std::vector<Registered>& List() {  // guarded by mutex; lives for ever, as threads may outlive main
  static auto* const list = new std::vector<Registered>();
  return *list;
}
std::atomic<bool> any{false};

}  // namespace

void FillBelow(const std::string& directory, const std::shared_ptr<Filler>& filler) {
  const std::lock_guard guard(mutex);
  std::erase_if(List(), [](const Registered& one) { return one.filler.expired(); });
  List().push_back({directory + "/", filler});
  any = true;
}

std::shared_ptr<Filler> FillerOf(const std::string& path) {
  if (!any.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard guard(mutex);
  for (const Registered& one : List()) {
    if (!path.starts_with(one.directory)) continue;
    if (auto filler = one.filler.lock()) return filler;
  }
  return nullptr;
}

}  // namespace tdbg::base
