#include "actions/action.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "actions/actions.h"
#include "base/text.h"

namespace tdbg::actions {
namespace {

constexpr const char* kAccepted =
    "accepted: stop, exec:COMMAND LINE, webhook:URL, email:ADDRESS, sms:+DIGITS, capture:COLLECTION[:STEPS], "
    "checkpoint_stop[:SECONDS], pause[:SECONDS], blackbox";
constexpr int64_t kCheckpointSeconds = 120;

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string TextOf(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<std::unique_ptr<Action>> ParseAction(const std::string& text, const JobControl& job) {
  const std::string_view trimmed = base::Trim(text);
  if (trimmed == "stop") return MakeStop(job.stop);
  if (trimmed == "blackbox") return MakeBlackBox();
  if (trimmed == "pause") return MakePause("");
  const size_t colon = trimmed.find(':');
  const std::string kind(trimmed.substr(0, colon));
  const std::string rest(colon == std::string_view::npos ? "" : base::Trim(trimmed.substr(colon + 1)));
  if (kind == "checkpoint_stop") {
    const auto seconds =
        rest.empty() && colon == std::string_view::npos ? kCheckpointSeconds : base::ParseInt(rest);
    if (!seconds || *seconds < 1) {
      return InvalidArgument("action '" + text + "': '" + rest + "' is no number of seconds; " + kAccepted);
    }
    return MakeCheckpointStop(job, *seconds);
  }
  const std::string kinds[] = {"stop",  "exec",    "webhook", "email", "sms", "capture", "checkpoint_stop",
                               "pause", "blackbox"};
  if (kind != "stop" && kind != "blackbox" &&
      std::find(std::begin(kinds), std::end(kinds), kind) != std::end(kinds)) {
    if (rest.empty())
      return InvalidArgument("action '" + text + "' lacks what follows '" + kind + ":'; " + kAccepted);
    if (kind == "webhook") return MakeWebhook(rest);
    if (kind == "email") return MakeEmail(rest);
    if (kind == "sms") return MakeSms(rest);
    if (kind == "capture") return MakeCapture(rest);
    if (kind == "pause") return MakePause(rest);
    return MakeExec(rest);
  }
  const auto nearest = base::Nearest(kind, kinds);
  return InvalidArgument("unknown action '" + text + "'" +
                         (nearest ? ", did you mean " + *nearest + "?" : "") + "; " + kAccepted);
}

Result<std::vector<std::unique_ptr<Action>>> ParseActionJson(const std::string& text, const JobControl& job,
                                                             std::vector<std::string>* skipped) {
  std::vector<std::unique_ptr<Action>> actions;
  if (base::Trim(text).empty()) return actions;
  auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    // SageMaker's SDK escapes every quote, since the service pastes the text into a literal.
    std::string plain = text;
    for (size_t at; (at = plain.find("\\\"")) != std::string::npos;) plain.erase(at, 1);
    document = nlohmann::json::parse(plain, nullptr, false);
  }
  if (document.is_object()) document = nlohmann::json::array({document});
  if (!document.is_array()) return InvalidArgument("action_json: neither a JSON object nor a list of them");
  for (const auto& item : document) {
    const std::string name = item.is_object() ? Lower(TextOf(item, "name")) : "";
    Result<std::unique_ptr<Action>> made = InvalidArgument("accepted: StopTraining, Email, SMS");
    // The job name prefix of StopTraining is ignored: there is one job here, the one that is watched.
    if (name == "stoptraining") made = MakeStop(job.stop);
    if (name == "email") made = MakeEmail(TextOf(item, "endpoint"));
    if (name == "sms") made = MakeSms(TextOf(item, "endpoint"));
    if (made.ok()) {
      actions.push_back(*std::move(made));
    } else {
      skipped->push_back(item.dump() + ": " + made.status().message());
    }
  }
  return actions;
}

}  // namespace tdbg::actions
