#include <cstddef>

#include "base/text.h"

namespace tdbg::base {
namespace {

struct Sequence {
  size_t length = 0;  ///< bytes to take together; never 0
  bool valid = false;
};

// The well-formed sequences of the Unicode standard's table 3-7. An ill-formed one is cut after its longest
// valid beginning, as Python's errors="replace" does, so that both sides of a file print the same name.
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

}  // namespace

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
