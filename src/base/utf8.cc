#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/printable.h"
#include "base/text.h"

namespace tdbg::base {
namespace {

struct Sequence {
  size_t length = 0;  ///< bytes to take together; never 0
  bool valid = false;
};

// The well-formed sequences of the Unicode standard's table 3-7. An ill-formed one is cut after its longest
// valid beginning, as Python's errors="replace" does: C++ and Python print the same name.
Sequence NextSequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;   // shorter forms exist
    if (lead == 0xED) high = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

char32_t CodePointOf(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  char32_t c = byte(0) & (0x7Fu >> sequence.size());
  for (size_t i = 1; i < sequence.size(); ++i) c = (c << 6) | (byte(i) & 0x3Fu);
  return c;
}

// Of Unicode's general categories Cc, Cf, Zl and Zp, and the letters that are drawn as nothing: a terminal
// obeys the first (U+009B is ESC [ in one character), and a reader is deceived by the others. Sorted.
bool Deceives(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kRanges[] = {
      {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},     {0x600, 0x605},
      {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
      {0x115F, 0x1160},   {0x17B4, 0x17B5},   {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},
      {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
      {0xFFF0, 0xFFFB},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
      {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};
  const auto* range = std::upper_bound(std::begin(kRanges), std::end(kRanges), c,
                                       [](char32_t value, const Range& r) { return value < r.first; });
  return range != std::begin(kRanges) && c <= std::prev(range)->last;
}

// The length of a colour of ours (ESC [ digits and ';' m) at the beginning, or 0.
size_t ColourAt(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

template <typename Keep, typename Spell>
std::string Spelled(std::string_view text, const Keep& keep, const Spell& spell) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto plain = std::find_if(text.begin(), text.end(), [](char c) { return c < 0x20 || c == 0x7F; });
    if (plain != text.begin()) {  // most of what is printed
      const auto length = static_cast<size_t>(plain - text.begin());
      out.append(text.substr(0, length));
      text.remove_prefix(length);
      continue;
    }
    if (const size_t kept = keep(text); kept > 0) {
      out.append(text.substr(0, kept));
      text.remove_prefix(kept);
      continue;
    }
    const Sequence next = NextSequence(text);
    const std::string_view bytes = text.substr(0, next.length);
    if (!next.valid) {
      out += "\xEF\xBF\xBD";
    } else if (const char32_t c = CodePointOf(bytes); Deceives(c)) {
      spell(c, &out);
    } else {
      out.append(bytes);
    }
    text.remove_prefix(next.length);
  }
  return out;
}

void SpellForPeople(char32_t c, std::string* out) {
  const auto code = static_cast<uint32_t>(c);
  *out += code < 0x80      ? fmt::format("\\x{:02x}", code)
          : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\U{:08x}", code);
}

size_t KeepLines(std::string_view text) { return text[0] == '\n' || text[0] == '\t' ? 1 : 0; }

}  // namespace

std::string Printable(std::string_view text) {
  return Spelled(text, [](std::string_view) { return size_t{0}; }, SpellForPeople);
}

std::string PrintableLines(std::string_view text) { return Spelled(text, KeepLines, SpellForPeople); }

std::string PrintableOutput(std::string_view text) {
  const auto keep = [](std::string_view left) {
    const size_t lines = KeepLines(left);
    return lines > 0 ? lines : ColourAt(left);
  };
  return Spelled(text, keep, SpellForPeople);
}

std::string PrintableJson(std::string_view json) {
  // Between its values a document holds blanks and line ends only, so what is spelled is inside a string.
  const auto keep = [](std::string_view left) { return left[0] == '\r' ? size_t{1} : KeepLines(left); };
  return Spelled(json, keep, [](char32_t c, std::string* out) {
    auto code = static_cast<uint32_t>(c);
    if (code >= 0x10000) {
      code -= 0x10000;
      *out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      *out += fmt::format("\\u{:04x}", code);
    }
  });
}

bool IsValidName(std::string_view text) {
  while (!text.empty()) {
    const Sequence next = NextSequence(text);
    if (!next.valid || text[0] == '\0') return false;
    text.remove_prefix(next.length);
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Sequence next = NextSequence(text);
    if (next.valid) {
      valid.append(text.substr(0, next.length));
    } else {
      valid.append("\xEF\xBF\xBD");
    }
    text.remove_prefix(next.length);
  }
  return valid;
}

}  // namespace tdbg::base
