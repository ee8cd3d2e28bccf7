// tdbg stop: asks a running job to end, through its control file; one whose launcher is gone by a signal,
// too.
#include <fmt/format.h>
#include <signal.h>

#include <memory>
#include <string>

#include "actions/control_request.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "jobs/job_life.h"
#include "jobs/job_process.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"
#include "watch/requests.h"

namespace tdbg::cli {
namespace {

/// The command of a job on this machine that is still there without a launcher; null: there is none.
std::unique_ptr<jobs::JobProcess> CommandWithoutLauncher(const std::string& run) {
  const auto registry = jobs::Registry::OpenExisting();
  if (!registry.ok()) return nullptr;
  const auto job = registry->FindRun(jobs::RunId(run));
  if (!job.ok() || jobs::LifeOf(*job) != jobs::JobLife::kUnwatched) return nullptr;
  auto process = jobs::AdoptProcess(job->process);
  return process.ok() ? *std::move(process) : nullptr;
}

class StopCommand : public Command {
 public:
  std::string name() const override { return "stop"; }
  std::string help() const override { return "ask a running job to end"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer(
        "\nThe job gets SIGTERM and, after its grace, SIGKILL from its launcher, or stops at a step of its "
        "own. Where its launcher is gone, SIGTERM comes from here, and nothing follows it.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunOfJob(run_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path));
    const bool watched = jobs::LauncherAlive(trial->path());
    const auto alone = watched ? nullptr : CommandWithoutLauncher(trial->path());
    if (!watched && alone == nullptr && trial->state() != RunState::kRunning)
      return FailedPrecondition("the run is not running; `tdbg status` says how it ended");
    TDBG_RETURN_IF_ERROR(actions::RequestStop(trial->path(), "user", watch::CommonFutureStep(*trial)));
    // It may be at its imports, or capture nothing: then it never looks at the request.
    if (alone != nullptr) alone->SignalGroup(SIGTERM);
    if (json_)
      PrintJson({{"run", trial->path()}, {"requested", "stop"}});
    else
      Tell("tdbg: asked {} to stop; tdbg status {} says when it has\n", Printable(trial->name()),
           ShellWord(run_));
    return kExitOk;
  }

 private:
  std::string run_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStopCommand() { return std::make_unique<StopCommand>(); }

}  // namespace tdbg::cli
