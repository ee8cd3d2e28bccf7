// Asking a job that may run on another host to stop: a line in its run's control file.
#pragma once

#include <string>

#include "tdbg/status.h"

namespace tdbg::actions {

/// Appends {"id","action":"stop","by"} to <run>/control and raises its generation, which the training process
/// looks at between steps. Creates the file where nobody has yet. Safe against other writers.
/// \error kNotFound     no such run
/// \error kDataLoss     something else is called "control" there
Status RequestStop(const std::string& run, const std::string& by);

}  // namespace tdbg::actions
