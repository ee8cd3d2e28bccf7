// tdbg interrupt: ends a job's command as a reclaimed machine would, and has it started again.

#include <fmt/format.h>

#include <filesystem>

#include "actions/control_request.h"
#include "cli/checkpoints.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "format/json_fields.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

class InterruptCommand : public Command {
 public:
  std::string name() const override { return "interrupt"; }
  std::string help() const override { return "rehearse a reclaim: end a job's command and start it again"; }
  void Define(Flags& flags) override {
    flags.AddOption("JOB", job_, "a running job: its name, its run, or last").Required();
    flags.AddOption("--notice", notice_seconds_, "seconds from SIGTERM to SIGKILL; default: the job's grace")
        .Check(IntegerFrom(0));
    flags.AddFlag("--wipe", wipe_,
                  "what is in its --checkpoint-dir is lost, too, and comes back from the bucket (--upload)");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer(
        "\nThe command gets SIGTERM and, after the notice, SIGKILL. Then it is started again, as the next "
        "attempt.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string run, ResolveRunOfJob(job_));
    if (!jobs::LauncherAlive(run))
      return FailedPrecondition(
          "no launcher looks after it, so nobody would start it again; `tdbg jobs` says more");
    if (wipe_) TDBG_RETURN_IF_ERROR(CheckMayWipe(run));
    TDBG_RETURN_IF_ERROR(actions::RequestInterrupt(run, "user", notice_seconds_, wipe_));
    if (json_)
      PrintJson({{"run", run}, {"requested", "interrupt"}});
    else
      Tell("tdbg: asked for an interruption; tdbg jobs {} says what became of it\n", ShellWord(job_));
    return kExitOk;
  }

 private:
  // The launcher looks again, and deletes nothing that is not in the bucket; here it is an error that is seen
  // at once.
  static Status CheckMayWipe(const std::string& run) {
    const auto registry = jobs::Registry::OpenExisting();
    const auto job = registry.ok() ? registry->FindRun(jobs::RunId(run)) : registry.status();
    std::string directory, upload;
    if (const auto settings = job.ok() ? format::ParseJsonObject(job->settings, "settings") : job.status();
        settings.ok()) {
      format::GetField(*settings, "checkpoint_directory", &directory);
      format::GetField(*settings, "upload", &upload);
    }
    if (directory.empty() || upload.empty())
      return FailedPrecondition(fmt::format("--wipe: nothing would bring its checkpoints back; it needs {}",
                                            !directory.empty() ? "--upload s3://BUCKET/PREFIX"
                                            : upload.empty()   ? "--checkpoint-dir and --upload"
                                                               : "--checkpoint-dir"));
    return cli::CheckMayWipe(std::filesystem::path(job->working_directory) / directory, run);
  }

  std::string job_;
  int64_t notice_seconds_ = -1;
  bool wipe_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInterruptCommand() { return std::make_unique<InterruptCommand>(); }

}  // namespace tdbg::cli
