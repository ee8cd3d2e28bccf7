// tdbg capture: asks a running job for more detail over its next steps, through its control file.
#include <fmt/format.h>

#include "actions/control_request.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "watch/requests.h"

namespace tdbg::cli {
namespace {

class CaptureCommand : public Command {
 public:
  std::string name() const override { return "capture"; }
  std::string help() const override { return "ask a running job for more detail over its next steps"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags
        .AddOption("--collect", collections_,
                   "a collection whose tensors are captured at every step; repeatable")
        .TypeName("NAME")
        .Required()
        .Repeatable();
    flags.AddOption("--steps", steps_, "for so many steps; default 50").Check(IntegerFrom(1));
    flags.AddFlag("--raw", raw_, "their values, not only statistics");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer(
        "\nOnly tensors that the run captures at all can be had in more detail. What is not captured from "
        "the start (outputs and inputs of modules: tdbg run --collect outputs) cannot be had later.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunOfJob(run_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path));
    if (trial->state() != RunState::kRunning) {
      return FailedPrecondition("the run is not running; `tdbg status` says how it ended");
    }
    for (const std::string& collection : collections_) {
      TDBG_ASSIGN_OR_RETURN(const auto names, trial->tensor_names({}, collection));
      if (names.empty()) {
        return InvalidArgument(fmt::format(
            "capture: the run captures no tensor of '{0}', and what a run captures is decided at its "
            "start: tdbg run --collect {0}; `tdbg tensors {1}` lists what this one captures",
            collection, ShellWord(run_)));
      }
    }
    const int64_t at_step = watch::CommonFutureStep(*trial);
    TDBG_RETURN_IF_ERROR(actions::RequestCapture(trial->path(), "user", at_step, collections_, steps_, raw_));
    if (json_) {
      PrintJson({{"run", trial->path()},
                 {"requested", "capture"},
                 {"collections", collections_},
                 {"first_step", at_step + 1},
                 {"steps", steps_},
                 {"raw", raw_}});
    } else {
      Tell("tdbg: asked {} for more from step {} on, for {}\n", Printable(trial->name()), at_step + 1,
           base::Counted(steps_, "step"));
    }
    return kExitOk;
  }

 private:
  std::string run_;
  std::vector<std::string> collections_;
  int64_t steps_ = 50;
  bool raw_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCaptureCommand() { return std::make_unique<CaptureCommand>(); }

}  // namespace tdbg::cli
