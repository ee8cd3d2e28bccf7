#include "cli/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/exit_codes.h"
#include "cli/output.h"

namespace tdbg::cli {

std::optional<int> Detached::Split() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return kExitInternal;
  base::UniqueFd read_end(ends[0]);
  word_.reset(ends[1]);
  (void)::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    Tell("tdbg: cannot go into the background: {}\n", ErrnoStatus(errno, "fork").message());
    return kExitRefused;
  }
  if (pid == 0) {
    (void)::setsid();
    // The terminal is only used for messages before the training begins.
    const base::UniqueFd none(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (none.ok()) (void)::dup2(none.get(), STDIN_FILENO);
    return std::nullopt;
  }
  word_.reset();
  char word;
  ssize_t got;
  do {
    got = ::read(read_end.get(), &word, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 1) return kExitOk;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Detached::LetGo(const std::string& log) {
  if (!word_.ok()) return;
  (void)::fflush(nullptr);
  base::UniqueFd to = base::OpenPlainFile(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!to.ok()) to.reset(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (to.ok()) (void)::dup2(to.get(), fd);
  }
  (void)!::write(word_.get(), "k", 1);
  word_.reset();
}

}  // namespace tdbg::cli
