// tdbg view: the page, served on this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "cli/viewer.h"
#include "jobs/run_directory.h"
#include "server/server.h"
#include "trial/run_kind.h"

namespace tdbg::cli {
namespace {

class ViewCommand : public Command {
 public:
  std::string name() const override { return "view"; }
  std::string help() const override { return "the page: runs, layers, tensors and findings in a browser"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", where_, "a run, or a directory of runs; default: the runs of here (tdbg ls)");
    flags.AddOption("--port", port_, "of 127.0.0.1; default: any that is free").Between(0, 65535);
    flags.AddFlag("--no-browser", no_browser_, "print the address and open nothing");
    flags.AddFlag("--json", json_, "the address as one JSON document on stdout");
    flags.Footer(
        "\nServes until ctrl-C. Nobody without the printed address gets an answer; from another machine:\n"
        "ssh -L PORT:127.0.0.1:PORT HOST, then the same address there.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(ViewedRuns runs, RunsToView(where_));
    server::Options options;
    options.port = static_cast<uint16_t>(port_);
    options.runs = std::move(runs.lister);
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<server::Server> server,
                          server::Server::Listen(std::move(options)));
    if (json_)
      PrintJson({{"address", server->address()}, {"pid", ::getpid()}});
    else
      Print("{}\n", server->address());
    TDBG_RETURN_IF_ERROR(FlushOut());
    if (!no_browser_ && !json_ && ::isatty(STDOUT_FILENO)) OpenBrowser(server->address());
    if (!json_) Tell("tdbg: serving until ctrl-C\n");
    server->Serve();
    return kExitOk;
  }

 private:
  std::string where_;
  int port_ = 0;
  bool no_browser_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeViewCommand() { return std::make_unique<ViewCommand>(); }

}  // namespace tdbg::cli
