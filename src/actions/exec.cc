#include "actions/actions.h"
#include "actions/command.h"
#include "base/redact.h"

namespace tdbg::actions {
namespace {

const std::string kKind = "exec:";

class Exec : public Action {
 public:
  Exec(std::string command, ExecOptions options) : command_(std::move(command)), options_(options) {}
  std::string name() const override { return "exec"; }
  std::string target() const override { return base::RedactText(kKind + command_).substr(kKind.size()); }
  std::string output() const override { return output_; }

  Status Perform(const Notice& notice) override {
    output_.clear();
    base::SpawnOptions spawn;
    spawn.argv = {"/bin/sh", "-c", command_};
    spawn.set_env = {{"TDBG_RUN", notice.run},
                     {"TDBG_RULE", notice.rule},
                     {"TDBG_STEP", std::to_string(notice.global_step)},
                     {"TDBG_STEP_NAME", notice.step_name},
                     {"TDBG_STATUS", notice.status},
                     {"TDBG_INCIDENT", notice.incident.empty() ? notice.details : notice.incident},
                     {"TDBG_ADVICE", notice.advice}};
    spawn.pipe_stdin = true;
    spawn.stdin_text = notice.json + "\n";
    TDBG_ASSIGN_OR_RETURN(const CommandResult result, RunCommand(spawn, options_.limit_millis));
    output_ = base::RedactOutput(result.output, kKind + command_);
    if (result.timed_out) {
      return {Code::kDeadlineExceeded, "the command was ended after " +
                                           std::to_string(options_.limit_millis / 1000.0).substr(0, 5) +
                                           " s"};
    }
    if (result.exit.signaled)
      return Unavailable("the command was ended by signal " + std::to_string(result.exit.code));
    if (result.exit.code != 0)
      return Unavailable("the command's exit code was " + std::to_string(result.exit.code));
    return OkStatus();
  }

 private:
  std::string command_;
  ExecOptions options_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Action> MakeExec(std::string command, ExecOptions options) {
  return std::make_unique<Exec>(std::move(command), options);
}

}  // namespace tdbg::actions
