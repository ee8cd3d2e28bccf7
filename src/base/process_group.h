// Is anybody of a process group still running?
#pragma once

#include <sys/types.h>

namespace tdbg::base {

/// Zombies do not count: in a container whose first process reaps nobody, orphans stay zombies for ever, and
/// kill(-group, 0) alone would call such a group alive until the container ends.
bool GroupHasLivingMember(pid_t group);

}  // namespace tdbg::base
