#include "base/bus_guard.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace tdbg::base {

/// \threadsafety Of atomics alone, for the handler of a signal: that of a forked child, too, whose parent may
/// have held any lock.
struct GuardedStretch::Slot {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<size_t> bytes{0};     // 0: not in use yet
  std::atomic<bool> torn{false};
};

namespace {

size_t PageSize() {
  static const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

/// Asks the kernel to copy eight bytes from there, where a load would be the signal. (It looks at the word
/// before it refuses what it is asked to do with it.)
bool Readable(const void* word) {
  constexpr int kNothingItKnows = -1;
  return ::syscall(SYS_rt_sigprocmask, kNothingItKnows, word, nullptr, 8) == 0 || errno != EFAULT;
}

/// Private zeros in place of what is gone. Not by libc's mmap: ThreadSanitizer takes that for a write to
/// every byte, a race with whoever writes there; the kernel exchanges the pages under them, which is meant.
bool MapZeros(uintptr_t begin, size_t bytes, int protection) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  return ::syscall(SYS_mmap, begin, bytes, protection, flags, -1, 0) != -1;
}

}  // namespace

struct GuardedStretches {
  GuardedStretch::Slot slots[64];

  static bool Replace(GuardedStretch::Slot& slot, uintptr_t from) {
    const uintptr_t end =
        slot.begin.load(std::memory_order_relaxed) + slot.bytes.load(std::memory_order_relaxed);
    // All behind it at once: where one page is gone those behind it mostly are, and a mapping of 65,530
    // pieces is more than the kernel allows.
    if (!MapZeros(from, end - from, PROT_READ | PROT_WRITE)) return false;
    slot.torn.store(true, std::memory_order_release);
    return true;
  }

  bool ReplaceAt(void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    for (GuardedStretch::Slot& slot : slots) {
      const size_t bytes = slot.bytes.load(std::memory_order_acquire);
      const uintptr_t begin = slot.begin.load(std::memory_order_relaxed);
      if (bytes != 0 && at - begin < bytes) return Replace(slot, at & ~(PageSize() - 1));
    }
    return false;
  }

  /// For a signal that carries no address: looks at all of them.
  bool ReplaceUnreadable() {
    bool any = false;
    for (GuardedStretch::Slot& slot : slots) {
      const size_t bytes = slot.bytes.load(std::memory_order_acquire);
      const uintptr_t begin = slot.begin.load(std::memory_order_relaxed);
      if (bytes == 0 || slot.torn.load(std::memory_order_relaxed)) continue;
      if (!Readable(reinterpret_cast<const void*>((begin + bytes - 8) & ~uintptr_t{7})))
        any |= Replace(slot, begin);
    }
    return any;
  }
};

/// Those that live, once SurviveTornMappings was called. The handler can take no mutex, but it may spin: who
/// faulted was reading a mapping, which nobody does while they hold this.
struct Mappings {
  std::atomic_flag busy;
  std::vector<const ReadOnlyMapping*> living;
  std::atomic<bool> wanted{false};
  char torn[PATH_MAX] = {};  // written once, before has_torn
  std::atomic<bool> has_torn = false;

