// The directory for data of a user that belong to no run.
#pragma once

#include <string>

namespace tdbg::jobs {

/// $XDG_STATE_HOME/tdbg, by default ~/.local/state/tdbg, the home that of $HOME, else of the password file. A
/// variable that holds no absolute path counts as not set. Empty: the user has no home. It may not exist yet.
std::string StateDirectory();

}  // namespace tdbg::jobs
