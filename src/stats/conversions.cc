// Widening to float32 and float64, exactly; one copy per instruction set.
#include <cstring>

#include "stats/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stats/conversions.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "stats/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<float>;

// Plain loops: inside this namespace the compiler vectorises them for the target at hand.
template <typename In, typename Out>
HWY_INLINE void Convert(const void* in, size_t n, Out* HWY_RESTRICT out) {
  const In* HWY_RESTRICT from = static_cast<const In*>(in);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(from[i]);
}

HWY_INLINE void ConvertF16(const void* in, size_t n, float* out) {
  const D32 d;
  const size_t lanes = hn::Lanes(d);
  const auto* from = static_cast<const uint16_t*>(in);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(WidenF16(from + i), d, out + i);
  if (i == n) return;
  HWY_ALIGN uint16_t tail[hn::MaxLanes(D32())] = {};
  HWY_ALIGN float wide[hn::MaxLanes(D32())];
  std::memcpy(tail, from + i, (n - i) * sizeof *tail);
  hn::StoreU(WidenF16(tail), d, wide);
  std::memcpy(out + i, wide, (n - i) * sizeof *wide);
}

void ToFloatKernel(Source source, const void* in, size_t n, float* HWY_RESTRICT out) {
  switch (source) {
    case Source::kBool: {
      const auto* from = static_cast<const uint8_t*>(in);
      for (size_t i = 0; i < n; ++i) out[i] = from[i] != 0 ? 1.0f : 0.0f;
      return;
    }
    case Source::kU8:
      return Convert<uint8_t>(in, n, out);
    case Source::kI8:
      return Convert<int8_t>(in, n, out);
    case Source::kU16:
      return Convert<uint16_t>(in, n, out);
    case Source::kI16:
      return Convert<int16_t>(in, n, out);
    case Source::kF16:
      return ConvertF16(in, n, out);
    case Source::kBF16: {
      const auto* from = static_cast<const uint16_t*>(in);
      auto* bits = reinterpret_cast<unsigned char*>(out);
      for (size_t i = 0; i < n; ++i) {
        const uint32_t wide = uint32_t{from[i]} << 16;
        std::memcpy(bits + 4 * i, &wide, 4);
      }
      return;
    }
  }
}

void ToDoubleKernel(WideSource source, const void* in, size_t n, double* HWY_RESTRICT out) {
  switch (source) {
    case WideSource::kU32:
      return Convert<uint32_t>(in, n, out);
    case WideSource::kI32:
      return Convert<int32_t>(in, n, out);
    case WideSource::kU64:
      return Convert<uint64_t>(in, n, out);
    case WideSource::kI64:
      return Convert<int64_t>(in, n, out);
  }
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tdbg::stats {

HWY_EXPORT(ToFloatKernel);
HWY_EXPORT(ToDoubleKernel);

void ToFloat(Source source, const void* in, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ToFloatKernel)(source, in, n, out);
}
void ToDouble(WideSource source, const void* in, size_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(ToDoubleKernel)(source, in, n, out);
}

}  // namespace tdbg::stats
#endif
