// What of a text that somebody else wrote may be printed.
#pragma once

#include <string>
#include <string_view>

namespace tdbg::base {

/// What is safe to print, on a terminal and in a log, of a name or text that somebody else wrote: valid UTF-8
/// in which every control character (C0, DEL, C1), every mark that changes the direction of text and every
/// invisible one is spelled out, as \x1b or \u202e. Such data can neither steer a terminal nor pass for
/// another name. Text without any comes back as it is.
std::string Printable(std::string_view text);
/// The same, of several lines: line feeds and tabs stay.
std::string PrintableLines(std::string_view text);
/// The same, of a JSON document: escaped as JSON does it, so that it reads as the same values.
std::string PrintableJson(std::string_view json);
/// The same, of what a program of ours prints to a terminal: its own colours (SGR sequences) stay as well.
std::string PrintableOutput(std::string_view text);

}  // namespace tdbg::base
