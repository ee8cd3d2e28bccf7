#include "service/event_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "events/pattern.h"
#include "service/shape.h"

namespace tdbg::service {
namespace {

// As often as Lambda tries again what EventBridge has sent it.
constexpr int kRetries = 2;
constexpr const char* kDetailType = "SageMaker Training Job State Change";
constexpr const char* kRulesFile = "event-rules.json";

Refusal NoSuchRule(const std::string& name) {
  return {"ResourceNotFoundException", fmt::format("Rule {} does not exist on EventBus default.", name)};
}
Refusal Failed(const Status& status) { return {"InternalFailure", status.message()}; }

}  // namespace

Json EventRules::ReadRules() const {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(directory_, kRulesFile));
  Json rules = text.ok() ? Json::parse(*text, nullptr, false) : Json::object();
  return rules.is_object() ? rules : Json::object();
}

Status EventRules::WriteRules(const Json& rules) const {
  TDBG_RETURN_IF_ERROR(
      base::LocalFileSystem().WriteFileAtomic(base::JoinPath(directory_, kRulesFile), rules.dump(2) + "\n"));
  return WriteHandlers(rules);
}

Status EventRules::WriteHandlers(const Json& rules) const {
  Json handlers = Json::array();
  for (const auto& [name, rule] : rules.items()) {
    if (rule.value("State", "") != "ENABLED") continue;
    const Json targets = rule.value("Targets", Json::object());
    for (const auto& [id, target] : targets.items()) {
      const auto function = functions_.Find(target.at("Arn"));
      if (!function) continue;  // deleted since
      handlers.push_back({{"name", name + "/" + id},
                          {"python", function->target},
                          {"pattern", rule.value("Pattern", Json::object())},
                          {"limit_seconds", function->limit_seconds},
                          {"retries", kRetries},
                          {"environment", function->environment}});
    }
  }
  return base::LocalFileSystem().WriteFileAtomic(base::JoinPath(directory_, kHandlersFile),
                                                 Json{{"handlers", handlers}}.dump(2) + "\n");
}

// All of them or none.
Answer<Json> EventRules::PutTargets(const Json& request, Json* targets) const {
  for (const Json& target : request["Targets"]) {
    const std::string to = target["Arn"];
    if (to.find(":lambda:") == std::string::npos || !functions_.Find(to))
      return Invalid(
          fmt::format("targets: '{}' is no function of this service; nothing else is offered as a target "
                      "(tdbg handlers add: webhooks, commands, logs)",
                      to));
    for (const char* const other : {"Input", "InputPath", "InputTransformer"}) {
      if (target.contains(other))
        return Invalid(fmt::format(
            "targets: {} is not offered by this service: a function gets the whole event", other));
    }
  }
  for (const Json& target : request["Targets"]) (*targets)[target["Id"].get<std::string>()] = target;
  return Json{{"FailedEntryCount", 0}, {"FailedEntries", Json::array()}};
}

Answer<Json> EventRules::AnswerEvents(const std::string& operation, const Json& request) {
  Json rules = ReadRules();
  const auto arn = [&](const std::string& name) {
    return fmt::format("arn:aws:events:{}:{}:rule/{}", region_, account_, name);
  };
  const auto told = [&](const std::string& name) {
    const Json& rule = rules.at(name);
    Json out = {{"Name", name}, {"Arn", arn(name)}, {"State", rule["State"]}, {"EventBusName", "default"}};
    if (rule.contains("Pattern")) out["EventPattern"] = rule["Pattern"].dump();
    if (rule.contains("Description")) out["Description"] = rule["Description"];
    return out;
  };
  if (operation == "ListRules") {
    Json list = Json::array();
    for (const auto& [name, unused] : rules.items()) {
      if (name.starts_with(request.value("NamePrefix", ""))) list.push_back(told(name));
    }
    return Json{{"Rules", list}};
  }
  if (operation == "ListRuleNamesByTarget") {
    Json names = Json::array();
    for (const auto& [name, rule] : rules.items()) {
      const Json targets = rule.value("Targets", Json::object());
      const bool is = std::any_of(targets.begin(), targets.end(), [&](const Json& target) {
        return target.value("Arn", "") == request["TargetArn"];
      });
      if (is) names.push_back(name);
    }
    return Json{{"RuleNames", names}};
  }
  if (operation == "TestEventPattern" || operation == "PutRule") {
    const bool test = operation == "TestEventPattern";
    if (!request.contains("EventPattern"))
      return Invalid("eventPattern: a rule without one (a schedule) is not offered by this service");
    const Answer<Json> pattern = ParseBody(request["EventPattern"].get_ref<const std::string&>());
    if (!pattern.ok())
      return Refusal{"InvalidEventPatternException",
                     "Event pattern is not valid: " + pattern.refusal().message};
    const nlohmann::json plain = nlohmann::json::parse(pattern->dump());
    const auto parsed = events::Pattern::Parse(plain, plan::Source{"eventPattern"});
    if (!parsed.ok())
      return Refusal{"InvalidEventPatternException",
                     "Event pattern is not valid: " + parsed.status().message()};
    // One that waits for what never happens here would be believed, and be silent.
    if (!test && pattern->contains("detail-type")) {
      const auto type =
          events::Pattern::Parse({{"detail-type", plain["detail-type"]}}, plan::Source{"eventPattern"});
      if (type.ok() && !type->Matches({{"detail-type", kDetailType}}))
        return Invalid(fmt::format(
            "eventPattern: no event of this service has that detail-type; all have '{}'", kDetailType));
    }
    if (test) {
      const Answer<Json> event = ParseBody(request["Event"].get_ref<const std::string&>());
      if (!event.ok()) return event.refusal();
      return Json{{"Result", parsed->Matches(nlohmann::json::parse(event->dump()))}};
    }
    const std::string name = request["Name"];
    Json& rule = rules[name];
    if (!rule.is_object()) rule = Json::object();
    rule["Pattern"] = *pattern;
    rule["State"] = request.value("State", "ENABLED");
    if (request.contains("Description")) rule["Description"] = request["Description"];
    if (const Status kept = WriteRules(rules); !kept.ok()) return Failed(kept);
    return Json{{"RuleArn", arn(name)}};
  }

  const std::string name = request.contains("Rule") ? request["Rule"] : request["Name"];
  if (!rules.contains(name)) {
    if (operation == "DeleteRule") return Json::object();
    return NoSuchRule(name);
  }
  Json& rule = rules[name];
  Json& targets = rule["Targets"];
  if (!targets.is_object()) targets = Json::object();
  if (operation == "DescribeRule") return told(name);
  if (operation == "ListTargetsByRule") {
    Json list = Json::array();
    for (const auto& [id, target] : targets.items()) list.push_back(target);
    return Json{{"Targets", list}};
  }
  Json out = Json::object();
  if (operation == "PutTargets") {
    Answer<Json> put = PutTargets(request, &targets);
    if (!put.ok()) return put.refusal();
    out = *put;
  } else if (operation == "RemoveTargets") {
    for (const Json& id : request["Ids"]) targets.erase(id.get<std::string>());
    out = {{"FailedEntryCount", 0}, {"FailedEntries", Json::array()}};
  } else if (operation == "DeleteRule") {
    if (!targets.empty()) return Invalid("Rule can't be deleted since it has targets.");
    rules.erase(name);
  } else {
    rule["State"] = operation == "EnableRule" ? "ENABLED" : "DISABLED";
  }
  if (const Status kept = WriteRules(rules); !kept.ok()) return Failed(kept);
  return out;
}

}  // namespace tdbg::service
