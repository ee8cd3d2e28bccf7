// JSON that a stranger wrote, parsed with a bound on how deep it nests. For the .cc files of this room.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::compat::smdebug {

/// \param text  followed by SIMDJSON_PADDING readable bytes. The result borrows the parser.
/// \error kDataLoss  not JSON, or not an object
inline Result<simdjson::dom::object> ParseObject(simdjson::dom::parser* parser, std::string_view text) {
  constexpr size_t kMaxDepth = 64;
  if (text.empty()) return DataLoss("the file is empty");
  if (parser->capacity() < text.size() || parser->max_depth() != kMaxDepth) {
    const size_t capacity = std::max(parser->capacity(), text.size());
    if (const auto error = parser->allocate(capacity, kMaxDepth)) {
      return ResourceExhausted(std::string("no memory for a JSON file: ") + simdjson::error_message(error));
    }
  }
  simdjson::dom::element root;
  if (const auto error = parser->parse(text.data(), text.size(), /*realloc_if_needed=*/false).get(root)) {
    return DataLoss(std::string("not JSON: ") + simdjson::error_message(error));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return DataLoss("not a JSON object");
  return object;
}

}  // namespace tdbg::compat::smdebug
