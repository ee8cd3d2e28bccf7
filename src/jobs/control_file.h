// Requests to a running job in its run's control file, as the launcher reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tdbg::jobs {

/// Follows a control file and returns requests that are new. One pread if there are none.
class ControlFollower {
 public:
  /// Requests that are already there are not reported: they concerned an earlier attempt.
  explicit ControlFollower(std::string run_directory);
  struct Request {
    bool interrupt = false;      ///< otherwise "stop"
    bool wipe = false;           ///< of an interruption: the checkpoint directory is lost with the machine
    std::string by;              ///< who asked
    int64_t notice_millis = -1;  ///< of an interruption: from SIGTERM to SIGKILL; -1: not said
  };
  /// The first new "stop"; if there is none, the first "interrupt".
  std::optional<Request> NewRequest();

 private:
  uint64_t Generation() const;

  std::string path_;
  uint64_t generation_ = 0;
  uint64_t lines_end_ = 0;  // how many bytes of the file were read
};

}  // namespace tdbg::jobs
