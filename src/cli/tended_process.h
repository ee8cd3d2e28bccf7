// A process of ours that does one task beside a job, for as long as the job lives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"

namespace tdbg::cli {

/// Its standard input is a pipe that closes when the job is over, or its launcher is gone: then it finishes
/// by itself. If it is killed, it is started again. Its failure is told and affects nothing else.
class TendedProcess {
 public:
  TendedProcess();
  ~TendedProcess();
  TendedProcess(const TendedProcess&) = delete;

  /// \param what  for messages: "events are not delivered"
  /// \param program  its path; empty: our own executable
  void Start(std::vector<std::string> arguments, std::string what, std::string program = {});
  /// Lets it finish, for `grace_millis` at most, then ends it. Does nothing if it was not started.
  /// \return how it ended by itself; nothing if it did not
  std::optional<base::ExitState> Finish(int64_t grace_millis);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::cli
