// Asking a running job for something: one line in the run's control file, one number raised.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Appends a request and raises the generation that the training process looks at. Returns the request's id.
/// \param action  "stop", "capture", ...
/// \param by      who asks: "user", a rule's name
/// \error kNotFound  the run has no control file
Result<std::string> AppendControlRequest(const std::string& run_directory, const std::string& action,
                                         const std::string& by, const std::string& reason);

/// Follows a control file: what was asked since the last look. One pread where nothing was.
class ControlFollower {
 public:
  /// Requests already there are not reported: they were an earlier attempt's.
  explicit ControlFollower(std::string run_directory);
  /// `by` of the first new "stop", or empty.
  std::string NewStopRequest();

 private:
  uint64_t Generation() const;

  std::string path_;
  uint64_t generation_ = 0;
  uint64_t lines_end_ = 0;  // bytes of the file that were seen
};

}  // namespace tdbg::jobs
