// What is installed beside the running executable: other programs of ours, and the Python package.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::base {

/// Path of a program of ours: $TDBG_HOME/NAME, $TDBG_HOME/bin/NAME, beside the running executable; else NAME
/// itself, to be looked up in PATH.
std::string FindCompanion(const std::string& name);

/// All that a program prints into this pipe, until its end or until it cannot be read any more.
std::string ReadToEnd(int fd);

/// What a program of ours answers in a line: "ok", "ok TEXT" (the text) or "error CODE MESSAGE" (that error).
/// Nothing: the line is no answer, as of a program that was killed.
std::optional<Result<std::string>> ParseAnswer(std::string_view line);

/// The directory that holds the Python package `tdbg`, or empty. In an installed wheel the executable itself
/// lies in <site-packages>/tdbg/bin and tells; otherwise $TDBG_HOME, then the source tree of a development
/// build.
std::string FindPythonHome();

}  // namespace tdbg::base
