#include "cli/job_flags.h"

#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>

#include "base/durations.h"
#include "base/text.h"
#include "cli/arguments.h"

namespace tdbg::cli {

bool RestartPolicy::Restarts(const jobs::JobResult& result) const {
  const int code = result.exit.shell_code();
  if (result.stop != jobs::JobStop::kNone || code == 0) return false;
  if (any_failure || codes.contains(code)) return true;
  if (signal && code > 128 && code < 128 + NSIG) return true;
  return preempted && (code == 128 + SIGTERM || code == 128 + SIGKILL);
}

void JobFlags::Define(CLI::App& app) {
  app.add_flag("--detach", detach, "in the background: survives this terminal; `tdbg logs` shows its output");
  app.add_option("--max-restarts", max_restarts,
                 "start the command again when it fails, as the next attempt, at most so often")
      ->type_name("N")
      ->check(IntegerFrom(0));
  app.add_option("--restart-on", restart_on,
                 "which ends count: an exit code, signal, preempted (SIGTERM or SIGKILL from elsewhere); "
                 "repeatable, default any failure")
      ->type_name("CODE|signal|preempted")
      ->allow_extra_args(false);
  app.add_option("--checkpoint-dir", checkpoint_directory,
                 "where the script keeps its checkpoints: $TDBG_CHECKPOINT_DIR, the same for every attempt")
      ->type_name("DIR");
  app.add_option("--max-runtime", max_runtime,
                 "stop the job after so long, restarts included: 90, 90s, 30m, 12h")
      ->type_name("TIME");
  app.add_option(
         "--secret", secrets,
         "a variable whose value is kept out of the log, on top of those named like secrets; repeatable")
      ->type_name("VARIABLE")
      ->allow_extra_args(false);
  app.add_flag("--no-log", no_log, "the command has our own stdout and stderr, and no log is kept");
}

Result<RestartPolicy> JobFlags::Restarts() const {
  RestartPolicy policy;
  policy.most = max_restarts;
  policy.any_failure = restart_on.empty();
  for (const std::string& end : restart_on) {
    const auto code = base::ParseInt(end);
    if (end == "signal") {
      policy.signal = true;
    } else if (end == "preempted") {
      policy.preempted = true;
    } else if (code && *code >= 1 && *code <= 255) {
      policy.codes.insert(static_cast<int>(*code));
    } else {
      return InvalidArgument(fmt::format(
          "--restart-on: found '{}'; accepted: an exit code from 1 to 255, signal, preempted", end));
    }
  }
  if (!restart_on.empty() && max_restarts == 0)
    return InvalidArgument("--restart-on without --max-restarts N restarts nothing; say how often");
  return policy;
}

Result<int64_t> JobFlags::MaxRuntimeMillis() const {
  if (max_runtime.empty()) return -1;
  std::string_view number = max_runtime;
  int64_t unit = 1;
  switch (number.back()) {
    case 'h':
      unit = 3600;
      number.remove_suffix(1);
      break;
    case 'm':
      unit = 60;
      number.remove_suffix(1);
      break;
    case 's':
      number.remove_suffix(1);
      break;
    default:
      break;
  }
  const auto count = base::ParseInt(number);
  if (!count || *count <= 0 || *count > base::kLongestSeconds)
    return InvalidArgument(
        fmt::format("--max-runtime: found '{}'; accepted: seconds, or 90s, 30m, 12h", max_runtime));
  return base::MillisOfSeconds(std::min(*count, base::kLongestSeconds / unit) * unit);
}

}  // namespace tdbg::cli
