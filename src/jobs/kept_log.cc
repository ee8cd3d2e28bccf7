#include "jobs/kept_log.h"

#include <string_view>
#include <utility>

#include "base/clock.h"

namespace tdbg::jobs {
namespace {

// What is younger is of the step that is read now.
constexpr int64_t kYoungNanos = 100'000'000;

}  // namespace

KeptLog::KeptLog(LogTask task) : task_(std::move(task)), heartbeat_(task_.run_directory, task_.attempt) {
  for (const LogTask::Source& source : task_.sources)
    streams_.push_back({static_cast<OutputStream>(source.stream), SecretMask(task_.secrets)});
}

void KeptLog::Keep(const LogPiece& piece) {
  if (!std::exchange(opened_, true)) {
    auto writer = OutputWriter::Open(task_.run_directory, task_.attempt, task_.limit_bytes, task_.node);
    if (writer.ok()) writer_ = *std::move(writer);  // else it is passed on, and not kept
  }
  if (!writer_) return;
  Stream& stream = streams_[piece.source];
  std::string_view bytes = piece.bytes;
  uint64_t lost = piece.lost_before;
  if (lost > 0) {
    // A secret may have been cut in two: neither half is recognised any more.
    lost += stream.mask.Forget();
    stream.torn = true;
  }
  if (stream.torn && !bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    const size_t cut = end == std::string_view::npos ? bytes.size() : end + 1;
    stream.torn = end == std::string_view::npos;
    bytes.remove_prefix(cut);
    lost += cut;
  }
  writer_->Lose(lost);
  Write(stream, piece, stream.mask.Feed(bytes));
  if (!piece.flush) return;
  Write(stream, piece, stream.mask.Flush());
  writer_->SayLost();
}

void KeptLog::Write(const Stream& stream, const LogPiece& piece, const std::string& text) {
  if (text.empty()) return;
  writer_->Append(text, stream.stream, piece.wall_nanos, StepAt(piece.monotonic_nanos));
}

// Of a piece that waited long, the step of its time: the newest that had been read by then.
int64_t KeptLog::StepAt(int64_t monotonic_nanos) {
  const int64_t now = base::SystemClock().MonotonicNanos(), step = heartbeat_.Step();
  if (readings_.empty() || step != readings_.back().step) readings_.push_back({now, step});
  if (now - monotonic_nanos < kYoungNanos) return step;
  while (readings_.size() > 1 && readings_[1].monotonic_nanos <= monotonic_nanos) readings_.pop_front();
  return readings_.front().step;
}

}  // namespace tdbg::jobs
