// tdbg resume: starts a job that has ended again, as the next attempt of its run; or takes over one whose
// command still runs without a launcher.
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/process.h"
#include "base/redact.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/job_path.h"
#include "cli/run_path.h"
#include "cli/spool.h"
#include "format/run_files.h"
#include "format/version.h"
#include "jobs/job_life.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"
#include "trial/remote_run.h"

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

// The flags without the one that says where the run is, because that is known.
std::vector<std::string> Without(std::string_view flag, const std::vector<std::string>& flags) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == flag) {
      ++i;
    } else if (!flags[i].starts_with(std::string(flag) + "=")) {
      kept.push_back(flags[i]);
    }
  }
  return kept;
}

// What a bucket says is shown and never executed: who may write to it is not who may start programs here.
Status WhatToType(const std::string& url) {
  TDBG_ASSIGN_OR_RETURN(const std::shared_ptr<RemoteRun> run, RemoteRun::Open(url));
  std::string line = "tdbg resume " + ShellWord(url) + " --";
  const std::string path = base::JoinPath(run->directory(), std::string(format::kRunFile));
  const auto text = base::LocalFileSystem().ReadFile(path, 1u << 24);
  const auto info = text.ok() ? format::RunInfo::FromJson(*text) : text.status();
  if (!info.ok() || info->command.empty())
    return FailedPrecondition(fmt::format(
        "no job of this machine has the run in {}, and its command is not recorded; type: {} COMMAND", url,
        line));
  for (const std::string& word : info->command) line += " " + ShellWord(word);
  return FailedPrecondition(
      fmt::format("no job of this machine has the run in {}, and no command that a bucket names is executed; "
                  "if this is the "
                  "one, type: {}",
                  url, line));
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
    flags.AddOption("JOB", job_, "a job: its name, its run, its URL in a bucket, or last").Required();
    flags.AddOption("--dir", directory_, "of a run that lives in a bucket: the directory that it goes on in")
        .TypeName("DIR");
    flags.AddFlag("--detach", detach_, "in the background");
    flags.Footer(
        "\nWith the flags, the command and in the directory that it was started with; the environment is "
        "yours "
        "of now.\nAnother command goes behind --. One that still trains, since only its launcher was killed, "
        "trains on "
        "and is watched again.\nA run that lives in a bucket and is not on this machine is brought back "
        "first.");
  }

  Result<int> Run() override {
    const auto place = PlaceOfRun(job_);
    auto registry = jobs::Registry::OpenExisting();
    const auto job = registry.ok() ? ResolveJob(*registry, job_) : registry.status();
    if (job.ok()) return ResumeJob(*job);
    // Of a run that lives in a bucket this machine may know nothing else.
    const bool unknown = place.ok() && place->directory.empty();
    if (!unknown || job.status().code() != Code::kNotFound) return job.status();
    if (command_.empty()) return WhatToType(place->url);
    std::vector<std::string> words = PlaceWords({}, place->url);
    words.emplace_back("--resumes");
    return Exec(std::move(words), command_);
  }

 private:
  Result<int> ResumeJob(const jobs::JobRecord& job) {
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
        if (!job.url.empty()) break;  // the bucket knows whether it still runs there
        return FailedPrecondition(fmt::format(
            "'{}' was last seen on {}; resume it there, or see that it has ended", job.name, job.host));
      default:
        break;
    }
    const bool here = jobs::RunId(job.run_directory) == job.run_id;
    // tdbg run would make a new run there, and begin at step 0.
    if (!here && job.url.empty()) {
      return NotFound(
          fmt::format("'{}' has no run any more at {}; if it was moved, name the run: tdbg resume PATH",
                      job.name, job.run_directory));
    }
    if (!directory_.empty() && job.url.empty())
      return InvalidArgument(fmt::format("--dir: '{}' is in no bucket; it goes on in {}", job.name,
                                         DisplayPath(job.run_directory)));
    if (here && !directory_.empty() && jobs::AbsolutePath(directory_) != job.run_directory)
      return InvalidArgument(
          fmt::format("--dir: the run of '{}' is on this machine, in {}, and goes on there", job.name,
                      job.run_directory));
    const std::vector<std::string> command = command_.empty() ? job.command : command_;
    TDBG_RETURN_IF_ERROR(SecretsAreThere(job, command));
    if (!directory_.empty()) directory_ = jobs::AbsolutePath(directory_);
    if (::chdir(job.working_directory.c_str()) != 0)
      return ErrnoStatus(errno, "cannot go to where it was started, " + job.working_directory);
    const auto spool = job.url.empty() ? Result<std::string>(std::string()) : SpoolOf(job.url);
    const bool in_spool = spool.ok() && *spool == job.run_directory;
    std::vector<std::string> words = Without("--dir", job.flags);
    if (in_spool || !directory_.empty()) {
      words = PlaceWords(Without("--upload", words), job.url);
    } else {
      words.insert(words.end(), {"--dir", job.run_directory});
    }
    if (!here) words.emplace_back("--resumes");
    if (adopts) words.emplace_back("--adopt");
    return Exec(std::move(words), command);
  }

  // In which directory a run of a bucket goes on.
  std::vector<std::string> PlaceWords(std::vector<std::string> words, const std::string& url) const {
    if (directory_.empty())
      words.insert(words.end(), {"--dir", url});
    else
      words.insert(words.end(), {"--dir", jobs::AbsolutePath(directory_), "--upload", url});
    return words;
  }

  /// \param flags  of tdbg run
  Status Exec(std::vector<std::string> flags, const std::vector<std::string>& command) const {
    if (detach_ && std::ranges::find(flags, "--detach") == flags.end()) flags.emplace_back("--detach");
    std::vector<std::string> words = {base::SelfExecutable(), "run"};
    std::ranges::move(flags, std::back_inserter(words));
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    return ErrnoStatus(errno, "cannot start tdbg run");
  }

  std::string job_, directory_;
  bool detach_ = false;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> MakeResumeCommand() { return std::make_unique<ResumeCommand>(); }

}  // namespace tdbg::cli
