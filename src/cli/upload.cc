// tdbg upload: a run of this machine, into a bucket. What `tdbg run --upload` does at its end, by hand.
#include <fmt/format.h>

#include "base/companion.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/run_path.h"
#include "cli/upload_process.h"

namespace tdbg::cli {
namespace {

class UploadCommand : public Command {
 public:
  std::string name() const override { return "upload"; }
  std::string help() const override { return "put a run into a bucket, or what of it is not there yet"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("URL", url_, "s3://BUCKET/PREFIX, or file:///DIRECTORY").Required();
    flags.AddFlag("--json", json_, "what was sent as one JSON document on stdout");
    flags.Footer(
        "\nMay be given again: only what is missing is sent. A run that still trains is sent as far as it "
        "got, and\nreaders see one that goes on; give the command again once it has ended. tdbg run --upload "
        "follows it.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string run, ResolveRun(run_));
    base::SpawnOptions spawn;
    spawn.argv = {base::FindCompanion("tdbg-store"), "upload", run, url_};
    if (json_) spawn.argv.emplace_back("--json");
    spawn.own_group = false;  // ctrl-C is for both
    auto child = base::Child::Spawn(spawn);
    if (!child.ok()) return child.status().Annotate("tdbg-store, which lies beside tdbg, cannot be started");
    const auto exit = child->Wait(-1);
    return exit ? exit->shell_code() : kExitOk;
  }

 private:
  std::string run_, url_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeUploadCommand() { return std::make_unique<UploadCommand>(); }

}  // namespace tdbg::cli
