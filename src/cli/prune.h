// tdbg prune.
#pragma once

#include <memory>

#include "cli/command.h"

namespace tdbg::cli {

std::unique_ptr<Command> MakePruneCommand();

}  // namespace tdbg::cli
