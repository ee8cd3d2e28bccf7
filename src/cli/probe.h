// Checks of the machine for `tdbg doctor`: one function per question, each cheap and without side effects.
#pragma once

#include <cstdint>
#include <string>

#include "cli/json_output.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// What the given Python (found in PATH as training would) says of itself, of the frameworks that it
/// has ("frameworks": {"torch": "2.13.0"}) and of our extension.
/// \error kNotFound  no such Python; kUnavailable  it did not answer
Result<Json> ProbePython(const std::string& python, const std::string& home);
/// Can a file be pre-allocated and mapped in this directory? Leaves nothing behind.
Status ProbeMapping(const std::string& directory);
/// "ext4", "overlayfs", "tmpfs", "nfs", ..., or its magic number.
std::string FileSystemType(const std::string& path);
/// Is it a file system of this machine, where a shared mapping is seen by all and flock works?
bool IsLocalFileSystem(const std::string& type);
/// The widest vector instructions of this processor, in the kernel's words: "avx2".
std::string VectorInstructions();
/// How many more directories may be watched; 0 if there is no inotify.
int64_t InotifyWatches();

}  // namespace tdbg::cli
