// What the live line shows of a run that is followed.
#pragma once

#include <vector>

#include "rules/engine.h"
#include "trial/access.h"
#include "watch/watcher.h"

namespace tdbg::watch {

/// As of the trial's last Refresh. \param losses  the collection of that name; brought up to date
Progress ProgressOf(const Trial& trial, Selection* losses, const std::vector<rules::RuleStatus>& statuses);

}  // namespace tdbg::watch
