// Time, handed in so that a test can stop it.
#pragma once

#include <cstdint>

namespace tdbg::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t WallNanos() const = 0;       ///< since the Unix epoch; may jump
  virtual int64_t MonotonicNanos() const = 0;  ///< never goes back; zero is arbitrary
};

/// The machine's clocks. Lives for ever.
const Clock& SystemClock();

/// A clock that moves only when told to.
class ManualClock : public Clock {
 public:
  int64_t WallNanos() const override { return wall; }
  int64_t MonotonicNanos() const override { return monotonic; }
  void Advance(int64_t nanos) {
    wall += nanos;
    monotonic += nanos;
  }
  int64_t wall = 1'700'000'000'000'000'000;
  int64_t monotonic = 0;
};

/// "2026-11-21T15:20:03.123Z"
const char* FormatUtc(int64_t wall_nanos, char (&buffer)[32]);

}  // namespace tdbg::base
