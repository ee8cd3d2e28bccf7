// How a job ended, in the words of its events, its rules, its registry and its user.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "jobs/job.h"
#include "jobs/job_state.h"
#include "rules/engine.h"

namespace tdbg::cli {

/// As in events.jsonl's job_ended.
std::string_view StopName(jobs::JobStop stop);
/// For rules in progress.
rules::JobEnd EndOf(const jobs::JobResult& result);
/// "exit code 1", "ended by signal SIGKILL"
std::string ExitText(const jobs::JobResult& result);
/// What the registry says of it.
std::pair<jobs::JobPhase, std::string> EndPhase(const jobs::JobResult& result);

}  // namespace tdbg::cli
