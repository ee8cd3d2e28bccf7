// Small things done to text: splitting, strict numbers, counted nouns, the nearest valid name, UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tdbg::base {

/// Comma (or other) list, items trimmed of blanks; empty items dropped.
std::vector<std::string> SplitList(std::string_view text, char separator = ',');
std::string_view Trim(std::string_view text);
/// The whole text and nothing else, or nothing.
std::optional<int64_t> ParseInt(std::string_view text);
std::optional<double> ParseDouble(std::string_view text);  ///< accepts "1e-7", "inf", "nan"; not "" or "1x"
std::optional<bool> ParseBool(std::string_view text);  ///< True/true/1, False/false/0 (smdebug's spellings)
/// "256MiB", "1.5 GB", "4096" -> bytes.
std::optional<uint64_t> ParseBytes(std::string_view text);
std::string FormatBytes(uint64_t bytes);  ///< "7.6 MB"
/// "1 step", "2 steps". `many` where an s does not do it: "class", "classes".
std::string Counted(uint64_t n, std::string_view one, std::string_view many = {});
/// The candidate with the smallest edit distance, if it is close enough to be a likely typo.
std::optional<std::string> Nearest(std::string_view name, std::span<const std::string> candidates);
/// Valid UTF-8 without NUL?
bool IsValidName(std::string_view text);
/// Invalid bytes become U+FFFD.
std::string ToValidUtf8(std::string_view text);
/// Appends a code point; an invalid one becomes U+FFFD.
void AppendUtf8(char32_t c, std::string* out);
/// "/key" as a JSON pointer spells it ('~' and '/' escaped, RFC 6901).
std::string JsonPointerStep(std::string_view key);
/// A double as JSON text: shortest round trip; NaN and infinities as the strings "NaN" "Infinity" "-Infinity"
/// (quoted).
std::string JsonNumber(double value);

}  // namespace tdbg::base
