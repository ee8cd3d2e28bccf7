// Wakes a thread that sleeps; costs the waker one atomic add when nobody does.
#pragma once

#include <atomic>
#include <cstdint>

namespace tdbg::store {

/// An event counter over a futex. A condition variable would need a mutex, which the sleeper may hold at the
/// very moment the training thread wants to wake it; std::atomic::wait knows no timeout.
///
///   const uint32_t ticket = signal.Ticket();
///   if (nothing to do) signal.Wait(ticket, timeout);   // returns at once if somebody notified since
///   Ticket()
///
/// \threadsafety Any thread.
class Signal {
 public:
  uint32_t Ticket() const { return count_.load(std::memory_order_seq_cst); }
  /// \param timeout_nanos  negative: none. May return early.
  void Wait(uint32_t ticket, int64_t timeout_nanos);
  /// At most one system call, and none while nobody waits.
  void Notify();

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> sleepers_{0};
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
};

}  // namespace tdbg::store
