#include "cli/job_flags.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "actions/actions.h"
#include "actions/control_request.h"
#include "base/durations.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/flags.h"
#include "jobs/run_directory.h"
#include "jobs/training_output.h"
#include "watch/breakpoints.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kNodeTimeoutMillis = 10'000;
constexpr uint64_t kLeastLogBytes = 1 << 20;

// "90", "90s", "30m", "12h".
std::optional<int64_t> MillisOf(std::string_view number) {
  if (number.empty()) return std::nullopt;
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
  if (!count || *count <= 0 || *count > base::kLongestSeconds) return std::nullopt;
  return base::MillisOfSeconds(std::min(*count, base::kLongestSeconds / unit) * unit);
}

}  // namespace

std::string IsHttpUrl(const std::string& text) {
  return !text.starts_with('$') && actions::MakeWebhook(text).ok()
             ? ""
             : fmt::format("found '{}', expected an http:// or https:// URL", text);
}

bool RestartPolicy::Restarts(const jobs::JobResult& result) const {
  const int code = result.exit.shell_code();
  if (result.stop != jobs::JobStop::kNone || code == 0) return false;
  if (any_failure || codes.contains(code)) return true;
  if (signal && code > 128 && code < 128 + NSIG) return true;
  return preempted && (code == 128 + SIGTERM || code == 128 + SIGKILL);
}

void JobFlags::Define(Flags& flags) {
  flags.AddFlag("--detach", detach,
                "in the background: survives this terminal; `tdbg logs` shows its output");
  flags
      .AddOption("--max-restarts", max_restarts,
                 "start the command again when it fails, as the next attempt, at most so often")
      .TypeName("N")
      .Check(IntegerFrom(0));
  flags
      .AddOption("--restart-on", restart_on,
                 "which ends count: an exit code, signal, preempted (SIGTERM or SIGKILL from elsewhere); "
                 "repeatable, default any failure")
      .TypeName("CODE|signal|preempted")
      .Repeatable();
  flags
      .AddOption("--checkpoint-dir", checkpoint_directory,
                 "where the script keeps its checkpoints: $TDBG_CHECKPOINT_DIR, the same for every attempt")
      .TypeName("DIR");
  flags.AddOption("--upload", upload, "put the run into a bucket while it trains, and all of it at the end")
      .TypeName("s3://BUCKET/PREFIX");
  flags
      .AddOption("--max-runtime", max_runtime,
                 "stop the job after so long, restarts included: 90, 90s, 30m, 12h")
      .TypeName("TIME");
  flags
      .AddOption("--interrupt-every", interrupt_every,
                 "rehearse reclaims: end the command so often (of an attempt's time, or of its steps) and "
                 "start it again")
      .TypeName("TIME|Nsteps");
  flags.AddOption("--interruptions", interruptions, "so many with --interrupt-every; default: until it ends")
      .TypeName("N")
      .Check(IntegerFrom(0));
  flags.AddFlag(
      "--wipe", wipe,
      "with --interrupt-every: the checkpoint directory is lost, too, and comes back from the bucket");
  flags
      .AddOption(
          "--secret", secrets,
          "a variable whose value is kept out of the log, on top of those named like secrets; repeatable")
      .TypeName("VARIABLE")
      .Repeatable();
  flags
      .AddOption(
          "--node", node,
          "one of several machines with this --dir, each with its own tdbg run: which, of how many, from "
          "0/N on (docs/cluster.md)")
      .TypeName("NODE/NODES");
  flags
      .AddOption("--node-timeout", node_timeout,
                 "a node that has not been heard of for so long is taken for dead; default 10s")
      .TypeName("TIME");
  flags.AddFlag("--adopt", adopt).Hidden();  // `tdbg resume` says these
  flags.AddFlag("--resumes", resumes).Hidden();
  flags
      .AddOption("--on-event", on_event,
                 "handlers that are told of changes of the job's and its rules' statuses (docs/events.md); "
                 "repeatable, beside those of `tdbg handlers`")
      .TypeName("FILE|FILE.py:FUNCTION")
      .Repeatable();
  flags
      .AddOption("--break", breaks,
                 "a condition, and what to do when it is met, as in 'gradient/*.l2 > 100 then blackbox' "
                 "(tdbg break --help); repeatable, default pause")
      .TypeName("CONDITION [then ACTION]")
      .Repeatable();
  flags.AddFlag("--no-handlers", no_handlers, "not those of `tdbg handlers`");
  flags
      .AddOption("--prometheus", prometheus,
                 "keep the run's metrics in this file, for node_exporter's textfile collector")
      .TypeName("FILE");
  flags.AddOption("--otlp", otlp, "send the run's metrics there, by OTLP/HTTP")
      .TypeName("URL")
      .Check(IsHttpUrl);
  flags.AddFlag("--no-log", no_log, "the command has our own stdout and stderr, and no log is kept");
  flags
      .AddOption(
          "--log-limit", log_limit,
          "how large the log of an attempt may become, on a small disk it stays smaller; default 256MiB")
      .TypeName("SIZE");
}

