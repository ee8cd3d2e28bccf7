// A process of ours that does one task beside a job, for as long as the job lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tdbg::cli {

/// Its standard input is a pipe that closes when the job is over, or its launcher is gone: then it finishes
/// by itself. If it is killed, it is started again. Its failure is told and affects nothing else.
class TendedProcess {
 public:
  TendedProcess();
  ~TendedProcess();
  TendedProcess(const TendedProcess&) = delete;

  /// \param arguments  of our own executable. \param what  for messages: "events are not delivered"
  void Start(std::vector<std::string> arguments, std::string what);
  /// Lets it finish, for `grace_millis` at most, then ends it. Does nothing if it was not started.
  void Finish(int64_t grace_millis);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::cli
