// Sets the processor's floating-point mode while we compute, and restores it afterwards.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace tdbg::stats {

/// Sets round-to-nearest, no traps, subnormal inputs honoured, and puts the caller's mode back.
///
/// A framework may have set flush-to-zero and denormals-are-zero for speed (torch.set_flush_denormal).
/// With DAZ a comparison takes a subnormal for zero, so counts and extrema would depend on that setting.
class FloatingPointMode {
 public:
  /// `flush_results`: results below the normal range become 0. Right where sums are of float32 scaled
  /// to about 1: what is lost is 1e-38 of the largest element, and processors that trap to microcode
  /// for each such result would run many times slower.
  explicit FloatingPointMode(bool flush_results) {
#if defined(__SSE__)
    saved_ = _mm_getcsr();
    const uint32_t wanted = 0x1f80u | (flush_results ? 0x8000u : 0u);
    // Writing it waits for everything in flight, twice per tensor; a batch's caller may have set it already.
    changed_ = (saved_ & ~kStickyFlags) != wanted;
    if (changed_) _mm_setcsr(wanted);
#else
    (void)flush_results;
#endif
  }
  ~FloatingPointMode() {
#if defined(__SSE__)
    if (changed_) _mm_setcsr(saved_);
#endif
  }
  FloatingPointMode(const FloatingPointMode&) = delete;
  FloatingPointMode& operator=(const FloatingPointMode&) = delete;

 private:
  static constexpr uint32_t kStickyFlags = 0x3f;
  uint32_t saved_ = 0;
  bool changed_ = false;
};

}  // namespace tdbg::stats