  void lock() {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { busy.clear(std::memory_order_release); }

  /// False if the address lies in none of these mappings. Async-signal-safe.
  bool Replace(void* address) {
    if (!wanted.load(std::memory_order_relaxed)) return false;
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
    return MapZeros(at & ~(PageSize() - 1), PageSize(), PROT_READ);
  }
};

namespace {

// Never destroyed: mappings that outlive main still deregister themselves.
Mappings& Reads() {
  static Mappings* const all = new Mappings();
  return *all;
}
GuardedStretches& Writes() {
  static GuardedStretches* const all = new GuardedStretches();
  return *all;
}

/// Who had the signal before us. Two, so that the handler never reads one that is being written.
struct Before {
  struct sigaction actions[2] = {};
  std::atomic<int> last{0};
  std::atomic<bool> handed_over{false};
} before;

void OnBusError(int number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  // A handler that was installed after ours (Python's faulthandler enabled later) prints its report and
  // raises the signal anew, now without an address.
  const bool is_fault = info->si_code > 0;
  const bool ours = is_fault ? Writes().ReplaceAt(info->si_addr) || Reads().Replace(info->si_addr)
                             : Writes().ReplaceUnreadable();
  if (!ours) {
    // The earlier handler is installed, not called: it may leave by a jump, or remove itself. If we are here
    // a second time and did not reinstall ourselves, that handler did: handing over again would never end.
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    if (!before.handed_over.exchange(true))
      action = before.actions[before.last.load(std::memory_order_acquire)];
    ::sigaction(number, &action, nullptr);
    if (!is_fault) ::raise(number);  // a fault comes again by itself
  }
  errno = saved_errno;
}

}  // namespace

void ArmBusGuard() {
  static std::mutex* const arming = new std::mutex;
  const std::lock_guard guard(*arming);
  struct sigaction now = {};
  ::sigaction(SIGBUS, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  (void)PageSize(), (void)Reads(), (void)Writes();  // made here, and not in a handler
  const int next = 1 - before.last.load(std::memory_order_relaxed);
  before.actions[next] = now;
  before.last.store(next, std::memory_order_release);
  before.handed_over.store(false);
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, nullptr);
}

bool IsReadable(const std::byte* data, size_t bytes) {
  if (bytes == 0) return true;
  const uintptr_t page = PageSize();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  // The words at the ends lie in the first and the last page, whatever of these is the caller's.
  const uintptr_t first = begin & ~(page - 1), last = (begin + bytes - 1) & ~(page - 1);
#ifdef MADV_POPULATE_READ
  // One call for all, where the kernel knows it and nothing is wrong.
  if (last != first &&
      ::madvise(reinterpret_cast<void*>(first), last - first + page, MADV_POPULATE_READ) == 0)
    return true;
#endif
  for (uintptr_t at = first; at <= last; at += page) {
    if (!Readable(reinterpret_cast<const void*>(at))) return false;
  }
  return true;
}

GuardedStretch::GuardedStretch(std::byte* data, size_t bytes)
    : slot_(nullptr), last_word_(data + (bytes >= 8 ? (bytes - 8) / 8 * 8 : 0)) {
  ArmBusGuard();
  for (Slot& slot : Writes().slots) {
    uintptr_t free = 0;
    if (!slot.begin.compare_exchange_strong(free, reinterpret_cast<uintptr_t>(data))) continue;
    slot.torn.store(false, std::memory_order_relaxed);
    slot.bytes.store(bytes, std::memory_order_release);
    slot_ = &slot;
    return;
  }
}

GuardedStretch::~GuardedStretch() {
  if (slot_ == nullptr) return;
  slot_->bytes.store(0, std::memory_order_release);
  slot_->begin.store(0, std::memory_order_release);
}

bool GuardedStretch::torn() const {
  return (slot_ != nullptr && slot_->torn.load(std::memory_order_acquire)) || !Readable(last_word_);
}

void GuardReads(const ReadOnlyMapping* mapping) {
  if (!Reads().wanted.load(std::memory_order_relaxed)) return;
  const std::lock_guard guard(Reads());
  Reads().living.push_back(mapping);
}

void NoLongerGuardReads(const ReadOnlyMapping* mapping) {
  if (!Reads().wanted.load(std::memory_order_relaxed)) return;
  const std::lock_guard guard(Reads());
  std::erase(Reads().living, mapping);
}

void SurviveTornMappings() {
  if (Reads().wanted.exchange(true)) return;
  ArmBusGuard();
}

std::optional<std::string> TornMapping() {
  if (!Reads().has_torn.load(std::memory_order_acquire)) return std::nullopt;
  return std::string("cut short, or out of reach, while it was read: ") + Reads().torn;
}

}  // namespace tdbg::base
