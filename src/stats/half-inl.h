// float16 to float32, once per instruction set: included by files that Highway compiles so.

// Toggled by Highway's own guard, because each instruction set includes this file again.
#if defined(TDBG_STATS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TDBG_STATS_HALF_INL_H_
#undef TDBG_STATS_HALF_INL_H_
#else
#define TDBG_STATS_HALF_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tdbg::stats::HWY_NAMESPACE {

// One vector of float32.
HWY_INLINE hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> WidenF16(const uint16_t* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  // Highway 1.0.3 promotes float16 without regard to infinity and NaN where the processor cannot
  // (65536 for infinity), so the bits are moved here, and the same way on every other target.
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const auto bits = hn::PromoteTo(du, hn::LoadU(half, from));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto rebias = hn::Set(du, 112u << 23);
  const auto shifted = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto non_finite = hn::Add(shifted, rebias);
  const auto subnormal = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1p-24f));
  auto r = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7bff)), non_finite, shifted);
  r = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), hn::BitCast(du, subnormal), r);
  return hn::BitCast(d, hn::Or(r, sign));
#endif
}

}  // namespace tdbg::stats::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
