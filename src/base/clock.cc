#include "base/clock.h"

#include <time.h>

#include <cstdio>

namespace tdbg::base {
namespace {

int64_t Nanos(clockid_t which) {
  timespec now;
  clock_gettime(which, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class MachineClock : public Clock {
 public:
  int64_t WallNanos() const override { return Nanos(CLOCK_REALTIME); }
  int64_t MonotonicNanos() const override { return Nanos(CLOCK_MONOTONIC); }
};

}  // namespace

const Clock& SystemClock() {
  // Never destroyed: the drain thread may outlive static destruction.
  static const Clock* const clock = new MachineClock;
  return *clock;
}

const char* FormatUtc(int64_t wall_nanos, char (&buffer)[32]) {
  // Rounded towards the past, before 1970 as well: '/' would round towards 1970.
  int64_t millis = wall_nanos / 1'000'000;
  if (wall_nanos % 1'000'000 < 0) --millis;
  int64_t fraction = millis % 1000;
  if (fraction < 0) fraction += 1000;
  const time_t seconds = static_cast<time_t>((millis - fraction) / 1000);
  tm utc{};
  gmtime_r(&seconds, &utc);
  // 64 bits of nanoseconds end in 2262, so the year has four digits; the % 10000 says so to the compiler.
  std::snprintf(buffer, sizeof(buffer), "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
                static_cast<unsigned>(utc.tm_year + 1900) % 10000u,
                static_cast<unsigned>(utc.tm_mon + 1) % 100u, static_cast<unsigned>(utc.tm_mday) % 100u,
                static_cast<unsigned>(utc.tm_hour) % 100u, static_cast<unsigned>(utc.tm_min) % 100u,
                static_cast<unsigned>(utc.tm_sec) % 100u, static_cast<unsigned>(fraction) % 1000u);
  return buffer;
}

}  // namespace tdbg::base
