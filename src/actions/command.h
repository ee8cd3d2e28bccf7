// Runs one command with a time limit and keeps the beginning of what it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/process.h"
#include "tdbg/status.h"

namespace tdbg::actions {

struct CommandResult {
  bool timed_out = false;
  base::ExitState exit;
  std::string output;  ///< stdout and stderr as they came, valid UTF-8, at most kMaxOutput bytes
};

inline constexpr size_t kMaxOutput = 4096;

/// In a process group of its own, which is ended (SIGTERM, two seconds, SIGKILL) when the time is up. What
/// the command leaves running in the background keeps running and is no longer listened to. \error kNotFound
/// no such program
Result<CommandResult> RunCommand(base::SpawnOptions options, int64_t limit_millis);

}  // namespace tdbg::actions
