// Lines that people read, on a terminal or in a log.
#pragma once

#include <string>
#include <string_view>

namespace tdbg::base {

inline constexpr int kTextColumns = 100;
/// Columns that UTF-8 text takes, one per code point: our own texts hold nothing wider.
int DisplayWidth(std::string_view text);
/// Broken at blanks, so that no line is wider than `columns`: the first begins at column `indent`, behind
/// what stands there already, and so do those that follow. A word that is wider than a line stays whole. Line
/// feeds in `text` stay.
std::string Wrapped(std::string_view text, int indent, int columns = kTextColumns);

}  // namespace tdbg::base
