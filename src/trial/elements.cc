#include "trial/elements.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "tensor/magnitude.h"

namespace tdbg {
namespace {

// The value came from a half and goes back into one: no rounding is needed, only the layout.
uint16_t ToHalf(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 48) & 0x8000u);
  if (std::isnan(value)) return sign | 0x7e00u;
  if (std::isinf(value)) return sign | 0x7c00u;
  const double magnitude = std::fabs(value);
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(magnitude * 0x1p24);
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // [0.5, 1)
  const auto mantissa = static_cast<uint16_t>(fraction * 2048.0) & 0x3ffu;
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | mantissa);
}

double FromHalf(uint16_t half) {
  const double sign = (half & 0x8000u) ? -1.0 : 1.0;
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 0x3ff;
  if (exponent == 31) return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

template <typename T>
void StoreAs(double value, std::byte* to) {
  base::Store(to, static_cast<T>(value));
}

}  // namespace

std::optional<double> OnlyElement(const Summary& s, DType dtype) {
  if (s.count != 1 || IsComplex(dtype)) return std::nullopt;  // statistics of |x| do not say x
  if (s.nan_count) return std::numeric_limits<double>::quiet_NaN();
  if (s.pos_inf_count) return std::numeric_limits<double>::infinity();
  if (s.neg_inf_count) return -std::numeric_limits<double>::infinity();
  const bool wide = dtype == DType::kInt64 || dtype == DType::kUInt64;
  if (wide && std::fabs(s.min) > 0x1p53) return std::nullopt;
  return s.min;
}

TensorValue ElementValue(double value, DType dtype, std::vector<int64_t> shape) {
  auto bytes = std::make_shared<std::vector<uint64_t>>(2, 0);
  auto* const to = reinterpret_cast<std::byte*>(bytes->data());
  switch (dtype) {
    case DType::kBool:
      StoreAs<uint8_t>(value != 0, to);
      break;
    case DType::kUInt8:
      StoreAs<uint8_t>(value, to);
      break;
    case DType::kInt8:
      StoreAs<int8_t>(value, to);
      break;
    case DType::kUInt16:
      StoreAs<uint16_t>(value, to);
      break;
    case DType::kInt16:
      StoreAs<int16_t>(value, to);
      break;
    case DType::kUInt32:
      StoreAs<uint32_t>(value, to);
      break;
    case DType::kInt32:
      StoreAs<int32_t>(value, to);
      break;
    case DType::kUInt64:
      StoreAs<uint64_t>(value, to);
      break;
    case DType::kInt64:
      StoreAs<int64_t>(value, to);
      break;
    case DType::kFloat16:
      base::Store(to, ToHalf(value));
      break;
    case DType::kBFloat16: {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
      base::Store(to, static_cast<uint16_t>(bits >> 16));
      break;
    }
    case DType::kFloat32:
      StoreAs<float>(value, to);
      break;
    default:
      StoreAs<double>(value, to);
      dtype = DType::kFloat64;
      break;
  }
  TensorValue out;
  out.data = bytes->data();
  out.owner = std::move(bytes);
  out.shape = std::move(shape);
  out.dtype = dtype;
  out.view = {out.data, dtype, out.shape, {}};
  return out;
}

std::optional<double> ElementAsDouble(const TensorValue& value, size_t i) {
  const auto* const at = static_cast<const std::byte*>(value.data) + i * ItemSize(value.dtype);
  switch (value.dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return base::Load<uint8_t>(at);
    case DType::kInt8:
      return base::Load<int8_t>(at);
    case DType::kUInt16:
      return base::Load<uint16_t>(at);
    case DType::kInt16:
      return base::Load<int16_t>(at);
    case DType::kUInt32:
      return base::Load<uint32_t>(at);
    case DType::kInt32:
      return base::Load<int32_t>(at);
    case DType::kUInt64:
      return static_cast<double>(base::Load<uint64_t>(at));
    case DType::kInt64:
      return static_cast<double>(base::Load<int64_t>(at));
    case DType::kFloat16:
      return FromHalf(base::Load<uint16_t>(at));
    case DType::kBFloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(base::Load<uint16_t>(at)) << 16);
    case DType::kFloat32:
      return base::Load<float>(at);
    case DType::kFloat64:
      return base::Load<double>(at);
    default:
      return std::nullopt;
  }
}

}  // namespace tdbg
