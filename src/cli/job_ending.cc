#include "cli/job_ending.h"

#include <fmt/format.h>
#include <string.h>

namespace tdbg::cli {

std::string_view StopName(jobs::JobStop stop) {
  switch (stop) {
    case jobs::JobStop::kNone:
      return "none";
    case jobs::JobStop::kRequested:
    case jobs::JobStop::kMaxRuntime:
      return "requested";
    case jobs::JobStop::kSignal:
    case jobs::JobStop::kInterrupted:
      return "signal";
  }
  return "none";
}

rules::JobEnd EndOf(const jobs::JobResult& result) {
  if (result.stop != jobs::JobStop::kNone) return rules::JobEnd::kStopped;
  return result.exit.shell_code() == 0 ? rules::JobEnd::kCompleted : rules::JobEnd::kFailed;
}

std::string ExitText(const jobs::JobResult& result) {
  if (!result.exit_is_known && result.exit.code != 0)
    return "it has failed, or was killed; its first launcher would have known which";
  if (!result.exit.signaled) return fmt::format("exit code {}", result.exit.code);
  const char* const name = ::sigabbrev_np(result.exit.code);
  return fmt::format("ended by signal {}",
                     name ? std::string("SIG") + name : std::to_string(result.exit.code));
}

std::pair<jobs::JobPhase, std::string> EndPhase(const jobs::JobResult& result) {
  if (!result.not_restarted.empty()) return {jobs::JobPhase::kFailed, result.not_restarted};
  switch (result.stop) {
    case jobs::JobStop::kMaxRuntime:
      return {jobs::JobPhase::kMaxRuntimeExceeded, "stopped after --max-runtime"};
    case jobs::JobStop::kRequested:
      return {jobs::JobPhase::kStopped, "stopped by " + result.stopped_by};
    case jobs::JobStop::kInterrupted:
      return {jobs::JobPhase::kStopped, "interrupted by " + result.stopped_by};
    case jobs::JobStop::kSignal:
      return {jobs::JobPhase::kStopped, fmt::format("tdbg got signal {}", result.signal_number)};
    case jobs::JobStop::kNone:
      break;
  }
  if (result.exit.shell_code() == 0 && result.output_error.empty())
    return {jobs::JobPhase::kCompleted, "completed"};
  std::string why = ExitText(result);
  if (!result.output_error.empty()) why += "; what it printed is cut short, " + result.output_error;
  return {jobs::JobPhase::kFailed, why};
}

}  // namespace tdbg::cli
