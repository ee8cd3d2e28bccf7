#include <array>

#include "tdbg/tensor.h"

namespace tdbg {
namespace {

struct Row {
  DType dtype;
  uint8_t item_size;
  bool has_statistics;
  std::string_view name;
};

// Indexed by the enum's value; the static_assert below holds the order up.
constexpr std::array<Row, 21> kTable = {{
    {DType::kInvalid, 0, false, "invalid"},
    {DType::kBool, 1, true, "bool"},
    {DType::kUInt8, 1, true, "uint8"},
    {DType::kInt8, 1, true, "int8"},
    {DType::kUInt16, 2, true, "uint16"},
    {DType::kInt16, 2, true, "int16"},
    {DType::kUInt32, 4, true, "uint32"},
    {DType::kInt32, 4, true, "int32"},
    {DType::kUInt64, 8, true, "uint64"},
    {DType::kInt64, 8, true, "int64"},
    {DType::kFloat16, 2, true, "float16"},
    {DType::kBFloat16, 2, true, "bfloat16"},
    {DType::kFloat32, 4, true, "float32"},
    {DType::kFloat64, 8, true, "float64"},
    {DType::kComplex64, 8, false, "complex64"},
    {DType::kComplex128, 16, false, "complex128"},
    {DType::kFloat8E4M3FN, 1, false, "float8_e4m3fn"},
    {DType::kFloat8E5M2, 1, false, "float8_e5m2"},
    {DType::kFloat8E4M3FNUZ, 1, false, "float8_e4m3fnuz"},
    {DType::kFloat8E5M2FNUZ, 1, false, "float8_e5m2fnuz"},
    {DType::kText, 4, false, "text"},
}};

constexpr bool TableIsInEnumOrder() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].dtype) != i) return false;
  }
  return true;
}
static_assert(TableIsInEnumOrder());

// A dtype may come from a file of a newer version: out of range reads as kInvalid, never past the table.
const Row& RowOf(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  return kTable[i < kTable.size() ? i : 0];
}

}  // namespace

size_t ItemSize(DType dtype) { return RowOf(dtype).item_size; }
std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }
bool HasStatistics(DType dtype) { return RowOf(dtype).has_statistics; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.dtype != DType::kInvalid && row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace tdbg
