#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace tdbg::base {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

// std::tolower would obey the process's locale, which belongs to the training script.
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(), Lower);
  return lowered;
}

// from_chars knows no plus sign; strtod would, and would also obey the locale's decimal comma.
std::optional<std::string_view> WithoutPlus(std::string_view text) {
  if (text.empty() || text[0] != '+') return text;
  text.remove_prefix(1);
  if (text.empty() || text[0] == '-' || text[0] == '+') return std::nullopt;
  return text;
}

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  const auto unsigned_text = WithoutPlus(text);
  if (!unsigned_text) return std::nullopt;
  T value{};
  const char* end = unsigned_text->data() + unsigned_text->size();
  const auto [stopped, error] = std::from_chars(unsigned_text->data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

// Optimal string alignment: a swap of neighbours is one mistake, as fingers make it. Case and - against _
// are no mistakes at all.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  const auto folded = [](char c) { return c == '-' ? '_' : Lower(c); };
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const char x = folded(a[i - 1]);
      const char y = folded(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (x == y ? 0u : 1u)});
      if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string> SplitList(std::string_view text, char separator) {
  std::vector<std::string> items;
  while (true) {
    const size_t end = text.find(separator);
    const std::string_view item = Trim(text.substr(0, end));
    if (!item.empty()) items.emplace_back(item);
    if (end == std::string_view::npos) return items;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> ParseInt(std::string_view text) { return ParseWhole<int64_t>(text); }

std::optional<double> ParseDouble(std::string_view text) {
  // from_chars accepts C's "nan(payload)"; in a configuration that is a mistake.
  if (text.find('(') != std::string_view::npos) return std::nullopt;
  return ParseWhole<double>(text);
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "True" || text == "true" || text == "1") return true;
  if (text == "False" || text == "false" || text == "0") return false;
  return std::nullopt;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  text = Trim(text);
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const std::string unit = Lowered(Trim(text.substr(digits)));
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgtp").find(unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = std::string_view(unit).substr(1);
    if (rest == "ib") {
      factor = std::pow(1024.0, static_cast<double>(power + 1));
    } else if (rest.empty() || rest == "b") {
      factor = std::pow(1000.0, static_cast<double>(power + 1));
    } else {
      return std::nullopt;
    }
  }
  // Whole numbers stay integers: a double would round sizes above 2^53.
  if (factor == 1) return ParseWhole<uint64_t>(number);
  const auto amount = ParseWhole<double>(number);
  if (!amount) return std::nullopt;
  const double bytes = *amount * factor;
  if (!(bytes >= 0 && bytes < 9e18)) return std::nullopt;
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes);
  const char* const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  // 999.95 would print as "1000.0".
  for (amount /= 1000; amount >= 999.95 && unit + 1 < std::size(units); amount /= 1000) ++unit;
  return fmt::format("{:.1f} {}", amount, units[unit]);
}

std::string Counted(uint64_t n, std::string_view one, std::string_view many) {
  if (n == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", n, one) : fmt::format("{} {}", n, many);
}

std::optional<std::string> Nearest(std::string_view name, std::span<const std::string> candidates) {
  // A third of the letters wrong is still a typo; more is another word, and a wild guess misleads.
  const size_t tolerated = std::max<size_t>(1, name.size() / 3);
  const std::string* nearest = nullptr;
  size_t smallest = tolerated + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(candidate.size(), name.size());
    if (longer - std::min(candidate.size(), name.size()) >= smallest) continue;
    const size_t distance = EditDistance(name, candidate);
    if (distance >= smallest || distance >= longer) continue;  // "ab" is no misspelt "x"
    smallest = distance;
    nearest = &candidate;
  }
  if (nearest) return *nearest;
  // Or it is the beginning of one, or a word of it: "vanishing" of "vanishing_gradient".
  constexpr size_t kLeastPart = 3;
  if (name.size() < kLeastPart) return std::nullopt;
  for (const std::string& candidate : candidates) {
    if (candidate.find(name) == std::string::npos) continue;
    if (nearest && *nearest != candidate) return std::nullopt;  // several have it: none is meant
    nearest = &candidate;
  }
  return nearest ? std::optional(*nearest) : std::nullopt;
}

std::string JsonNumber(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  // Readers take "-0" for the integer 0 and lose the sign.
  if (value == 0 && std::signbit(value)) return "-0.0";
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  (void)error;  // 24 characters are the longest double
  return std::string(digits, end);
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr char32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out->push_back(static_cast<char>(kLead[more] | (c >> (6 * more))));
  for (int i = more - 1; i >= 0; --i) out->push_back(static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3f)));
}

std::string JsonPointerStep(std::string_view key) {
  std::string out = "/";
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace tdbg::base
