#include "format/keys.h"

#include <array>
#include <charconv>

namespace tdbg::format {
namespace {

constexpr std::array<std::string_view, 5> kModeNames = {"", "TRAIN", "EVAL", "PREDICT", "GLOBAL"};
constexpr std::array<std::string_view, 4> kPointNames = {"", "end", "before_clip", "after_clip"};

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const char lower = a[i] >= 'a' && a[i] <= 'z' ? static_cast<char>(a[i] - 'a' + 'A') : a[i];
    if (lower != b[i]) return false;
  }
  return true;
}

// Only the spelling that RawKey writes: "+1", "01" or " 1" would give one value two keys.
template <typename T>
bool ParseCanonical(std::string_view text, T* out) {
  if (text.empty() || text[0] == '+' || text == "-0") return false;
  const size_t first_digit = text[0] == '-' ? 1 : 0;
  if (text.size() > first_digit + 1 && text[first_digit] == '0') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string_view ModeName(Mode mode) {
  const auto i = static_cast<size_t>(mode);
  return i < kModeNames.size() && i > 0 ? kModeNames[i] : "UNKNOWN";
}

std::optional<Mode> ModeFromName(std::string_view name) {
  for (size_t i = 1; i < kModeNames.size(); ++i) {
    if (EqualsIgnoringCase(name, kModeNames[i])) return static_cast<Mode>(i);
  }
  return std::nullopt;
}

std::string_view PointName(Point point) {
  const auto i = static_cast<size_t>(point);
  return i < kPointNames.size() ? kPointNames[i] : "";
}

std::optional<Point> PointFromName(std::string_view name) {
  for (size_t i = 0; i < kPointNames.size(); ++i) {
    if (name == kPointNames[i]) return static_cast<Point>(i);
  }
  return std::nullopt;
}

std::string RawKey(std::string_view tensor_name, int64_t global_step, SubKey sub) {
  std::string key;
  key.reserve(tensor_name.size() + 24);
  key.append(tensor_name);
  key.push_back('@');
  key.append(std::to_string(global_step));
  if (sub.sub == 0 && sub.point == Point::kNone) return key;
  key.push_back('.');
  if (sub.sub == 0) {
    key.push_back('-');
  } else {
    key.append(std::to_string(sub.sub - 1));
  }
  if (sub.point == Point::kNone) return key;
  key.push_back('.');
  const std::string_view name = PointName(sub.point);
  // A point of a later minor version has no name here; its number keeps the key unique and readable.
  if (name.empty()) {
    key.append(std::to_string(static_cast<unsigned>(sub.point)));
  } else {
    key.append(name);
  }
  return key;
}

std::optional<ParsedRawKey> ParseRawKey(std::string_view key) {
  const size_t at = key.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  ParsedRawKey parsed;
  parsed.tensor_name = key.substr(0, at);
  std::string_view rest = key.substr(at + 1);

  const size_t first_dot = rest.find('.');
  if (!ParseCanonical(rest.substr(0, first_dot), &parsed.global_step)) return std::nullopt;
  if (first_dot == std::string_view::npos) return parsed;
  rest = rest.substr(first_dot + 1);

  const size_t second_dot = rest.find('.');
  const std::string_view sub = rest.substr(0, second_dot);
  if (sub != "-") {
    uint32_t n = 0;
    if (!ParseCanonical(sub, &n) || n >= 0xffff) return std::nullopt;
    parsed.sub.sub = static_cast<uint16_t>(n + 1);
  }
  if (second_dot == std::string_view::npos) {
    if (sub == "-") return std::nullopt;  // RawKey writes the dash only in front of a point
    return parsed;
  }
  const std::string_view point = rest.substr(second_dot + 1);
  if (point.empty()) return std::nullopt;
  if (const auto named = PointFromName(point)) {
    parsed.sub.point = *named;
    return parsed;
  }
  uint16_t number = 0;
  if (!ParseCanonical(point, &number) || number < kPointNames.size()) return std::nullopt;
  parsed.sub.point = static_cast<Point>(number);
  return parsed;
}

}  // namespace tdbg::format
