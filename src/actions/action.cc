#include "actions/action.h"

#include "actions/actions.h"
#include "base/text.h"

namespace tdbg::actions {

Result<std::unique_ptr<Action>> ParseAction(const std::string& text,
                                            std::function<Status(const Notice&)> stop) {
  constexpr const char* kAccepted = "accepted: stop, exec:COMMAND LINE, webhook:URL";
  const std::string_view trimmed = base::Trim(text);
  if (trimmed == "stop") return MakeStop(std::move(stop));
  const size_t colon = trimmed.find(':');
  const std::string kind(trimmed.substr(0, colon));
  const std::string rest(colon == std::string_view::npos ? "" : base::Trim(trimmed.substr(colon + 1)));
  if (kind == "exec" || kind == "webhook") {
    if (rest.empty())
      return InvalidArgument("action '" + text + "' lacks what follows '" + kind + ":'; " + kAccepted);
    if (kind == "webhook") return MakeWebhook(rest);
    return MakeExec(rest);
  }
  const std::string kinds[] = {"stop", "exec", "webhook"};
  const auto nearest = base::Nearest(kind, kinds);
  return InvalidArgument("unknown action '" + text + "'" +
                         (nearest ? ", did you mean " + *nearest + "?" : "") + "; " + kAccepted);
}

}  // namespace tdbg::actions
