// Asking a job that may run on another host for something: a line in its run's control file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::actions {

/// Each appends {"id", "action", "by", "at_step", ...} to <run>/control and raises its generation, which the
/// training process looks at between steps. Creates the file where nobody has yet. Safe against other
/// writers.
/// \param at_step  a step in the future, at whose end every worker obeys; -1: each as soon as it reads it
/// \error kNotFound     no such run
/// \error kDataLoss     something else is called "control" there
Status RequestStop(const std::string& run, const std::string& by, int64_t at_step = -1);
/// The launcher ends the command as a reclaimed machine would and starts it again.
/// \param notice_seconds  between SIGTERM and SIGKILL; -1: the job's own grace
/// \param wipe  its checkpoint directory is lost with the machine
Status RequestInterrupt(const std::string& run, const std::string& by, int64_t notice_seconds,
                        bool wipe = false);
/// Statistics and, with `raw`, values of these collections' tensors at each of the next `steps` steps.
Status RequestCapture(const std::string& run, const std::string& by, int64_t at_step,
                      const std::vector<std::string>& collections, int64_t steps, bool raw);
/// Every worker holds its training at the end of `at_step`, for `seconds` at most.
/// \param because  what the training says meanwhile
Status RequestPause(const std::string& run, const std::string& by, int64_t at_step, int64_t seconds,
                    const std::string& because);
/// Whoever holds goes on.
Status RequestContinue(const std::string& run, const std::string& by);
/// The first step that begins after `at_step` is kept whole (docs/black-box.md).
Status RequestBlackBox(const std::string& run, const std::string& by, int64_t at_step,
                       const std::string& because);
/// A breakpoint, for whoever watches the run (watch/breakpoints.h). \return the request's id
Result<std::string> RequestBreak(const std::string& run, const std::string& by, const std::string& condition,
                                 const std::string& then, int64_t of_attempt, int64_t after_step);
Status RequestRemoveBreak(const std::string& run, const std::string& by, const std::string& id);
/// Calls what the script registered (tdbg.on_checkpoint). \return the request's id, which the answer repeats
Result<std::string> RequestCheckpoint(const std::string& run, const std::string& by, int64_t at_step);

}  // namespace tdbg::actions
