// Reading small JSON objects that somebody else may have damaged. nlohmann's own value() and get() throw
// where a field has another type than was asked for, and nobody here catches.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::format {

using Json = nlohmann::json;

/// Deeper documents are refused: nlohmann's dump() recurses, and a hostile file must not choose our stack's
/// depth.
inline constexpr int kMaxJsonDepth = 64;
/// What somebody else's value may nest, as it lies in a record, which lies in a segment's metadata.
inline constexpr int kMaxValueDepth = 60;
/// Before this limit on values there were some of kMaxJsonDepth: metadata that holds one is read.
inline constexpr int kMaxMetadataDepth = kMaxJsonDepth + (kMaxJsonDepth - kMaxValueDepth);

/// Valid JSON that nests no deeper than `max_depth`.
bool IsJson(std::string_view text, int max_depth = kMaxJsonDepth);
/// An object. \error kDataLoss  names `what`.
Result<Json> ParseJsonObject(std::string_view text, std::string_view what, int max_depth = kMaxJsonDepth);
/// Compact; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string DumpJson(const Json& json);
/// Appends `text` as a JSON string, quotes included.
void AppendJsonString(std::string_view text, std::string* out);

/// {"major": ..., "minor": ...} of this build, and the check on reading.
Json FormatVersionJson();
/// \error kUnimplemented  a newer major; kDataLoss  no version at all.
Status CheckFormatVersion(const Json& object, std::string_view what);

// Each leaves `*out` alone and answers false where the field is absent or of another type.
bool GetField(const Json& object, const char* key, std::string* out);
bool GetField(const Json& object, const char* key, int64_t* out);
bool GetField(const Json& object, const char* key, bool* out);
bool GetField(const Json& object, const char* key, std::vector<std::string>* out);
bool GetField(const Json& object, const char* key, std::vector<int64_t>* out);

}  // namespace tdbg::format
