// TensorProto: elements as one block of bytes, or spelled one by one in a field per type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/text.h"
#include "tfevents/event.h"
#include "tfevents/protobuf.h"

namespace tdbg::tfevents {
namespace {

constexpr size_t kMaxRank = 64;  // NumPy's

enum Field : uint32_t {
  kDtype = 1,
  kShape = 2,
  kContent = 4,
  kFloatVal = 5,
  kDoubleVal = 6,
  kIntVal = 7,
  kStringVal = 8,
  kScomplexVal = 9,
  kInt64Val = 10,
  kBoolVal = 11,
  kDcomplexVal = 12,
  kHalfVal = 13,
  kUint32Val = 16,
  kUint64Val = 17,
};

template <typename T>
void Append(T value, std::vector<std::byte>* to) {
  const size_t at = to->size();
  to->resize(at + sizeof(T));
  std::memcpy(to->data() + at, &value, sizeof(T));
}

// int_val carries every integer type of up to 32 bits, half_val both 16-bit floats.
void AppendInteger(int64_t value, DType dtype, std::vector<std::byte>* to) {
  switch (ItemSize(dtype)) {
    case 1:
      return Append(static_cast<int8_t>(value), to);
    case 2:
      return Append(static_cast<int16_t>(value), to);
    case 4:
      return Append(static_cast<int32_t>(value), to);
    default:
      return Append(value, to);
  }
}

bool ReadShape(Bytes message, TensorProto* tensor, bool* too_deep) {
  pbf_reader shape(reinterpret_cast<const char*>(message.data()), message.size());
  while (shape.next()) {
    if (shape.tag_and_type() != tag_and_type(2, kBytes)) {
      shape.skip();
      continue;
    }
    int64_t size = 0;
    pbf_reader dimension = shape.get_message();
    while (dimension.next()) {
      if (dimension.tag_and_type() == tag_and_type(1, kVarint)) {
        size = dimension.get_int64();
      } else {
        dimension.skip();
      }
    }
    if (size < 0 || tensor->shape.size() == kMaxRank) {
      *too_deep = tensor->shape.size() == kMaxRank;
      return false;
    }
    tensor->shape.push_back(size);
  }
  return true;
}

// One element, or a packed list of them: producers may write either.
template <typename Packed, typename One, typename F>
bool EachNumber(pbf_reader& reader, Packed packed, pbf_wire_type single_type, One one, F&& f) {
  if (reader.wire_type() == kBytes) {
    for (const auto value : packed(reader)) f(value);
    return true;
  }
  if (reader.wire_type() != single_type) return false;
  f(one(reader));
  return true;
}

bool ReadNumbers(pbf_reader& reader, TensorProto* tensor) {
  std::vector<std::byte>* const to = &tensor->values;
  const auto floats = [&](DType wanted) {
    return tensor->dtype == wanted &&
           EachNumber(
               reader, [](pbf_reader& r) { return r.get_packed_float(); }, kFixed32,
               [](pbf_reader& r) { return r.get_float(); }, [&](float x) { Append(x, to); });
  };
  const auto doubles = [&](DType wanted) {
    return tensor->dtype == wanted &&
           EachNumber(
               reader, [](pbf_reader& r) { return r.get_packed_double(); }, kFixed64,
               [](pbf_reader& r) { return r.get_double(); }, [&](double x) { Append(x, to); });
  };
  const auto integers = [&](bool fits) {
    return fits && EachNumber(
                       reader, [](pbf_reader& r) { return r.get_packed_int64(); }, kVarint,
                       [](pbf_reader& r) { return r.get_int64(); },
                       [&](int64_t x) { AppendInteger(x, tensor->dtype, to); });
  };
  const bool is_float = tensor->dtype == DType::kFloat32 || tensor->dtype == DType::kFloat16 ||
                        tensor->dtype == DType::kBFloat16;
  switch (reader.tag()) {
    case kFloatVal:
      return floats(DType::kFloat32);
    case kDoubleVal:
      return doubles(DType::kFloat64);
    case kScomplexVal:
      return floats(DType::kComplex64);
    case kDcomplexVal:
      return doubles(DType::kComplex128);
    case kIntVal:
      return integers(HasStatistics(tensor->dtype) && ItemSize(tensor->dtype) <= 4 && !is_float);
    case kHalfVal:
      return integers(tensor->dtype == DType::kFloat16 || tensor->dtype == DType::kBFloat16);
    case kBoolVal:
      return integers(tensor->dtype == DType::kBool);
    case kUint32Val:
      return integers(tensor->dtype == DType::kUInt32);
    case kInt64Val:
      return integers(tensor->dtype == DType::kInt64);
    case kUint64Val:
      return integers(tensor->dtype == DType::kUInt64);
    default:
      return false;
  }
}

std::string Text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Of a shape no element of which is negative; false if it does not fit.
bool ElementsOf(const std::vector<int64_t>& shape, uint64_t* elements) {
  *elements = 1;
  for (const int64_t extent : shape) {
    if (extent == 0) {
      *elements = 0;
      return true;
    }
  }
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(*elements, static_cast<uint64_t>(extent), elements)) return false;
  }
  return true;
}

}  // namespace

