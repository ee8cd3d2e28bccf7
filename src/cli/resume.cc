// tdbg resume: starts a job that has ended again, as the next attempt of its run; or takes over one whose
// command still runs without a launcher.
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/process.h"
#include "base/redact.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/job_path.h"
#include "cli/run_path.h"
#include "jobs/job_life.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

bool AnyRedacted(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.find(base::kRedacted) != std::string::npos) return true;
  }
  return false;
}

// Secrets are kept nowhere, so a job that was given one in its command line is started by its user again.
Status SecretsAreThere(const jobs::JobRecord& job, const std::vector<std::string>& command) {
  const std::string again =
      fmt::format("start it again with tdbg run --dir {} ... -- COMMAND", ShellWord(job.run_directory));
  if (AnyRedacted(command)) return FailedPrecondition("a secret in its command line was not kept; " + again);
  if (AnyRedacted(job.flags)) {
    return FailedPrecondition(
        "a secret in the flags of tdbg run was not kept; " + again +
        ", and give the secret in a variable ('webhook:$NAME', 'exec:... $NAME') or in a file (--config) to "
        "resume it next time");
  }
  return OkStatus();
}

// The flags without --dir, because the run's directory is known.
std::vector<std::string> WithoutDirectory(const std::vector<std::string>& flags) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == "--dir") {
      ++i;
    } else if (!flags[i].starts_with("--dir=")) {
      kept.push_back(flags[i]);
    }
  }
  return kept;
}

class ResumeCommand : public Command {
 public:
  std::string name() const override { return "resume"; }
  std::string help() const override {
    return "start a job that has ended again; look after one whose launcher was killed";
  }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }
  void Define(Flags& flags) override {
    flags.AddOption("JOB", job_, "a job: its name, its run, or last").Required();
    flags.AddFlag("--detach", detach_, "in the background");
    flags.Footer(
        "\nWith the flags, the command and in the directory that it was started with; the environment is "
        "yours "
        "of now.\nAnother command goes behind --. One that still trains, since only its launcher was killed, "
        "trains on "
        "and is watched again.");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(jobs::Registry registry, jobs::Registry::OpenExisting());
    TDBG_ASSIGN_OR_RETURN(const jobs::JobRecord job, ResolveJob(registry, job_));
    bool adopts = false;
    switch (jobs::LifeOf(job)) {
      case jobs::JobLife::kWatched:
        return FailedPrecondition(fmt::format("'{}' is running; tdbg logs {} -f shows what it prints",
                                              job.name, ShellWord(job.name)));
      case jobs::JobLife::kUnwatched:
        if (!command_.empty()) {
          return FailedPrecondition(
              fmt::format("'{}' still trains: tdbg resume {}, without a command, looks after it", job.name,
                          ShellWord(job.name)));
        }
        adopts = true;
        break;
      case jobs::JobLife::kElsewhere:
        return FailedPrecondition(fmt::format(
            "'{}' was last seen on {}; resume it there, or see that it has ended", job.name, job.host));
      default:
        break;
    }
    // tdbg run would make a new run there, and begin at step 0.
    if (jobs::RunId(job.run_directory) != job.run_id) {
      return NotFound(
          fmt::format("'{}' has no run any more at {}; if it was moved, name the run: tdbg resume PATH",
                      job.name, job.run_directory));
    }
    const std::vector<std::string> command = command_.empty() ? job.command : command_;
    TDBG_RETURN_IF_ERROR(SecretsAreThere(job, command));
    if (::chdir(job.working_directory.c_str()) != 0)
      return ErrnoStatus(errno, "cannot go to where it was started, " + job.working_directory);
    std::vector<std::string> words = {base::SelfExecutable(), "run"};
    for (const std::string& flag : WithoutDirectory(job.flags)) {
      if (flag != "--detach" || !detach_) words.push_back(flag);
    }
    if (detach_) words.emplace_back("--detach");
    if (adopts) words.emplace_back("--adopt");
    words.insert(words.end(), {"--dir", job.run_directory, "--"});
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    return ErrnoStatus(errno, "cannot start tdbg run");
  }

 private:
  std::string job_;
  bool detach_ = false;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> MakeResumeCommand() { return std::make_unique<ResumeCommand>(); }

}  // namespace tdbg::cli
