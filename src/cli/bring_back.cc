#include "cli/bring_back.h"

#include <fmt/format.h>
#include <signal.h>

#include <string>

#include "base/companion.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/spool.h"
#include "cli/store_program.h"
#include "cli/terminal.h"
#include "jobs/interrupts.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

// Signals that a job would be told of end this process here, where there is no job yet.
class NotForwarded {
 public:
  NotForwarded() {
    const sigset_t signals = jobs::ForwardedSignals();
    ::pthread_sigmask(SIG_UNBLOCK, &signals, &before_);
  }
  ~NotForwarded() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NotForwarded(const NotForwarded&) = delete;

 private:
  sigset_t before_;
};

// What tdbg-store answers: "brought", "here", "behind" or "none".
Result<std::string> Ask(const Destination& destination, bool quiet) {
  const NotForwarded ended_by_signals;
  TDBG_ASSIGN_OR_RETURN(const std::string said,
                        AskStore({"bring-back", destination.url, destination.directory}, quiet));
  const auto answer = base::ParseAnswer(base::Trim(said));
  if (!answer)
    return Unavailable("tdbg-store ended before the run was back; the next try goes on: " + destination.url);
  return *answer;
}

Status Behind(const Destination& destination) {
  return Status(
      Code::kAlreadyExists,
      fmt::format("the run in {} went on elsewhere, and {} has an earlier state of it; tdbg resume {} "
                  "--dir DIR goes on in a directory that is new",
                  destination.url, DisplayPath(destination.directory), ShellWord(destination.url)));
}

}  // namespace

Status BringRunBack(const Destination& destination, bool must, bool quiet) {
  const bool had_run = jobs::IsRunDirectory(destination.directory);
  TDBG_ASSIGN_OR_RETURN(std::string answer, Ask(destination, quiet));
  if (answer == "behind") {
    if (!destination.spool || jobs::LauncherAlive(destination.directory)) return Behind(destination);
    TDBG_ASSIGN_OR_RETURN(const std::string aside, SetSpoolAside(destination.directory));
    Note(fmt::format("the run in {} went on elsewhere; what was here of it is in {}, and is not needed",
                     destination.url, aside));
    TDBG_ASSIGN_OR_RETURN(answer, Ask(destination, quiet));
  }
  if (answer == "none" && must && !had_run)
    return NotFound(fmt::format("no run in {}; tdbg run --dir {} begins one", destination.url,
                                ShellWord(destination.url)));
  if (answer == "brought" && !quiet)
    Note(fmt::format("the run in {} is back, and goes on here", Printable(destination.url)));
  return OkStatus();
}

Status MakeReadyForUpload(const Destination& destination, bool must, bool quiet) {
  if (destination.spool || must) TDBG_RETURN_IF_ERROR(BringRunBack(destination, must, quiet));
  const std::string run = jobs::RunId(destination.directory);
  TDBG_RETURN_IF_ERROR(CheckUpload(destination.url, run));
  // A directory of the user's may be behind, too; nothing is brought back to it unasked.
  return destination.spool || must || run.empty() ? OkStatus() : BringRunBack(destination, false, quiet);
}

}  // namespace tdbg::cli
