// What `tdbg view` shows, and where.
#pragma once

#include <string>

#include "server/runs.h"
#include "tdbg/status.h"

namespace tdbg::cli {

struct ViewedRuns {
  server::RunLister lister;
};
/// \param where  a run (ResolveRun), a directory with runs, or empty: the runs of the working directory
/// \error kNotFound  neither
Result<ViewedRuns> RunsToView(const std::string& where);

/// Opens the user's browser, if there is a screen and a browser; otherwise does nothing.
void OpenBrowser(const std::string& address);

}  // namespace tdbg::cli
