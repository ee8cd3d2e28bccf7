// What was printed and waits to be kept: between those who hand output on, who never wait for a disk, and the
// thread that writes the log.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tdbg::jobs {

struct LogPiece {
  size_t source = 0;
  int64_t wall_nanos = 0, monotonic_nanos = 0;  ///< when it came
  std::string bytes;
  uint64_t lost_before = 0;  ///< of this source, what came since its last piece and was left out
  bool flush = false;        ///< everything that came so far is to be kept, as if nothing followed
};

/// A bounded queue and its thread. When the disk stalls and the queue is full, what comes is left out and
/// counted. A disk that is only slow may hold up who prints: half a second, and a tenth of the time from then
/// on. \threadsafety Any thread may call anything but the destructor.
class LogCopy {
 public:
  static constexpr size_t kMostBytes = 8u << 20;
  static constexpr int64_t kPatienceNanos = 500'000'000;

  /// \param keep  called on the queue's own thread, one piece after the other; may wait for the disk
  explicit LogCopy(std::function<void(const LogPiece&)> keep, size_t most_bytes = kMostBytes,
                   int64_t patience_nanos = kPatienceNanos);
  /// Waits until all that is in the queue is kept.
  ~LogCopy();
  void Put(size_t source, std::string_view bytes);
  /// Waits until all that was put for these sources, 0 to `sources` - 1, is kept.
  void Flush(size_t sources);

 private:
  void Run();
  bool WaitForRoom(size_t bytes, std::unique_lock<std::mutex>& lock);
  void Push(LogPiece piece);

  const std::function<void(const LogPiece&)> keep_;
  const size_t most_bytes_;
  const int64_t most_patience_nanos_;

  std::mutex mutex_;
  std::condition_variable came_, kept_;
  std::deque<LogPiece> waiting_;  // guarded by mutex_, as all of these
  size_t waiting_bytes_ = 0;
  uint64_t put_ = 0, done_ = 0;  // pieces
  std::map<size_t, uint64_t> lost_;
  int64_t patience_nanos_, patience_as_of_nanos_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tdbg::jobs
