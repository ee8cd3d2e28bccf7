#include "base/terminal.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

namespace tdbg::base {

bool OwnsTerminal() { return ::isatty(STDIN_FILENO) && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

void GiveTerminalTo(pid_t group) {
  const int saved_errno = errno;
  // A background group that calls tcsetpgrp is stopped by SIGTTOU, unless it blocks it. Blocking concerns
  // this thread alone; ignoring would be seen by the whole process.
  sigset_t ttou, previous;
  sigemptyset(&ttou);
  sigaddset(&ttou, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &ttou, &previous);
  (void)::tcsetpgrp(STDIN_FILENO, group);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  errno = saved_errno;
}

}  // namespace tdbg::base
