// What a command says: its answer to stdout, everything else to stderr. Both may be a file on a full disk, a
// closed descriptor or a pipe that nobody reads any more, and nothing here throws or aborts for it: `tdbg
// run` stays with its training. Main says at the end what became of the answer.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Both let nothing through that steers a terminal but line feeds, tabs and colours: the net below
/// base::Printable, which also keeps a name on its line.
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

/// Writes what is still in the buffer. \error kResourceExhausted, kUnavailable  not everything was written
Status FlushOut();

/// A standard stream that is closed must not become the descriptor of the next file that is opened, into
/// which our messages would then go. Closed ones are opened such that using them fails; a child still has
/// them closed.
void OccupyStandardStreams();

}  // namespace tdbg::cli
