// A page of ours on a terminal: the Markdown that rules' pages are written in, and no more of it.
#pragma once

#include <string>
#include <string_view>

#include "cli/terminal.h"

namespace tdbg::cli {

/// Headings, paragraphs (filled to the terminal's width, at most 100 columns), lists, tables (columns
/// aligned), code, **bold**, `code`, [links](shown as their text), ![pictures](shown as their text and file).
std::string FormatMarkdown(std::string_view markdown, const Terminal& terminal);

}  // namespace tdbg::cli
