// Parses the target of a request (RFC 9112).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "query/question.h"

namespace tdbg::server {

/// Decodes percent-encoding; nothing if it is malformed, or the text is not UTF-8 or has a NUL.
std::optional<std::string> Decode(std::string_view text);

struct Target {
  std::string token;         ///< the first part of the path
  std::string path;          ///< what follows it, without a '/' in front: "", "page.js", "api/v1/matrix"
  query::Question question;  ///< of "api/v1/NAME?..."; an empty name: not a question
};
/// Nothing if it is not a path, or a parameter occurs twice.
std::optional<Target> ParseTarget(std::string_view target);

}  // namespace tdbg::server
