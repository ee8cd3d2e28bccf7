// Where each attempt of a run began: the launcher's record of earlier steps for the next attempt, and what
// `status` says of attempts that have begun.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Where an attempt began, from its workers' files.
struct AttemptStart {
  int64_t attempt = 0;
  int64_t step = 0;      ///< global
  std::string from;      ///< "script", "metadata.json", "optimizer", "model"; format::kBehind, empty: unknown
  int64_t replaced = 0;  ///< earlier steps that it trained again; negative: how many are missing
  /// A worker that says that it begins elsewhere.
  struct Other {
    std::string worker;
    int64_t step = 0;
    bool recorded = false;  ///< its steps are numbered from there; else from where the others began
  };
  std::vector<Other> others;
};

/// Writes <run>/<attempt>/earlier_steps.json (docs/format.md) where it is not there: the steps that readers
/// see now. Call it before a worker of the attempt records. Without this file an attempt continues by counts
/// alone.
Status TellEarlierSteps(const std::string& run_directory, int64_t attempt);
/// Starts of the attempts that have workers, except the first attempt if it began at 0.
/// On which host each of these attempts was, as its workers say; empty: it had none yet. Of one on several,
/// one of them.
std::vector<std::string> HostsOf(const std::string& run_directory, const std::vector<int64_t>& attempts);
std::vector<AttemptStart> AttemptStarts(const std::string& run_directory);
/// "120, as the optimizer's state says; 12 steps were trained again"
std::string StartWords(const AttemptStart& start);

}  // namespace tdbg::cli
