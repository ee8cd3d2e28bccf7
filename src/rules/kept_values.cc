#include "rules/kept_values.h"

#include <bit>
#include <cstring>

namespace tdbg::rules {
namespace {

template <typename T, typename Convert>
void Load(const TensorValue& value, size_t first, std::span<double> out, Convert&& convert) {
  const auto* at = static_cast<const std::byte*>(value.data) + first * sizeof(T);
  for (double& element : out) {
    T stored;
    std::memcpy(&stored, at, sizeof stored);  // segments align tensors to their item size, journals may not
    element = convert(stored);
    at += sizeof stored;
  }
}

}  // namespace

size_t ElementCount(const TensorValue& value) {
  size_t count = 1;
  for (const int64_t n : value.shape) count *= static_cast<size_t>(n);
  return count;
}

// The types weights have are converted in a loop of their own; the others are not worth one.
bool LoadElements(const TensorValue& value, size_t first, std::span<double> out) {
  switch (value.dtype) {
    case DType::kFloat32:
      Load<float>(value, first, out, [](float x) { return static_cast<double>(x); });
      return true;
    case DType::kFloat64:
      Load<double>(value, first, out, [](double x) { return x; });
      return true;
    case DType::kBFloat16:
      Load<uint16_t>(value, first, out, [](uint16_t x) {
        return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(x) << 16));
      });
      return true;
    default:
      for (size_t i = 0; i < out.size(); ++i) {
        const auto element = ElementAsDouble(value, first + i);
        if (!element) return false;
        out[i] = *element;
      }
      return true;
  }
}

}  // namespace tdbg::rules
