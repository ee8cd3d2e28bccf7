// What a running job is asked for through its run's control file, as its launcher sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tdbg::jobs {

/// Follows a control file: what was asked since the last look. One pread where nothing was.
class ControlFollower {
 public:
  /// Requests already there are not reported: they were an earlier attempt's.
  explicit ControlFollower(std::string run_directory);
  struct Request {
    bool interrupt = false;      ///< else "stop"
    std::string by;              ///< who asked
    int64_t notice_millis = -1;  ///< of an interruption: from SIGTERM to SIGKILL; -1: not said
  };
  /// The first new "stop"; where there is none the first "interrupt".
  std::optional<Request> NewRequest();

 private:
  uint64_t Generation() const;

  std::string path_;
  uint64_t generation_ = 0;
  uint64_t lines_end_ = 0;  // bytes of the file that were seen
};

}  // namespace tdbg::jobs
