// The environment of a training command.
#pragma once

#include <map>
#include <string>

namespace tdbg::jobs {

/// The variables that a training command gets in its environment (specified for the adaptors in
/// docs/life-of-a-tensor.md): TDBG_RUN, TDBG_ATTEMPT, TDBG_HOME and, in front of PYTHONPATH, the directory of
/// the boot files.
std::map<std::string, std::string> TrainingEnvironment(const std::string& run_directory, int64_t attempt,
                                                       const std::string& home);

}  // namespace tdbg::jobs
