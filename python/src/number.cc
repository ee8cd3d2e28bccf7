#include "number.h"

#include <cstdint>
#include <cstring>

#include "tensor/widen.h"

namespace tdbg::python {

double NumberAt(const void* data, DType dtype) {
  const auto as = [data]<typename T>(T value) {
    std::memcpy(&value, data, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kFloat64:
      return as(double{});
    case DType::kFloat32:
      return as(float{});
    case DType::kFloat16:
      return HalfToFloat(as(uint16_t{}));
    case DType::kBFloat16:
      return BFloat16ToFloat(as(uint16_t{}));
    case DType::kInt64:
      return static_cast<double>(as(int64_t{}));
    case DType::kUInt64:
      return static_cast<double>(as(uint64_t{}));
    case DType::kInt32:
      return as(int32_t{});
    case DType::kUInt32:
      return as(uint32_t{});
    case DType::kInt16:
      return as(int16_t{});
    case DType::kUInt16:
      return as(uint16_t{});
    case DType::kInt8:
      return as(int8_t{});
    default:
      return as(uint8_t{});
  }
}

}  // namespace tdbg::python
