// What a job's launcher has others write while it trains: TensorBoard's files, smdebug's layout.
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

/// One output of a job, as the run's events tell of it.
struct ExportOutcome {
  std::string to;    ///< "tensorboard", "smdebug"
  std::string path;  ///< absolute
  bool ok = false;
  std::string text;  ///< "120 scalars, 4 histograms", or what went wrong
};
Json ExportFields(const ExportOutcome& outcome, int64_t attempt);
/// What became of the attempt's exports that have ended.
std::vector<ExportOutcome> ReadExports(const std::string& run_directory, int64_t attempt);

/// What `tdbg export RUN` has to be given for each output that the configuration asks for: ["--to",
/// "tensorboard", PATH, ...]. For whoever launches a job without `tdbg run`; with --follow --launched in
/// addition.
std::vector<std::vector<std::string>> ExportArguments(const plan::Config& config,
                                                      const std::string& run_directory);

/// The processes (`tdbg export --follow`) that read a run like anybody else and write it elsewhere. A failure
/// of one is told once and hurts nobody else.
class Exporters {
 public:
  Exporters() = default;
  ~Exporters();
  Exporters(const Exporters&) = delete;

  /// What the configuration asks for; nothing, mostly. What cannot be started is said and left out.
  void Start(const plan::Config& config, const std::string& run_directory, int64_t attempt);
  /// The job is over and everything is on disk: lets them finish, for `grace_millis` at most, then ends them.
  void Finish(int64_t grace_millis);

 private:
  struct Process {
    std::string to, path;
    base::Child child;
  };
  std::vector<Process> processes_;
  base::UniqueFd job_is_alive_;  ///< closed: it is not
};

}  // namespace tdbg::cli
