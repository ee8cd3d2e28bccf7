// tdbg stop: asks a running job to end, through its control file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "actions/control_request.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "jobs/run_directory.h"
#include "watch/requests.h"

namespace tdbg::cli {
namespace {

class StopCommand : public Command {
 public:
  std::string name() const override { return "stop"; }
  std::string help() const override { return "ask a running job to end"; }
  void Define(CLI::App& app) override {
    app.add_option("RUN", run_, "a path, a name under ./tdbg-runs, or last")->required();
    app.add_flag("--json", json_, "one JSON document on stdout");
    app.footer(
        "\nThe job gets SIGTERM and, after its grace, SIGKILL from its launcher, or stops at a step of its "
        "own.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRun(run_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path));
    const bool alive = jobs::LauncherAlive(trial->path()) || trial->state() == RunState::kRunning;
    if (!alive) return FailedPrecondition("the run is not running; `tdbg status` says how it ended");
    TDBG_RETURN_IF_ERROR(actions::RequestStop(trial->path(), "user", watch::CommonFutureStep(*trial)));
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
