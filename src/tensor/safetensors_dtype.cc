#include "tensor/safetensors_dtype.h"

namespace tdbg {

std::string_view SafetensorsDType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BOOL";
    case DType::kUInt8:
      return "U8";
    case DType::kInt8:
      return "I8";
    case DType::kUInt16:
      return "U16";
    case DType::kInt16:
      return "I16";
    case DType::kUInt32:
      return "U32";
    case DType::kInt32:
      return "I32";
    case DType::kUInt64:
      return "U64";
    case DType::kInt64:
      return "I64";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
    case DType::kFloat8E4M3FN:
      return "F8_E4M3";
    case DType::kFloat8E5M2:
      return "F8_E5M2";
    default:
      return {};
  }
}

}  // namespace tdbg
