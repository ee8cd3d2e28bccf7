// The `tdbg run` that trains a job of the service.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "service/job_files.h"

namespace tdbg::service {

/// Its words, with the command of the job's container. \pre WriteContainer
std::vector<std::string> LauncherCommand(const JobDocument& job, const JobPaths& paths);
/// What it finds in its environment besides the server's; the first launcher, and each that takes its place.
std::map<std::string, std::string> LauncherEnvironment(const JobDocument& job, const JobPaths& paths);

}  // namespace tdbg::service
