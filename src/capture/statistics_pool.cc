#include "capture/statistics_pool.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace tdbg::capture {

void StatisticsPool::Run(const std::function<void(int)>& work) {
  if (threads_.empty() && helpers_ > 0) {
    owner_pid_ = ::getpid();
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int lane = 1; lane <= helpers_; ++lane) threads_.emplace_back([this, lane] { Help(lane); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  work_ = &work;
  pending_.store(static_cast<uint32_t>(helpers_), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  for (uint32_t left; (left = pending_.load(std::memory_order_acquire)) != 0;) {
    pending_.wait(left, std::memory_order_acquire);
  }
}

void StatisticsPool::Help(int lane) {
  for (uint32_t seen = 0;;) {
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    (*work_)(lane);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_all();
  }
}

StatisticsPool::~StatisticsPool() {
  if (threads_.empty()) return;
  if (owner_pid_ != ::getpid()) {
    // fork() did not copy the threads. Joining would wait for ever, and so would destroying a std::thread.
    new std::vector<std::thread>(std::move(threads_));
    return;
  }
  stop_.store(true, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& t : threads_) t.join();
}

}  // namespace tdbg::capture
