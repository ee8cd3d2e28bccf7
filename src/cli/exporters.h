// Exports that a job's launcher starts beside the training: TensorBoard's files, smdebug's layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/posix.h"
#include "base/process.h"
#include "cli/json_output.h"
#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// One export of a job, from the run's events.
struct ExportOutcome {
  std::string to;    ///< "tensorboard", "smdebug"
  std::string path;  ///< absolute
  bool ok = false;
  std::string text;  ///< "120 scalars, 4 histograms", or what went wrong
};
Json ExportFields(const ExportOutcome& outcome, int64_t attempt);
/// The attempt's exports that have ended, and how.
std::vector<ExportOutcome> ReadExports(const std::string& run_directory, int64_t attempt);

/// The arguments of `tdbg export RUN` for each export that the configuration asks for: ["--to",
/// "tensorboard", PATH,
/// ...]. A launcher other than `tdbg run` adds --follow --launched.
std::vector<std::vector<std::string>> ExportArguments(const plan::Config& config,
                                                      const std::string& run_directory);

/// The job is over, and so is what readers of its exports wait for: tells them, where the format has a word
/// for it (smdebug's). A failure is noted.
void TellReadersOfEnd(const plan::Config& config, const std::string& run_directory);
/// An earlier end was not the last: before a job trains (again), takes that word back. A failure is noted.
void TakeBackEnd(const plan::Config& config, const std::string& run_directory);

/// The processes (`tdbg export --follow`) that read a run as any reader does and write it elsewhere. A
/// failure of one is told once and affects nothing else.
class Exporters {
 public:
  Exporters() = default;
  ~Exporters();
  Exporters(const Exporters&) = delete;

  /// Starts the exports that the configuration asks for (mostly none). One that cannot be started is told and
  /// left out. Where the one of the attempt before did not end, all that the run has is written anew.
  /// \param again  others were started for this attempt before, and ended with their launcher
  void Start(const plan::Config& config, const std::string& run_directory, int64_t attempt, bool again);
  /// The attempt is over and everything is on disk: lets them finish, for `grace_millis` at most, then ends
  /// them.
  void Finish(int64_t grace_millis);

 private:
  struct Process {
    std::string to, path;
    base::Child child;
  };
  std::vector<Process> processes_;
  base::UniqueFd job_is_alive_;  ///< closed: the job is over
};

}  // namespace tdbg::cli
