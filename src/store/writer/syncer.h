// Makes published segments safe against power loss, beside the drain and not inside it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "store/writer/ring.h"

namespace tdbg::store {

/// A thread of its own: fdatasync of 64 MiB takes from 30 ms to a second, in which the drain would neither
/// ring the doorbell nor free journal space. It works on paths, since a published segment never changes.
///
/// No call can cut an fdatasync short, and on a disk in trouble one takes minutes, which a training must not
/// wait for at its end. So the thread owns what it works with and can be left alone with it: it then goes on
/// for as long as the process lives. That is sound without the worker's lock, too. What it syncs is complete
/// and stays as it is, whoever holds the lock next; and if the process ends first, the kernel writes the
/// segments as it writes any file.
/// \threadsafety Enqueue and Finish from one thread.
class Syncer {
 public:
  /// Borrows `handoff` until it is destroyed. Throws std::system_error where no thread is to be had.
  explicit Syncer(Handoff* handoff);
  /// As Finish(0).
  ~Syncer();
  /// Never fails: what cannot be enqueued is not synced, and the error is noted.
  void Enqueue(std::string path);
  /// Waits until everything enqueued is synced. False if it is not after `timeout_nanos`: the thread is left
  /// alone with the rest. Enqueue nothing afterwards.
  bool Finish(int64_t timeout_nanos);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex.
    std::deque<std::string> queue;
    bool stop = false;
    bool done = false;
    Handoff* handoff;  // null once left alone
  };
  static void Run(State* state);

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tdbg::store
