#include "jobs/log_copy.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/background.h"
#include "base/clock.h"

namespace tdbg::jobs {
namespace {

// A piece of one byte takes more memory than that.
constexpr size_t kBytesAround = 128;
constexpr int64_t kPatienceShare = 10;

int64_t Now() { return base::SystemClock().MonotonicNanos(); }

}  // namespace

LogCopy::LogCopy(std::function<void(const LogPiece&)> keep, size_t most_bytes, int64_t patience_nanos)
    : keep_(std::move(keep)),
      most_bytes_(most_bytes),
      most_patience_nanos_(patience_nanos),
      patience_nanos_(patience_nanos),
      patience_as_of_nanos_(Now()) {
  auto thread = base::StartInBackground("tdbg-log-disk", [this] { Run(); });
  if (thread.ok()) thread_ = *std::move(thread);  // else nothing is kept
}

LogCopy::~LogCopy() {
  {
    const std::lock_guard guard(mutex_);
    end_ = true;
  }
  came_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// The lock is let go while it waits. \return false if there is no room, and waiting for it took long enough
bool LogCopy::WaitForRoom(size_t bytes, std::unique_lock<std::mutex>& lock) {
  const auto fits = [&] { return waiting_.empty() || waiting_bytes_ + bytes <= most_bytes_; };
  if (!thread_.joinable()) return false;
  if (fits()) return true;
  const int64_t before = Now();
  patience_nanos_ =
      std::min(most_patience_nanos_, patience_nanos_ + (before - patience_as_of_nanos_) / kPatienceShare);
  patience_as_of_nanos_ = before;
  const bool fit = kept_.wait_for(lock, std::chrono::nanoseconds(patience_nanos_), fits);
  const int64_t after = Now();
  patience_nanos_ = std::max<int64_t>(0, patience_nanos_ - (after - before));
  patience_as_of_nanos_ = after;
  return fit;
}

void LogCopy::Push(LogPiece piece) {
  if (const auto lost = lost_.find(piece.source); lost != lost_.end()) {
    piece.lost_before = lost->second;
    lost_.erase(lost);
  }
  waiting_bytes_ += piece.bytes.size() + kBytesAround;
  ++put_;
  waiting_.push_back(std::move(piece));
  came_.notify_one();
}

void LogCopy::Put(size_t source, std::string_view bytes) {
  LogPiece piece = {source, base::SystemClock().WallNanos(), Now(), std::string(bytes), 0, false};
  std::unique_lock lock(mutex_);
  if (WaitForRoom(bytes.size() + kBytesAround, lock))
    Push(std::move(piece));
  else
    lost_[source] += bytes.size();
}

void LogCopy::Flush(size_t sources) {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return;
  for (size_t source = 0; source < sources; ++source)
    Push({source, base::SystemClock().WallNanos(), Now(), "", 0, true});
  kept_.wait(lock, [this, until = put_] { return done_ >= until; });
}

void LogCopy::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    came_.wait(lock, [this] { return end_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    LogPiece piece = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    keep_(piece);
    lock.lock();
    // Not before: what is being written takes memory, too.
    waiting_bytes_ -= piece.bytes.size() + kBytesAround;
    ++done_;
    kept_.notify_all();
  }
}

}  // namespace tdbg::jobs
