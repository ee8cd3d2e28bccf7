// tdbg replay: starts a training command and puts it into the state of a step that a run has kept whole.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/companion.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/black_boxes.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "format/run_files.h"
#include "jobs/home.h"

namespace tdbg::cli {
namespace {

// The run's own command, for the user to type. It is never started directly: a run's files may name anything.
std::string CommandOf(const std::string& run) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run, "run.json"));
  if (!text.ok()) return "python train.py";
  const auto info = format::RunInfo::FromJson(*text);
  if (!info.ok() || info->command.empty()) return "python train.py";
  std::string line;
  for (const std::string& word : info->command) line += (line.empty() ? "" : " ") + ShellWord(word);
  return line;
}

class ReplayCommand : public Command {
 public:
  std::string name() const override { return "replay"; }
  std::string help() const override { return "bring a training back to the step in which it went wrong"; }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("--step", step_, "which step, where several were kept; default: the first");
    flags.AddOption("--worker", worker_, "whose, where several workers kept it; default: the first")
        .TypeName("NAME");
    flags.AddFlag("--anomaly", anomaly_, "with torch's anomaly detection: where the operation was called");
    flags.AddFlag("--debugger", debugger_, "stop in Python's debugger (pdb) before the forward of that step");
    flags.AddFlag("--json", json_, "one JSON document on stdout; the command's own output goes to stderr");
    flags.Footer(
        "\nThe command behind -- is started as ever. Its first training forward gets the weights, the batch "
        "and the\nrandom numbers of that step; where its optimizer would step, loss and gradients are "
        "compared with those\nthat were kept, and it ends. Exit code 0: the same to the bit; 1: they differ. "
        "Without a command the\nsteps that were kept are listed.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string run, ResolveRun(run_));
    const std::vector<BlackBox> boxes = BlackBoxesOf(run);
    if (boxes.empty()) {
      return NotFound(
          fmt::format("{} has no black box: no loss or gradient became NaN or infinite while one "
                      "could be kept (docs/black-box.md)",
                      ShellWord(run_)));
    }
    if (command_.empty()) return List(run, boxes);
    const auto box = std::ranges::find_if(boxes, [&](const BlackBox& b) {
      return (!step_ || b.step == *step_) && (worker_.empty() || b.worker == worker_);
    });
    if (box == boxes.end())
      return NotFound(
          fmt::format("no such step was kept; tdbg replay {} lists those that were", ShellWord(run_)));
    return Start(run, *box);
  }

 private:
  Result<int> List(const std::string& run, const std::vector<BlackBox>& boxes) const {
    nlohmann::json list = BlackBoxesToJson(boxes);
    for (size_t i = 0; i < boxes.size(); ++i) {
      const BlackBox& box = boxes[i];
      TDBG_ASSIGN_OR_RETURN(const std::string because, ReasonOf(box));
      list[i]["because"] = because;
      if (!json_) Print("step {}, {}: {}\n", box.step, Printable(box.worker), Printable(because));
    }
    if (json_)
      PrintJson({{"run", run}, {"black_boxes", list}});
    else
      Tell("tdbg: go back into it: tdbg replay {} --step {} -- {}\n", ShellWord(run_), boxes.front().step,
           CommandOf(run));
    return kExitOk;
  }

  // Replaces this process by the command. \error exec's
  Result<int> Start(const std::string& run, const BlackBox& box) {
    const std::string home = base::FindPythonHome();
    if (home.empty()) {
      return FailedPrecondition(
          "cannot find tdbg's Python part; set TDBG_HOME to the directory that holds the package, or install "
          "the wheel");
    }
    int answer = -1;
    if (json_) {
      TDBG_RETURN_IF_ERROR(FlushOut());
      answer = ::fcntl(STDOUT_FILENO, F_DUPFD, 64);
      if (answer < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return ErrnoStatus(errno, "cannot set the answer apart from the command's output");
    }
    const nlohmann::json options = {
        {"directory", box.directory}, {"anomaly", anomaly_}, {"debugger", debugger_}, {"answer", answer}};
    for (const auto& [key, value] : jobs::TrainingEnvironment(run, box.attempt, home))
      ::setenv(key.c_str(), value.c_str(), 1);
    ::setenv("TDBG_REPLAY", options.dump().c_str(), 1);
    std::vector<char*> argv;
    for (std::string& word : command_) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    const int error = errno;
    WriteErr(fmt::format("tdbg: {}\n", ErrnoStatus(error, "cannot start " + command_[0]).message()));
    return error == ENOENT ? kExitNoCommand : kExitNotExecutable;
  }

  std::string run_, worker_;
  std::optional<int64_t> step_;
  bool anomaly_ = false, debugger_ = false, json_ = false;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> MakeReplayCommand() { return std::make_unique<ReplayCommand>(); }

}  // namespace tdbg::cli
