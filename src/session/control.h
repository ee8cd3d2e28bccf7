// The training process's side of the control file: eight bytes read a step, and its lines only when somebody
// asked.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/file.h"
#include "format/run_files.h"
#include "tdbg/status.h"

namespace tdbg::session {

class Control {
 public:
  /// Requests that are there already belong to earlier attempts and are ignored, except those whose "attempt"
  /// is this one.
  static Result<std::unique_ptr<Control>> Open(base::FileSystem& files, std::string path, int64_t attempt);

  /// The next request that is due: its "at_step" is absent or has been reached.
  std::optional<format::ControlRequest> Take(int64_t global_step) {
    if (waiting_.empty() && Generation() == seen_generation_) return std::nullopt;
    return TakeSlowly(global_step);
  }

 private:
  struct Waiting {
    format::ControlRequest request;
    int64_t at_step;
  };

  Control(base::FileSystem& files, std::string path, int64_t attempt)
      : files_(files), path_(std::move(path)), attempt_(attempt) {}
  /// The last one seen where the file has become too short. Read, not mapped: a load from a mapping is a
  /// SIGBUS once somebody has cut the file off, and over a network file system need not ever see what another
  /// host wrote. 0.2 us.
  uint64_t Generation();
  std::optional<format::ControlRequest> TakeSlowly(int64_t global_step);
  void ReadNew(bool only_of_this_attempt);
  /// Where the script has closed our descriptor; what it has opened since may have its number. Rarely: a file
  /// that is not there is not looked for at every step.
  void Reopen();

  base::FileSystem& files_;
  const std::string path_;
  const int64_t attempt_;
  std::unique_ptr<base::ReadableFile> file_;
  uint64_t seen_generation_ = 0;
  uint32_t skip_ = 0;  // looks to leave out after a failed one
  std::set<std::string> seen_ids_;
  std::deque<Waiting> waiting_;
};

}  // namespace tdbg::session
