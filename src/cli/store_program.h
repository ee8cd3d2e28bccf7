// tdbg-store, asked once.
#pragma once

#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Runs `tdbg-store` with these words, and waits for its end. It reads nothing, is ended with the calling
/// thread, and ctrl-C is for both. \return all that it prints on standard output
/// \param quiet  its standard error goes nowhere; else to ours
/// \error it cannot be started
Result<std::string> AskStore(const std::vector<std::string>& words, bool quiet);

}  // namespace tdbg::cli
