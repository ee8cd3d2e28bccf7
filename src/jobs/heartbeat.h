// At which step a training is, read from another process: eight bytes each time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"

namespace tdbg::jobs {

/// The heartbeat of an attempt's first worker (docs/semantics.md, "Time and the heartbeat").
class Heartbeat {
 public:
  Heartbeat(std::string run_directory, int64_t attempt);
  /// The last step that it has passed; -1: none yet, or nothing is recorded.
  int64_t Step();

 private:
  void Look(int64_t now_nanos);

  std::string run_directory_;
  int64_t attempt_;
  std::unique_ptr<base::ReadableFile> journal_;
  int64_t next_look_nanos_ = 0;
  int64_t step_ = -1;
};

}  // namespace tdbg::jobs
