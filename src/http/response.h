// The first part of an answer, as text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tdbg::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// Status line and headers, the empty line included. Line ends within a header's value become blanks: a value
/// that holds what a client sent adds no header.
/// \param keep    whether the connection stays open behind it
/// \param length  of the body; nothing: it ends with the connection
std::string ResponseHead(int status, const Headers& headers, bool keep, std::optional<size_t> length);

}  // namespace tdbg::http
