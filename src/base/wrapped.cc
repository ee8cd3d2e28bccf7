#include "base/wrapped.h"

#include <algorithm>

namespace tdbg::base {

int DisplayWidth(std::string_view text) {
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Wrapped(std::string_view text, int indent, int columns) {
  const std::string next_line = "\n" + std::string(static_cast<size_t>(indent), ' ');
  std::string out;
  int column = indent;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const int width = DisplayWidth(word);
    if (column > indent && column + width > columns) {
      while (out.ends_with(' ')) out.pop_back();
      out += next_line;
      column = indent;
    }
    out += word;
    column += width;
    if (end < text.size()) {
      out += text[end] == '\n' ? next_line : " ";
      column = text[end] == '\n' ? indent : column + 1;
    }
    begin = end + 1;
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace tdbg::base
