#include "arrays.h"

#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

namespace nb = nanobind;

namespace tdbg::python {
namespace {

nb::dlpack::dtype DTypeOf(DType dtype) {
  const auto bits = static_cast<uint8_t>(ItemSize(dtype) * 8);
  const auto code = [&] {
    switch (dtype) {
      case DType::kBool:
        return nb::dlpack::dtype_code::Bool;
      case DType::kInt8:
      case DType::kInt16:
      case DType::kInt32:
      case DType::kInt64:
        return nb::dlpack::dtype_code::Int;
      case DType::kFloat16:
      case DType::kFloat32:
      case DType::kFloat64:
        return nb::dlpack::dtype_code::Float;
      case DType::kComplex64:
      case DType::kComplex128:
        return nb::dlpack::dtype_code::Complex;
      // bfloat16 and float8 are no types of NumPy's: their bits, as unsigned integers.
      default:
        return nb::dlpack::dtype_code::UInt;
    }
  }();
  return {static_cast<uint8_t>(code), bits, 1};
}

}  // namespace

nb::tuple ArrayOf(TensorValue value) {
  const std::string_view name = DTypeName(value.dtype);
  auto* const owner = new TensorValue(std::move(value));
  const nb::capsule keeper(owner, [](void* p) noexcept { delete static_cast<TensorValue*>(p); });
  std::vector<size_t> shape(owner->shape.begin(), owner->shape.end());
  // An empty array needs some address all the same.
  static const char kNothing[16] = {};
  const void* data = owner->data ? owner->data : kNothing;
  const int64_t* const strides = owner->strides.empty() ? nullptr : owner->strides.data();
  const nb::ndarray<nb::numpy, nb::ro> array(data, shape.size(), shape.data(), keeper, strides,
                                             DTypeOf(owner->dtype));
  return nb::make_tuple(array, nb::str(name.data(), name.size()));
}

}  // namespace tdbg::python
