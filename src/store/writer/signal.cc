#include "store/writer/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tdbg::store {

void Signal::Wait(uint32_t ticket, int64_t timeout_nanos) {
  timespec timeout{static_cast<time_t>(timeout_nanos / 1'000'000'000),
                   static_cast<long>(timeout_nanos % 1'000'000'000)};
  // Announced before the kernel compares the word: a Notify in between either sees a sleeper or changes the
  // word.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count_), FUTEX_WAIT_PRIVATE, ticket,
            timeout_nanos < 0 ? nullptr : &timeout, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Signal::Notify() {
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
              0);
  }
}

}  // namespace tdbg::store
