// tdbg keep: marks steps that `tdbg compact --budget` never drops.
#include <fmt/format.h>

#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "format/marks.h"

namespace tdbg::cli {
namespace {

class KeepCommand : public Command {
 public:
  std::string name() const override { return "keep"; }
  std::string help() const override { return "mark steps that stay at full resolution, whatever the budget"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("--steps", steps_, "global steps from A up to, not including, B")
        .TypeName("A:B")
        .Required();
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRun(run_));
    TDBG_ASSIGN_OR_RETURN(const StepRange range, ParseStepRange(steps_));
    if (range.end < 0 || range.end <= range.begin) {
      return InvalidArgument("--steps: found \"" + steps_ +
                             "\", accepted: A:B with A below B, as in 1000:2000, or one step");
    }
    const format::Mark mark{range.begin, range.end - 1, base::SystemClock().WallNanos()};
    TDBG_RETURN_IF_ERROR(base::FilesBelow(base::LocalFileSystem(), path)
                             .AppendLine(base::JoinPath(path, format::kMarksFile), mark.ToJson()));
    if (json_) {
      PrintJson({{"run", path}, {"first", mark.first}, {"last", mark.last}});
    } else {
      Tell("tdbg: steps {} to {} stay; what of them was dropped before does not come back\n", mark.first,
           mark.last);
    }
    return kExitOk;
  }

 private:
  std::string run_, steps_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeKeepCommand() { return std::make_unique<KeepCommand>(); }

}  // namespace tdbg::cli
