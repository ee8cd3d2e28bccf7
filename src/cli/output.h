// Output of a command: its answer to stdout, everything else to stderr. Either may be a file on a full disk,
// a closed descriptor or a pipe without a reader; nothing here throws or aborts because of that, so `tdbg
// run` stays with its training. Main reports at the end whether the answer was written.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Both remove everything that controls a terminal except line feeds, tabs and colours: a second safeguard
/// behind base::Printable, which also keeps a name on its line.
void WriteOut(std::string_view text);
/// What cannot be written is lost.
void WriteErr(std::string_view text);
/// To stderr as it is: a line of ours that is drawn over.
void WriteProgress(std::string_view text);

/// As fmt::print, to stdout.
template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  WriteOut(fmt::format(format, std::forward<Args>(args)...));
}

/// As fmt::print, to stderr.
template <typename... Args>
void Tell(fmt::format_string<Args...> format, Args&&... args) {
  WriteErr(fmt::format(format, std::forward<Args>(args)...));
}

/// To stderr, "tdbg: TEXT" in lines of 100 columns: what people read beside an answer. An error is one line.
void Note(std::string_view text);

/// Writes what is still in the buffer. \error kResourceExhausted, kUnavailable  not everything was written
Status FlushOut();

/// If a standard stream is closed, the next file that is opened would get its descriptor, and our messages
/// would go into that file. So closed ones are occupied by a descriptor whose use fails, and which children
/// do not inherit.
void OccupyStandardStreams();

}  // namespace tdbg::cli
