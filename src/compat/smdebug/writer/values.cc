#include "compat/smdebug/writer/values.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor/widen.h"

namespace tdbg::smdebug {
namespace {

DType ReadableType(const TensorView& value) {
  switch (value.dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt16:
      return DType::kInt32;
    case DType::kUInt32:
      return DType::kInt64;
    case DType::kUInt64:
      return LargestUInt64(value) <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                 ? DType::kInt64
                 : DType::kFloat64;
    case DType::kComplex64:
      return DType::kComplex128;
    default:
      return NumpyDType(value.dtype);
  }
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto add = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | (code >> 18 & 7));
      add(0x80 | (code >> 12 & 63));
    }
    add(0x80 | (code >> 6 & 63));
  }
  add(0x80 | (code & 63));
}

}  // namespace

std::vector<std::string> TextsOf(const TensorView& value) {
  const std::vector<std::byte> dense = Widen(value, DType::kText);
  const size_t width = value.shape.empty() ? 1 : static_cast<size_t>(value.shape.back());
  if (width == 0) return {};
  std::vector<std::string> texts(dense.size() / sizeof(uint32_t) / width);
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t k = 0; k < width; ++k) {
      uint32_t code;
      std::memcpy(&code, dense.data() + (i * width + k) * sizeof(code), sizeof(code));
      if (code != 0) AppendUtf8(code, &texts[i]);
    }
  }
  return texts;
}

ReadableValue MakeReadable(const TensorView& value) {
  ReadableValue out;
  out.dtype = ReadableType(value);
  if (out.dtype == value.dtype && value.is_contiguous()) {
    out.borrowed = {static_cast<const std::byte*>(value.data), value.byte_count()};
  } else {
    out.own = Widen(value, out.dtype);
  }
  return out;
}

}  // namespace tdbg::smdebug
