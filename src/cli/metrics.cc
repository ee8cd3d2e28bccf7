// tdbg metrics: sends a run's metrics to Prometheus and OpenTelemetry, once or continuously.
#include "metrics/metrics.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "actions/actions.h"
#include "base/background.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/job_flags.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "jobs/run_directory.h"
#include "watch/events.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kEverySeconds = 10;
// As for other followers, which have the whole time of the training for their work.
constexpr int kNiceness = 10;
constexpr int64_t kTryMillis = 5000;

volatile sig_atomic_t asked_to_end = 0;

// Users name a collector, "https://collector:4318"; the path is OTLP's.
std::string MetricsUrl(const std::string& url) {
  const size_t host = url.find("://") + 3;
  const size_t path = url.find('/', host);
  if (path == std::string::npos) return url + "/v1/metrics";
  return path + 1 == url.size() ? url + "v1/metrics" : url;
}

// "api-key=secret,other=value" (OpenTelemetry's specification).
std::vector<std::string> OtlpHeaders() {
  std::vector<std::string> headers;
  const char* const text = ::getenv("OTEL_EXPORTER_OTLP_HEADERS");
  for (const std::string& item : base::SplitList(text ? text : "")) {
    const size_t equals = item.find('=');
    if (equals != std::string::npos && item.find_first_of("\r\n") == std::string::npos)
      headers.push_back(item.substr(0, equals) + ": " + item.substr(equals + 1));
  }
  return headers;
}

class MetricsCommand : public Command {
 public:
  std::string name() const override { return "metrics"; }
  std::string help() const override { return "a run for Prometheus and OpenTelemetry"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags
        .AddOption("--prometheus", prometheus_,
                   "write them to this file, for node_exporter's textfile collector")
        .TypeName("FILE");
    flags.AddOption("--otlp", otlp_, "send them there, by OTLP/HTTP; $OTEL_EXPORTER_OTLP_HEADERS go along")
        .TypeName("URL")
        .Check(IsHttpUrl);
    flags.AddFlag("--follow", follow_, "go on until the run has ended");
    flags.AddOption("--every", every_, "with --follow: seconds between two looks; default 10")
        .TypeName("N")
        .Check(IntegerFrom(1));
    flags.AddFlag("--launched", launched_, "").Hidden();
    flags.Footer("\nWithout --prometheus and --otlp: in Prometheus' text format on stdout.");
  }

  Result<int> Run() override {
    const bool elsewhere = !prometheus_.empty() || !otlp_.empty();
    if (follow_ && !elsewhere)
      return InvalidArgument("metrics: --follow needs --prometheus FILE or --otlp URL");
    if (!prometheus_.empty()) prometheus_ = jobs::AbsolutePath(prometheus_);
    if (!otlp_.empty()) {
      actions::WebhookOptions options;
      options.tries = follow_ ? 1 : 3;  // when following, the next round tries again
      options.timeout_millis = kTryMillis;
      options.headers = OtlpHeaders();
      TDBG_ASSIGN_OR_RETURN(collector_, actions::MakeWebhook(MetricsUrl(otlp_), options));
    }
    if (follow_) return Follow();
    TDBG_ASSIGN_OR_RETURN(trial_, OpenRun(run_));
    TDBG_RETURN_IF_ERROR(Export());
    TDBG_RETURN_IF_ERROR(CouldNotRead(trial_->damage()));
    return kExitOk;
  }

 private:
  Status Export() {
    const auto statuses = watch::ReadShownStatuses(trial_->path());
    const std::vector<metrics::Metric> metrics =
        metrics::MetricsOf(*trial_, statuses.ok() ? *statuses : std::vector<rules::RuleStatus>());
    if (prometheus_.empty() && !collector_) Print("{}", metrics::PrometheusText(metrics));
    Status failed;
    if (!prometheus_.empty())
      failed = base::LocalFileSystem().WriteFileAtomic(prometheus_, metrics::PrometheusText(metrics));
    if (collector_) {
      actions::Notice notice;
      notice.json = metrics::OtlpJson(metrics,
                                      {{"service.name", "tdbg"},
                                       {"service.version", kVersion},
                                       {"service.instance.id", trial_->name()},
                                       {"host.name", base::HostName()}},
                                      start_wall_nanos_, base::SystemClock().WallNanos());
      const Status sent = collector_->Perform(notice);
      if (failed.ok()) failed = sent;
    }
    return failed;
  }

  // True once nothing more will come. Without a launcher, that is when the run's workers are gone.
  bool WaitForTheEnd(int64_t seconds) const {
    if (!launched_) {
      pollfd none{-1, 0, 0};
      (void)::poll(&none, 1, static_cast<int>(std::min<int64_t>(seconds, 86'400) * 1000));
      return asked_to_end != 0 || (trial_ && trial_->loaded_all_steps());
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, static_cast<int>(std::min<int64_t>(seconds, 86'400) * 1000)) > 0;
  }

  Result<int> Follow() {
    (void)!::nice(kNiceness);
    base::StayInBackground();
    ::signal(SIGPIPE, SIG_IGN);
    if (launched_) {
      ::signal(SIGINT, SIG_IGN);  // the terminal's ctrl-C is the training's
    } else {
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, [](int) { asked_to_end = 1; });
    }
    bool said = false;
    for (bool over = false;; over = WaitForTheEnd(trial_ ? every_ : 1)) {
      Status status = Look();
      if (over) {
        // A run that never began has nothing to say; `tdbg run` says why.
        if (launched_ && status.code() == Code::kNotFound) return kExitOk;
        if (!status.ok()) return status;
        return kExitOk;
      }
      if (trial_ && !status.ok() && !std::exchange(said, true))
        Tell("tdbg: metrics: {}; it is tried again\n", Printable(status.message()));
    }
  }

  Status Look() {
    if (!trial_) {
      TrialOptions options;
      options.wait_millis = 0;
      const auto resolved = ResolveRun(run_);
      auto opened = Trial::Open(resolved.ok() ? *resolved : run_, options);
      if (!opened.ok()) return opened.status();
      trial_ = *std::move(opened);
    }
    TDBG_RETURN_IF_ERROR(trial_->Refresh().status());
    return Export();
  }

  std::string run_, prometheus_, otlp_;
  bool follow_ = false, launched_ = false;
  int64_t every_ = kEverySeconds;
  const int64_t start_wall_nanos_ = base::SystemClock().WallNanos();
  std::unique_ptr<actions::Action> collector_;
  std::unique_ptr<Trial> trial_;
};

}  // namespace

std::unique_ptr<Command> MakeMetricsCommand() { return std::make_unique<MetricsCommand>(); }

}  // namespace tdbg::cli
