// What the launcher writes about its job into the run, and reads back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/report.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// Appends a line to <run>/events.jsonl.
Status AppendEvent(const std::string& run_directory, const std::string& kind, const Json& fields);
/// The last job_ended, if there is one.
std::optional<JobEnding> LastJobEnding(const std::string& run_directory);
/// Why no worker ever wrote, as far as the run directory tells: one sentence and what to do.
std::string WhyNothingWasCaptured(const std::string& run_directory, const std::vector<int64_t>& attempts);

}  // namespace tdbg::cli
