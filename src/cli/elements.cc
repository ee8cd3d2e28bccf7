#include "cli/elements.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/text.h"

namespace tdbg::cli {
namespace {

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0x1f) return fraction ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

float BrainToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

template <typename T>
T At(const void* data, int64_t i) {
  return base::Load<T>(static_cast<const char*>(data) + static_cast<size_t>(i) * sizeof(T));
}

template <typename T>
Json ComplexJson(const void* data, int64_t i) {
  return Json::array({JsonOf(At<T>(data, 2 * i)), JsonOf(At<T>(data, 2 * i + 1))});
}

// A float is shown with a float's digits: as a double, 0.1f would be 0.10000000149011612.
Json FloatJson(float value) {
  if (!std::isfinite(value)) return JsonOf(value);
  return Json::parse(fmt::format("{}", value));
}

/// The text whose code points begin at element `offset`.
std::string TextAt(const void* data, int64_t offset, int64_t width) {
  std::string out;
  for (int64_t i = 0; i < width; ++i) {
    const auto c = static_cast<char32_t>(At<uint32_t>(data, offset + i));
    if (c == 0) break;
    base::AppendUtf8(c, &out);
  }
  return out;
}

/// Texts are one element per row of code points.
bool IsTextRow(const TensorValue& value, size_t axis) {
  return value.dtype == DType::kText && axis + 1 == value.shape.size();
}

class Nested {
 public:
  Nested(const TensorValue& value, int64_t edge) : value_(value), edge_(edge) {}

  std::string Format(size_t axis, int64_t offset) const {
    if (axis == value_.shape.size()) return ElementText(value_.dtype, value_.data, offset);
    if (IsTextRow(value_, axis)) return Json(TextAt(value_.data, offset, value_.shape[axis])).dump();
    const int64_t length = value_.shape[axis];
    int64_t stride = 1;
    for (size_t i = axis + 1; i < value_.shape.size(); ++i) stride *= value_.shape[i];
    const bool last = axis + 1 == value_.shape.size() || IsTextRow(value_, axis + 1);
    const std::string separator = last ? ", " : ",\n" + std::string(axis + 1, ' ');
    std::string text = "[";
    for (int64_t i = 0; i < length; ++i) {
      if (i > 0) text += separator;
      if (length > 2 * edge_ && i == edge_) {
        text += "...";
        i = length - edge_ - 1;
        continue;
      }
      text += Format(axis + 1, offset + i * stride);
    }
    return text + "]";
  }

 private:
  const TensorValue& value_;
  int64_t edge_;
};

Json NestedJson(const TensorValue& value, size_t axis, int64_t offset) {
  if (axis == value.shape.size()) return ElementJson(value.dtype, value.data, offset);
  if (IsTextRow(value, axis)) return TextAt(value.data, offset, value.shape[axis]);
  int64_t stride = 1;
  for (size_t i = axis + 1; i < value.shape.size(); ++i) stride *= value.shape[i];
  Json list = Json::array();
  for (int64_t i = 0; i < value.shape[axis]; ++i)
    list.push_back(NestedJson(value, axis + 1, offset + i * stride));
  return list;
}

}  // namespace

Json ElementJson(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kBool:
      return At<uint8_t>(data, i) != 0;
    case DType::kUInt8:
      return At<uint8_t>(data, i);
    case DType::kInt8:
      return At<int8_t>(data, i);
    case DType::kUInt16:
      return At<uint16_t>(data, i);
    case DType::kInt16:
      return At<int16_t>(data, i);
    case DType::kUInt32:
      return At<uint32_t>(data, i);
    case DType::kInt32:
      return At<int32_t>(data, i);
    case DType::kUInt64:
      return At<uint64_t>(data, i);
    case DType::kInt64:
      return At<int64_t>(data, i);
    case DType::kFloat16:
      return JsonOf(HalfToDouble(At<uint16_t>(data, i)));
    case DType::kBFloat16:
      return FloatJson(BrainToFloat(At<uint16_t>(data, i)));
    case DType::kFloat32:
      return FloatJson(At<float>(data, i));
    case DType::kFloat64:
      return JsonOf(At<double>(data, i));
    case DType::kComplex64:
      return ComplexJson<float>(data, i);
    case DType::kComplex128:
      return ComplexJson<double>(data, i);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      return fmt::format("0x{:02x}", At<uint8_t>(data, i));
    case DType::kText:
      return At<uint32_t>(data, i);
    case DType::kInvalid:
      break;
  }
  return nullptr;
}

// A NaN's sign means nothing, and is in most that a processor makes.
template <typename T>
T WithoutSignIfNan(T x) {
  return std::isnan(x) ? std::numeric_limits<T>::quiet_NaN() : x;
}

std::string ElementText(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kFloat32:
      return fmt::format("{}", WithoutSignIfNan(At<float>(data, i)));
    case DType::kFloat64:
      return fmt::format("{}", WithoutSignIfNan(At<double>(data, i)));
    case DType::kFloat16:
      return fmt::format("{:.4g}", WithoutSignIfNan(HalfToDouble(At<uint16_t>(data, i))));
    case DType::kBFloat16:
      return fmt::format("{:.4g}", WithoutSignIfNan(BrainToFloat(At<uint16_t>(data, i))));
    case DType::kComplex64:
      return fmt::format("{}{:+}j", At<float>(data, 2 * i), At<float>(data, 2 * i + 1));
    case DType::kComplex128:
      return fmt::format("{}{:+}j", At<double>(data, 2 * i), At<double>(data, 2 * i + 1));
    default: {
      const Json json = ElementJson(dtype, data, i);
      return json.is_string() ? json.get<std::string>() : json.dump();
    }
  }
}

std::string FormatTensor(const TensorValue& value, int64_t edge) { return Nested(value, edge).Format(0, 0); }

Json TensorJson(const TensorValue& value) { return NestedJson(value, 0, 0); }

Result<StepRange> ParseStepRange(const std::string& text) {
  StepRange range;
  if (text.empty()) return range;
  const size_t colon = text.find(':');
  const auto part = [&](std::string_view piece, int64_t otherwise) -> std::optional<int64_t> {
    if (piece.empty()) return otherwise;
    const auto number = base::ParseInt(piece);
    if (number && *number < 0) return std::nullopt;
    return number;
  };
  const auto begin = part(std::string_view(text).substr(0, colon), 0);
  const auto end = colon == std::string::npos ? (begin ? std::optional<int64_t>(*begin + 1) : std::nullopt)
                                              : part(std::string_view(text).substr(colon + 1), -1);
  if (!begin || !end) {
    return InvalidArgument("--steps: found '" + text +
                           "'; write A:B (from A up to, not including, B), A:, :B, or one step");
  }
  range.begin = *begin;
  range.end = *end;
  return range;
}

}  // namespace tdbg::cli
