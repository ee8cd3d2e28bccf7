#include "cli/store_program.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/companion.h"
#include "base/posix.h"
#include "base/process.h"

namespace tdbg::cli {

Result<std::string> AskStore(const std::vector<std::string>& words, bool quiet) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  const base::UniqueFd ours(ends[0]);
  base::UniqueFd theirs(ends[1]);
  const base::UniqueFd nothing = base::OpenFd("/dev/null", O_RDWR);
  base::SpawnOptions spawn;
  spawn.argv = {base::FindCompanion("tdbg-store")};
  spawn.argv.insert(spawn.argv.end(), words.begin(), words.end());
  spawn.input_fd = nothing.get();
  spawn.output_fd = theirs.get();
  spawn.error_fd = quiet ? nothing.get() : STDERR_FILENO;
  spawn.own_group = false;
  spawn.die_with_thread = true;
  auto child = base::Child::Spawn(spawn);
  if (!child.ok()) return child.status().Annotate("tdbg-store, which lies beside tdbg, cannot be started");
  theirs.reset();
  std::string text = base::ReadToEnd(ours.get());
  (void)child->Wait(-1);
  return text;
}

}  // namespace tdbg::cli
