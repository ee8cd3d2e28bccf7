#include "service/rule_settings.h"

#include <fmt/format.h>

#include "plan/config.h"
#include "rulehost/registry.h"
#include "rules/engine.h"

namespace tdbg::service {
namespace {

using nlohmann::json;

// Parameters of the rule's host and not of the rule.
bool IsHostParameter(const std::string& name) {
  return name == "rule_to_invoke" || name == "source_s3_uri" || name == "action_json" ||
         name.starts_with("other_trial");
}

}  // namespace

Result<std::vector<std::string>> ActionsOf(const std::string& action_json) {
  json actions = json::parse(action_json, nullptr, false);
  if (actions.is_discarded()) {
    std::string plain;
    for (size_t i = 0; i < action_json.size(); ++i) {
      if (action_json[i] == '\\' && i + 1 < action_json.size() && action_json[i + 1] == '"') continue;
      plain += action_json[i];
    }
    actions = json::parse(plain, nullptr, false);
  }
  if (actions.is_object()) actions = json::array({actions});
  const auto bad = [&] {
    return InvalidArgument(fmt::format(
        "action_json: found {}, expected a list of {{\"name\": \"stoptraining\" | \"email\" | \"sms\", ...}}",
        action_json.substr(0, 200)));
  };
  if (!actions.is_array()) return bad();
  std::vector<std::string> out;
  for (const json& action : actions) {
    if (!action.is_object() || !action.contains("name") || !action["name"].is_string()) return bad();
    const std::string name = action["name"];
    const auto endpoint = action.find("endpoint");
    const bool has_endpoint = endpoint != action.end() && endpoint->is_string();
    if (name == "stoptraining")
      out.push_back("stop");
    else if ((name == "email" || name == "sms") && has_endpoint)
      out.push_back(name + ":" + endpoint->get<std::string>());
    else
      return bad();
  }
  return out;
}

std::string RuleSource(const Json& configuration) {
  return configuration.value("/RuleParameters/source_s3_uri"_json_pointer, std::string());
}

Status CheckRule(const json& entry) {
  plan::Source source;
  source.name = "RuleParameters";
  TDBG_ASSIGN_OR_RETURN(const plan::Config config,
                        plan::ParseConfig({{"rules", json::array({entry})}}, source));
  TDBG_ASSIGN_OR_RETURN(const auto registry, rulehost::Registry::Create(config.rules, {}));
  return rules::Engine::Create(config.rules, *registry).status();
}

Result<json> RuleEntry(const Json& configuration, const std::string& file) {
  const Json parameters = configuration.value("RuleParameters", Json::object());
  if (!parameters.contains("rule_to_invoke"))
    return InvalidArgument("RuleParameters has no rule_to_invoke, so no rule is named");
  const std::string rule = parameters["rule_to_invoke"];
  json entry = {{"name", configuration["RuleConfigurationName"].get<std::string>()},
                {"parameters", json::object()}};
  if (file.empty())
    entry["rule"] = rule;
  else
    entry["rule_file"] = file + ":" + rule;
  for (const auto& [name, value] : parameters.items()) {
    // smdebug's host judges between two steps; a class of a user's own is not told of them.
    const bool of_host = !file.empty() && (name == "start_step" || name == "end_step");
    if (!IsHostParameter(name) && !of_host) entry["parameters"][name] = value.get<std::string>();
  }
  // Amazon's rule hits at the first step that it finds bad; a job that saves gradients every 500 steps may
  // have few more.
  if (file.empty() && rule == "VanishingGradient" && !entry["parameters"].contains("patience"))
    entry["parameters"]["patience"] = "1";
  if (parameters.contains("action_json")) {
    TDBG_ASSIGN_OR_RETURN(entry["on_issue"], ActionsOf(parameters["action_json"]));
  }
  return entry;
}

}  // namespace tdbg::service
