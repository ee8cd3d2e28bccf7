// A question as a message: a name and parameters, all of them text, as in a URL. The transport (HTTP, a file
// inside a report) need not know what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::query {

struct Question {
  std::string name;  ///< "matrix"
  std::map<std::string, std::string, std::less<>> parameters;

  /// Empty if the parameter is not there.
  std::string_view Text(std::string_view key) const;
  /// \error kInvalidArgument  not a whole number, or outside [least, most]
  Result<int64_t> Integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const;
  /// \error kInvalidArgument  not a finite number, or below 0
  Result<double> FiniteFrom0(std::string_view key, double otherwise) const;
  /// \error kInvalidArgument  there is another parameter: a misspelt one must not be ignored
  Status CheckKeys(std::initializer_list<std::string_view> known) const;
};

/// The tensors (by id) of each row of a matrix. "3" and "0-11,14" are one row each; ';' separates rows.
/// \error kInvalidArgument  another text, ids beyond `tensors`, more than `most_rows` rows
Result<std::vector<std::vector<uint32_t>>> ParseRows(std::string_view text, size_t tensors, size_t most_rows);

}  // namespace tdbg::query
