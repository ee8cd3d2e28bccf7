#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/file.h"
#include "base/posix.h"

namespace tdbg::base {

/// Those that live, once SurviveTornMappings was called, for the handler of SIGBUS, which can take no mutex.
/// It may spin: who faulted was reading a mapping, which nobody does while they hold this.
struct Mappings {
  std::atomic_flag busy;
  std::vector<const ReadOnlyMapping*> living;
  struct sigaction before = {};
  size_t page = 0;           // 0: nobody called it
  char torn[PATH_MAX] = {};  // written once, before has_torn
  std::atomic<bool> has_torn = false;

  void lock() {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { busy.clear(std::memory_order_release); }

  void Add(const ReadOnlyMapping* mapping) {
    if (page == 0) return;
    const std::lock_guard guard(*this);
    living.push_back(mapping);
  }

  void Remove(const ReadOnlyMapping* mapping) {
    if (page == 0) return;
    const std::lock_guard guard(*this);
    std::erase(living, mapping);
  }

  /// False if the address is none of ours. Only what a signal handler may do.
  bool Replace(void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard guard(*this);
    const auto hit = std::find_if(living.begin(), living.end(), [at](const ReadOnlyMapping* mapping) {
      return at - reinterpret_cast<uintptr_t>(mapping->data_) < mapping->size_;
    });
    if (hit == living.end()) return false;
    if (!has_torn.load(std::memory_order_relaxed)) {
      std::strncpy(torn, (*hit)->path_.c_str(), sizeof(torn) - 1);
      has_torn.store(true, std::memory_order_release);
    }
    return ::mmap(reinterpret_cast<void*>(at & ~(page - 1)), page, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
};

namespace {

// Never destroyed: mappings that outlive main take themselves out of it.
Mappings& All() {
  static Mappings* const all = new Mappings();
  return *all;
}

void OnBusError(int number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  // What is not ours faults again, and then on whoever was asked before us.
  if (!All().Replace(info->si_addr)) ::sigaction(number, &All().before, nullptr);
  errno = saved_errno;
}

}  // namespace

Result<std::shared_ptr<const ReadOnlyMapping>> ReadOnlyMapping::Open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return PathError(errno, "cannot open", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return PathError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("not a regular file: " + path);
  const std::shared_ptr<ReadOnlyMapping> mapping(new ReadOnlyMapping());
  if (info.st_size == 0) return std::shared_ptr<const ReadOnlyMapping>(mapping);  // mmap refuses length 0
  const size_t size = static_cast<size_t>(info.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return PathError(errno, "cannot map", path);
  mapping->path_ = path;
  mapping->data_ = static_cast<const std::byte*>(data);
  mapping->size_ = size;
  All().Add(mapping.get());
  return std::shared_ptr<const ReadOnlyMapping>(mapping);
}

ReadOnlyMapping::~ReadOnlyMapping() {
  if (data_ == nullptr) return;
  All().Remove(this);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void SurviveTornMappings() {
  if (All().page != 0) return;
  All().page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &All().before);
}

std::optional<std::string> TornMapping() {
  if (!All().has_torn.load(std::memory_order_acquire)) return std::nullopt;
  return std::string("cut short, or out of reach, while it was read: ") + All().torn;
}

}  // namespace tdbg::base
