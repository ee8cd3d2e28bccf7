// Times that people give, in bounds: the sum of a clock and any of these is a time, and no overflow.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tdbg::base {

inline constexpr int64_t kLongestSeconds = 1'000'000'000;  // thirty years: for ever, of a job or a wait

inline constexpr int64_t MillisOfSeconds(int64_t seconds) {
  return std::clamp(seconds, -kLongestSeconds, kLongestSeconds) * 1000;
}
inline constexpr int64_t NanosOfMillis(int64_t millis) {
  return std::clamp(millis, -kLongestSeconds * 1000, kLongestSeconds * 1000) * 1'000'000;
}

}  // namespace tdbg::base
