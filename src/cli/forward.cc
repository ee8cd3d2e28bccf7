// tdbg forward: a run's losses, chosen statistics and verdicts, sent to experiment trackers by their own
// libraries.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/companion.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/run_path.h"
#include "rulehost/host_command.h"

namespace tdbg::cli {
namespace {

const std::vector<std::string> kTrackers = {"mlflow", "trackio", "wandb"};

class ForwardCommand : public Command {
 public:
  std::string name() const override { return "forward"; }
  std::string help() const override {
    return "send a run's numbers and verdicts to wandb, MLflow or trackio";
  }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("--to", to_, "mlflow, trackio, wandb; repeatable")
        .TypeName("TRACKER")
        .Required()
        .Repeatable();
    flags
        .AddOption("--collection", collections_,
                   "numbers of this collection; repeatable, default losses, metrics")
        .TypeName("NAME")
        .Repeatable();
    flags.AddOption("--tensors", tensors_, "also statistics of tensors in whose name it is found")
        .TypeName("REGEX");
    flags.AddOption("--fields", fields_, "which statistics of those; default mean_abs").TypeName("F,F,...");
    flags.AddOption("--every", every_, "only global steps that are multiples of N; default 1")
        .TypeName("N")
        .Check(IntegerFrom(1));
    flags.AddOption("--project", project_, "the tracker's project or experiment; default tdbg")
        .TypeName("NAME");
    flags.AddOption("--name", name_, "what the run is called there; default its own name").TypeName("NAME");
    flags.AddFlag("--follow", follow_, "go on until the run has ended");
    flags
        .AddOption("--python", python_,
                   "a Python that has the tracker; default: $TDBG_PYTHON, else tdbg's own")
        .TypeName("COMMAND");
  }

  Result<int> Run() override {
    for (const std::string& tracker : to_) {
      if (std::find(kTrackers.begin(), kTrackers.end(), tracker) != kTrackers.end()) continue;
      const auto nearest = base::Nearest(tracker, kTrackers);
      return InvalidArgument(fmt::format("--to {}: no such tracker{}; accepted: {}", tracker,
                                         nearest ? ", did you mean " + *nearest + "?" : "",
                                         fmt::join(kTrackers, ", ")));
    }
    TDBG_ASSIGN_OR_RETURN(const std::string run, ResolveRun(run_));
    const std::string home = base::FindPythonHome();
    if (home.empty()) {
      return NotFound(
          "forward needs tdbg's Python part, which cannot be found; set TDBG_HOME to the directory that "
          "holds "
          "the package, or install the wheel");
    }
    base::SpawnOptions spawn;
    spawn.argv = {python_.empty() ? rulehost::PythonInterpreter() : python_,
                  base::JoinPath(home, "tdbg/forward/main.py"), run};
    const auto give = [&](const char* flag, const std::string& value) {
      if (!value.empty()) spawn.argv.insert(spawn.argv.end(), {fmt::format("{}={}", flag, value)});
    };
    for (const std::string& tracker : to_) give("--to", tracker);
    for (const std::string& collection : collections_) give("--collection", collection);
    give("--tensors", tensors_);
    give("--fields", fields_);
    give("--every", std::to_string(every_));
    give("--project", project_);
    give("--name", name_);
    if (follow_) spawn.argv.emplace_back("--follow");
    spawn.own_group = false;
    auto child = base::Child::Spawn(spawn);
    if (!child.ok())
      return child.status().Annotate("forward needs a Python with the tracker (--python COMMAND)");
    const auto exit = child->Wait(-1);
    return exit ? exit->shell_code() : kExitOk;
  }

 private:
  std::string run_, tensors_, fields_, project_, name_, python_;
  std::vector<std::string> to_, collections_;
  int64_t every_ = 1;
  bool follow_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeForwardCommand() { return std::make_unique<ForwardCommand>(); }

}  // namespace tdbg::cli
