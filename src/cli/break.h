// Breakpoints of a running job: the commands, and what others say of workers that are held.
#pragma once

#include <memory>
#include <vector>

#include "cli/command.h"
#include "cli/json_output.h"
#include "watch/breakpoints.h"

namespace tdbg::cli {

std::unique_ptr<Command> MakeBreakCommand();
std::unique_ptr<Command> MakeContinueCommand();

Json HeldToJson(const std::vector<watch::Held>& held);

}  // namespace tdbg::cli
