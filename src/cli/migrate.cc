// tdbg migrate: what of a team's smdebug and sagemaker.debugger programs runs here, line by line. The reading
// is Python's (python/tdbg/migrate): who reads Python best is Python.
#include <string>
#include <vector>

#include "base/companion.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "rulehost/host_command.h"

namespace tdbg::cli {
namespace {

class MigrateCommand : public Command {
 public:
  std::string name() const override { return "migrate"; }
  std::string help() const override {
    return "what of programs for smdebug and sagemaker.debugger runs here, and how";
  }
  void Define(Flags& flags) override {
    flags.AddOption("PATH", paths_, "scripts, notebooks, configurations, or directories of them").Required();
    flags
        .AddOption("--write", write_,
                   "write configurations and the commands (commands.sh) into this directory")
        .TypeName("DIR");
    flags.AddFlag("--changes", changes_, "only lines that change or are not offered");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    const std::string home = base::FindPythonHome();
    if (home.empty()) {
      return NotFound(
          "migrate needs tdbg's Python part, which cannot be found; set TDBG_HOME to the directory that "
          "holds the package, or install the wheel");
    }
    base::SpawnOptions spawn;
    // Isolated: neither the directory that is read nor $PYTHONPATH is a place to import from.
    spawn.argv = {rulehost::PythonInterpreter(), "-I", base::JoinPath(home, "tdbg/migrate/main.py")};
    if (!write_.empty()) spawn.argv.push_back("--write=" + write_);
    if (changes_) spawn.argv.emplace_back("--changes");
    if (json_) spawn.argv.emplace_back("--json");
    if (Terminal::Of(1).colour) spawn.argv.emplace_back("--colour");
    spawn.argv.emplace_back("--");
    spawn.argv.insert(spawn.argv.end(), paths_.begin(), paths_.end());
    spawn.own_group = false;
    auto child = base::Child::Spawn(spawn);
    if (!child.ok()) return child.status().Annotate("migrate needs Python (TDBG_PYTHON names one)");
    const auto exit = child->Wait(-1);
    return exit ? exit->shell_code() : kExitOk;
  }

 private:
  std::vector<std::string> paths_;
  std::string write_;
  bool changes_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeMigrateCommand() { return std::make_unique<MigrateCommand>(); }

}  // namespace tdbg::cli
