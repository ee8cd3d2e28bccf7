// A few threads that help the training thread with a large batch of statistics.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace tdbg::capture {

/// Threads start with the first Run and sleep between runs. Every signal is blocked in them: a handler of the
/// training script must not run on a thread it does not know.
/// \threadsafety One caller at a time. Not usable, and harmless to destroy, in a child of fork().
class StatisticsPool {
 public:
  explicit StatisticsPool(int helpers) : helpers_(helpers) {}
  ~StatisticsPool();
  StatisticsPool(const StatisticsPool&) = delete;

  int lanes() const { return helpers_ + 1; }
  /// Calls work(lane) once for every lane 0..helpers, lane 0 on the calling thread; returns when all are
  /// done.
  void Run(const std::function<void(int lane)>& work);

 private:
  void Help(int lane);

  const int helpers_;
  int owner_pid_ = 0;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;  // written before round_, read after it
  std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> pending_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace tdbg::capture