DType DTypeOfTensorflow(int type) {
  switch (type > 100 ? type - 100 : type) {
    case 1:
      return DType::kFloat32;
    case 2:
      return DType::kFloat64;
    case 3:
    case 13:  // quantized types are their storage; the scale is not in the file
      return DType::kInt32;
    case 4:
    case 12:
      return DType::kUInt8;
    case 5:
    case 15:
      return DType::kInt16;
    case 6:
    case 11:
      return DType::kInt8;
    case 7:
      return DType::kText;
    case 8:
      return DType::kComplex64;
    case 9:
      return DType::kInt64;
    case 10:
      return DType::kBool;
    case 14:
      return DType::kBFloat16;
    case 16:
    case 17:
      return DType::kUInt16;
    case 18:
      return DType::kComplex128;
    case 19:
      return DType::kFloat16;
    case 22:
      return DType::kUInt32;
    case 23:
      return DType::kUInt64;
    case 24:
      return DType::kFloat8E5M2;
    case 25:
      return DType::kFloat8E4M3FN;
    default:
      return DType::kInvalid;
  }
}

Result<TensorProto> DecodeTensor(Bytes message) {
  TensorProto tensor;
  const char* const begin = reinterpret_cast<const char*>(message.data());
  bool good_shape = true, too_deep = false;
  try {
    // The type first, wherever it lies: it says what the numbers are.
    for (pbf_reader reader(begin, message.size()); reader.next();) {
      if (reader.tag_and_type() == tag_and_type(kDtype, kVarint)) {
        tensor.type = reader.get_int32();
      } else {
        reader.skip();
      }
    }
    tensor.dtype = DTypeOfTensorflow(tensor.type);
    for (pbf_reader reader(begin, message.size()); good_shape && reader.next();) {
      switch (reader.tag_and_type()) {
        case tag_and_type(kShape, kBytes): {
          const protozero::data_view view = reader.get_view();
          good_shape =
              ReadShape({reinterpret_cast<const std::byte*>(view.data()), view.size()}, &tensor, &too_deep);
          break;
        }
        case tag_and_type(kContent, kBytes): {
          const protozero::data_view view = reader.get_view();
          tensor.bytes = {reinterpret_cast<const std::byte*>(view.data()), view.size()};
          break;
        }
        case tag_and_type(kStringVal, kBytes): {
          const protozero::data_view view = reader.get_view();
          tensor.strings.emplace_back(view.data(), view.size());
          break;
        }
        default:
          if (tensor.dtype == DType::kInvalid || !ReadNumbers(reader, &tensor)) reader.skip();
      }
    }
  } catch (const protozero::exception& error) {
    return DataLoss(std::string("tensor: not a protocol buffer (") + error.what() + ")");
  }
  if (!good_shape) {
    return DataLoss(too_deep ? fmt::format("tensor: more than {} axes", kMaxRank)
                             : std::string("tensor: a negative extent"));
  }
  // smdebug leaves the type of text unset.
  if (tensor.type == 0 && !tensor.strings.empty()) tensor.dtype = DType::kText;
  if (tensor.dtype == DType::kInvalid) {
    return Unimplemented(
        fmt::format("tensor: TensorFlow's data type {} has no counterpart here", tensor.type));
  }
  uint64_t elements = 0;
  if (!ElementsOf(tensor.shape, &elements)) {
    return DataLoss("tensor: an impossible shape " + Text(tensor.shape));
  }
  if (tensor.dtype == DType::kText) {
    tensor.bytes = {};
    if (tensor.strings.size() != elements) {
      return DataLoss(fmt::format("tensor: {} strings where its shape {} asks for {}", tensor.strings.size(),
                                  Text(tensor.shape), elements));
    }
    return tensor;
  }
  tensor.strings.clear();
  const size_t item = ItemSize(tensor.dtype);
  if (!tensor.bytes.empty()) tensor.values.clear();
  const size_t bytes = tensor.bytes.empty() ? tensor.values.size() : tensor.bytes.size();
  if (tensor.bytes.empty() && !tensor.values.empty() && bytes / item != elements) {
    // One value may stand for all of a shape; whoever means that many would have written them.
    tensor.shape = {static_cast<int64_t>(bytes / item)};
    elements = bytes / item;
  }
  if (elements > bytes / item || elements * item != bytes) {
    return DataLoss(fmt::format("tensor: {} where {} of {} were said to be", base::Counted(bytes, "byte"),
                                base::Counted(elements, "element"), DTypeName(tensor.dtype)));
  }
  return tensor;
}

}  // namespace tdbg::tfevents