std::vector<std::string> JobFlags::MetricsArguments(const std::string& run_directory) const {
  if (prometheus.empty() && otlp.empty()) return {};
  std::vector<std::string> words = {"metrics", run_directory, "--follow", "--launched"};
  if (!prometheus.empty()) words.insert(words.end(), {"--prometheus", jobs::AbsolutePath(prometheus)});
  if (!otlp.empty()) words.insert(words.end(), {"--otlp", otlp});
  return words;
}

Result<uint64_t> JobFlags::LogLimit() const {
  if (log_limit.empty()) return jobs::kDefaultLogBytes;
  const auto bytes = base::ParseBytes(log_limit);
  if (!bytes || *bytes < kLeastLogBytes)
    return InvalidArgument(fmt::format(
        "--log-limit is '{}', but has to be a size of 1MiB or more, such as 64MiB; --no-log keeps none",
        log_limit));
  return *bytes;
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
  const auto millis = MillisOf(max_runtime);
  if (!millis)
    return InvalidArgument(
        fmt::format("--max-runtime: found '{}'; accepted: seconds, or 90s, 30m, 12h", max_runtime));
  return *millis;
}

Result<std::optional<jobs::NodePlace>> JobFlags::Node() const {
  if (node.empty()) {
    if (node_timeout.empty()) return std::optional<jobs::NodePlace>();
    return InvalidArgument("--node-timeout without --node NODE/NODES times nothing; say which node this is");
  }
  TDBG_ASSIGN_OR_RETURN(const jobs::NodePlace place, jobs::ParseNodePlace(node));
  if (!upload.empty())
    return InvalidArgument("--node and --upload: nodes need a directory that all of them see; leave one out");
  return std::optional(place);
}

Result<int64_t> JobFlags::NodeTimeoutMillis() const {
  if (node_timeout.empty()) return kNodeTimeoutMillis;
  const auto millis = MillisOf(node_timeout);
  if (!millis)
    return InvalidArgument(
        fmt::format("--node-timeout: found '{}'; accepted: seconds, or 90s, 30m, 12h", node_timeout));
  return *millis;
}

Status JobFlags::MakeCheckpointDirectory() {
  if (checkpoint_directory.empty()) return OkStatus();
  checkpoint_directory = jobs::AbsolutePath(checkpoint_directory);
  return base::LocalFileSystem().CreateDirectories(checkpoint_directory);
}

Status JobFlags::CheckBreaks() const {
  for (const std::string& text : breaks)
    TDBG_RETURN_IF_ERROR(watch::ParseBreak(text).status().Annotate("--break"));
  return OkStatus();
}

Status JobFlags::SetBreaks(const std::string& run_directory, int64_t attempt) const {
  for (const std::string& text : breaks) {
    TDBG_ASSIGN_OR_RETURN(const auto parsed, watch::ParseBreak(text));
    const auto& [condition, then] = parsed;
    TDBG_RETURN_IF_ERROR(
        actions::RequestBreak(run_directory, "--break", condition.text(), then, attempt, -1).status());
  }
  return OkStatus();
}

Result<Rehearsal> JobFlags::InterruptEvery() const {
  Rehearsal rehearsal;
  rehearsal.left = interruptions;
  rehearsal.wipe = wipe;
  if (interrupt_every.empty()) {
    if (wipe) return InvalidArgument("--wipe without --interrupt-every wipes nothing; say how often");
    if (interruptions < 0) return rehearsal;
    return InvalidArgument("--interruptions without --interrupt-every interrupts nothing; say how often");
  }
  constexpr std::string_view kSteps = "steps";
  if (interrupt_every.ends_with(kSteps)) {
    const auto steps =
        base::ParseInt(std::string_view(interrupt_every).substr(0, interrupt_every.size() - kSteps.size()));
    if (steps && *steps > 0) rehearsal.every_steps = *steps;
  } else if (const auto millis = MillisOf(interrupt_every)) {
    rehearsal.every_millis = *millis;
  }
  if (wipe && checkpoint_directory.empty())
    return InvalidArgument("--wipe needs --checkpoint-dir DIR, which is what is wiped");
  if (!rehearsal.is_on()) {
    return InvalidArgument(fmt::format(
        "--interrupt-every: found '{}'; accepted: seconds, or 90s, 30m, 12h, or 500steps", interrupt_every));
  }
  return rehearsal;
}

}  // namespace tdbg::cli
