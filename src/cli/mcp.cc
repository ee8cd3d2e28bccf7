// tdbg mcp: the questions about runs for programs that reason, as a server of the Model Context Protocol.
#include <fmt/format.h>

#include "base/companion.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/viewer.h"
#include "rulehost/host_command.h"

namespace tdbg::cli {
namespace {

class McpCommand : public Command {
 public:
  std::string name() const override { return "mcp"; }
  std::string help() const override { return "answer an agent's questions about runs, over stdio (MCP)"; }
  void Define(Flags& flags) override {
    flags.AddOption("ROOT", where_, "a run, or a directory of runs; default: the runs of here (tdbg ls)");
    flags
        .AddOption("--python", python_,
                   "a Python that has the package mcp; default: $TDBG_PYTHON, else tdbg's own")
        .TypeName("COMMAND");
    flags.Footer(
        "\nA client starts it: {\"mcpServers\": {\"tdbg\": {\"command\": \"tdbg\", \"args\": [\"mcp\", "
        "\"ROOT\"]}}}\n"
        "Reads runs below ROOT and changes nothing. Needs the package mcp: pip install 'tdbg[mcp]'.");
  }

  Result<int> Run() override {
    // What cannot be shown is said here, and not to a client that waits for a first message.
    TDBG_ASSIGN_OR_RETURN(const ViewedRuns runs, RunsToView(where_));
    (void)runs;
    const std::string home = base::FindPythonHome();
    if (home.empty()) {
      return NotFound(
          "mcp needs tdbg's Python part, which cannot be found; set TDBG_HOME to the directory that holds "
          "the package, or install the wheel");
    }
    base::SpawnOptions spawn;
    spawn.argv = {python_.empty() ? rulehost::PythonInterpreter() : python_,
                  base::JoinPath(home, "tdbg/agents/main.py"), "--tdbg=" + base::SelfExecutable()};
    if (!where_.empty()) spawn.argv.push_back("--root=" + where_);
    spawn.own_group = false;
    spawn.die_with_thread = true;
    auto child = base::Child::Spawn(spawn);
    if (!child.ok())
      return child.status().Annotate("mcp needs a Python with the package mcp (--python COMMAND)");
    const auto exit = child->Wait(-1);
    return exit ? exit->shell_code() : kExitOk;
  }

 private:
  std::string where_, python_;
};

}  // namespace

std::unique_ptr<Command> MakeMcpCommand() { return std::make_unique<McpCommand>(); }

}  // namespace tdbg::cli
