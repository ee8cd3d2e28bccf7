// Makes published segments safe against power loss, beside the drain and not inside it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "store/writer/ring.h"

namespace tdbg::store {

/// A thread of its own: fdatasync of 64 MiB takes from 30 ms to a second, in which the drain would neither
/// ring the doorbell nor free journal space. It works on paths, since a published segment never changes.
/// \threadsafety Enqueue from one thread.
class Syncer {
 public:
  /// Throws std::system_error where no thread is to be had.
  explicit Syncer(Handoff* handoff);
  /// Syncs what was enqueued, then ends the thread.
  ~Syncer();
  /// Never fails: what cannot be enqueued is not synced, and the error is noted.
  void Enqueue(std::string path);

 private:
  void Run();
  Handoff* const handoff_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;  // guarded by mutex_
  bool stop_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace tdbg::store
