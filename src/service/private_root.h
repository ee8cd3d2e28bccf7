// /opt/ml of one job: a mount that nobody else sees.
#pragma once

#include <string>

#include "tdbg/status.h"

namespace tdbg::service {

/// From here on, and for what this process starts, `directory` is /opt/ml. Nothing changes for anybody else:
/// the process gets a mount namespace of its own (and a user namespace, where it is not root). \pre one
/// thread
/// \error kUnavailable  this machine does not allow it (a container without the right to mount, a kernel
/// setting)
Status MakeRootPrivate(const std::string& directory);

/// Whether that would work here, tried in a child. \pre `directory` exists
bool CanMakeRootPrivate(const std::string& directory);

}  // namespace tdbg::service
