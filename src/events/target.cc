#include "events/target.h"

#include <fmt/format.h>

#include "actions/actions.h"
#include "actions/command.h"
#include "base/durations.h"
#include "base/file.h"

namespace tdbg::events {
namespace {

using nlohmann::json;

constexpr int64_t kTryMillis = 10'000;  // of a webhook, which tries three times

// `sh -c COMMAND`, the event on its standard input.
class ExecTarget final : public Target {
 public:
  ExecTarget(const Handler& handler, std::string run) : run_(std::move(run)) {
    spawn_.argv = {"/bin/sh", "-c", handler.target};
    spawn_.set_env = handler.environment;
    spawn_.pipe_stdin = true;
    limit_millis_ = base::MillisOfSeconds(handler.limit_seconds);
  }

  Outcome Deliver(const Event& event) override {
    base::SpawnOptions spawn = spawn_;
    spawn.set_env["TDBG_RUN"] = run_;
    spawn.set_env["TDBG_EVENT_ID"] = event.id;
    spawn.stdin_text = event.text + "\n";
    auto result = actions::RunCommand(std::move(spawn), limit_millis_);
    if (!result.ok()) return {result.status(), "", false};
    Outcome outcome;
    outcome.output = std::move(result->output);
    if (result->timed_out) {
      outcome.status = Status(
          Code::kDeadlineExceeded,
          fmt::format("it was still busy after {} s (limit_seconds), and was ended", limit_millis_ / 1000.0));
    } else if (result->exit.signaled) {
      outcome.status = Unavailable(fmt::format("it was ended by signal {}", result->exit.code));
      outcome.process_gone = true;
    } else if (result->exit.code != 0) {
      outcome.status = Unavailable(fmt::format("its exit code was {}", result->exit.code));
    }
    return outcome;
  }

 private:
  const std::string run_;
  base::SpawnOptions spawn_;
  int64_t limit_millis_;
};

class WebhookTarget final : public Target {
 public:
  explicit WebhookTarget(const Handler& handler) : slack_(handler.slack) {
    actions::WebhookOptions options;
    options.timeout_millis = std::min(kTryMillis, base::MillisOfSeconds(handler.limit_seconds));
    if (auto action = actions::MakeWebhook(handler.target, options); action.ok())
      action_ = *std::move(action);
  }

  Outcome Deliver(const Event& event) override {
    actions::Notice notice;
    notice.json = slack_ ? SlackMessage(event.json) : event.text;
    if (!action_) return {InvalidArgument("no http:// or https:// URL"), "", false};
    return {action_->Perform(notice), action_->output(), false};
  }

 private:
  const bool slack_;
  std::unique_ptr<actions::Action> action_;
};

class LogTarget final : public Target {
 public:
  explicit LogTarget(std::string path) : path_(std::move(path)) {}
  Outcome Deliver(const Event& event) override {
    return {base::LocalFileSystem().AppendLine(path_, event.text), "", false};
  }

 private:
  const std::string path_;
};

// Slack's three control characters.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? Escaped(found->get<std::string>()) : "";
}

}  // namespace

std::string SlackMessage(const json& event) {
  static const json kNone = json::object();
  const auto part = [](const json& object, const char* key) -> const json& {
    const auto found = object.find(key);
    return found != object.end() && found->is_object() ? *found : kNone;
  };
  const json& detail = part(event, "detail");
  const json& ours = part(detail, "tdbg");
  std::string text = fmt::format("*{}*: ", TextOf(detail, "TrainingJobName"));
  if (TextOf(ours, "change") == "rule") {
    const auto step = ours.find("global_step");
    text += fmt::format("rule {} is {}", TextOf(ours, "name"), TextOf(ours, "status"));
    if (step != ours.end() && step->is_number_integer() && step->get<int64_t>() >= 0)
      text += fmt::format(" at step {}", step->get<int64_t>());
    const std::string details = TextOf(ours, "details");
    if (!details.empty()) text += "\n" + details;
  } else {
    text += fmt::format("the job is {} ({})", TextOf(detail, "TrainingJobStatus"),
                        TextOf(detail, "SecondaryStatus"));
    const std::string reason = TextOf(detail, "FailureReason");
    if (!reason.empty()) text += "\n" + reason;
  }
  return json{{"text", text}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::unique_ptr<Target> MakeTarget(const Handler& handler, const std::string& run) {
  switch (handler.kind) {
    case HandlerKind::kPython:
      return MakePythonTarget(handler, run);
    case HandlerKind::kExec:
      return std::make_unique<ExecTarget>(handler, run);
    case HandlerKind::kWebhook:
      return std::make_unique<WebhookTarget>(handler);
    case HandlerKind::kLog:
      return std::make_unique<LogTarget>(handler.target);
  }
  return nullptr;
}

}  // namespace tdbg::events
