// Handing the controlling terminal to a child's process group and taking it back, as shells do.
#pragma once

#include <sys/types.h>

namespace tdbg::base {

/// Standard input is a terminal, and this process's group is its foreground group. A background job
/// (`tdbg run ... &`) must not take the terminal from whoever types there.
bool OwnsTerminal();
/// Makes `group` the foreground group. Async-signal-safe; no effect without a terminal.
void GiveTerminalTo(pid_t group);

}  // namespace tdbg::base
