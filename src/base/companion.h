// What is installed beside the running executable: other programs of ours, and the Python package.
#pragma once

#include <string>

namespace tdbg::base {

/// Path of a program of ours: $TDBG_HOME/NAME, $TDBG_HOME/bin/NAME, beside the running executable; else NAME
/// itself, to be looked up in PATH.
std::string FindCompanion(const std::string& name);

/// The directory that holds the Python package `tdbg`, or empty. In an installed wheel the executable itself
/// lies in <site-packages>/tdbg/bin and tells; otherwise $TDBG_HOME, then the source tree of a development
/// build.
std::string FindPythonHome();

}  // namespace tdbg::base
