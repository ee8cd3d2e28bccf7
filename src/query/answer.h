// An answer: JSON, or columns with a JSON head. Columns are sent as a safetensors file, for which every
// language has a reader (docs/http.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "format/json_fields.h"

namespace tdbg::query {

using Json = format::Json;

/// Version of the answers' contents. Raised when a field changes its meaning or is removed, not for new
/// fields and columns.
inline constexpr int kAnswerVersion = 1;

struct Answer {
  std::string media_type;  ///< "application/json", or kColumnsType
  std::string body;
};
inline constexpr char kColumnsType[] = "application/vnd.safetensors";

/// \param document  an object; "version" is added
Answer JsonAnswer(Json document);
/// A number in JSON; NaN and infinities, which JSON lacks, as "NaN", "Infinity", "-Infinity".
Json JsonNumber(double value);

/// Collects the columns of an answer.
class Columns {
 public:
  template <typename T>
  void Add(std::string name, const std::vector<T>& values, std::vector<size_t> shape = {}) {
    static_assert(sizeof(T) == 8 || sizeof(T) == 4 || sizeof(T) == 2 || sizeof(T) == 1);
    if (shape.empty()) shape = {values.size()};
    const char* const type = std::is_floating_point_v<T> ? (sizeof(T) == 8 ? "F64" : "F32")
                             : sizeof(T) == 8            ? (std::is_signed_v<T> ? "I64" : "U64")
                             : sizeof(T) == 4            ? (std::is_signed_v<T> ? "I32" : "U32")
                             : sizeof(T) == 2            ? (std::is_signed_v<T> ? "I16" : "U16")
                                                         : "U8";
    AddBytes(std::move(name), type, sizeof(T), std::move(shape),
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  /// \param head  everything that is not a column, as an object; stored in the file's `__metadata__` as
  /// "answer"
  Answer Finish(Json head) const;

 private:
  struct Column {
    std::string name, type;
    size_t item_bytes;
    std::vector<size_t> shape;
    std::string bytes;
  };
  void AddBytes(std::string name, std::string type, size_t item_bytes, std::vector<size_t> shape,
                std::string_view bytes);

  std::vector<Column> columns_;
};

}  // namespace tdbg::query
