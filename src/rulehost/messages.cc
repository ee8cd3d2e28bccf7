#include "rulehost/messages.h"

#include <cmath>
#include <limits>

namespace tdbg::rulehost {
namespace {

using nlohmann::json;

// A rule's process is not ours: every field may be missing or of another kind.
std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<std::string> Texts(const json& object, const char* key) {
  std::vector<std::string> texts;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return texts;
  for (const json& item : *found) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

bool Bool(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

double Number(const json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (found->is_number()) return found->get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (*found == "Infinity") return kInfinity;
  if (*found == "-Infinity") return -kInfinity;
  return *found == "NaN" ? std::numeric_limits<double>::quiet_NaN() : otherwise;
}

json Head(const plan::RuleConfig& config, const char* op) {
  return {{"op", op}, {"protocol", kProtocol}, {"file", config.file}, {"class", config.rule}};
}

bool KnownType(const std::string& type) {
  return type == "float" || type == "int" || type == "bool" || type == "string" || type == "regex list" ||
         type == "collection list";
}

}  // namespace

json DescribeMessage(const plan::RuleConfig& config) {
  json message = Head(config, "describe");
  message["parameters"] = config.parameters;
  return message;
}

json JudgeMessage(const plan::RuleConfig& config, const rules::Parameters& parameters, const std::string& run,
                  int64_t attempt) {
  json message = Head(config, "judge");
  message["parameters"] = parameters.all();
  message["run"] = run;
  message["attempt"] = attempt;
  return message;
}

json StepMessage(const rules::StepContext& step) {
  return {{"op", "step"},
          {"step", step.global_step()},
          {"mode", static_cast<int>(step.mode())},
          {"mode_step", step.mode_step()},
          {"attempt", step.attempt()},
          {"skipped", step.skipped()},
          {"incomplete", step.statistics_incomplete()}};
}

json EndMessage() { return {{"op", "end"}}; }

json WorkerLostMessage(const rules::LostWorker& worker) {
  return {{"op", "worker_lost"},
          {"attempt", worker.attempt},
          {"worker", worker.worker},
          {"from_step", worker.from_step}};
}

Result<Description> ReadDescription(const json& reply, const plan::RuleConfig& config) {
  const auto info = reply.find("info");
  if (info == reply.end() || !info->is_object()) {
    return InvalidArgument("rule " + config.rule + ": its process did not describe it");
  }
  Description description;
  description.info.class_name = config.rule;
  description.info.snake_name = config.file + ":" + config.rule;
  description.info.scope = "any";
  description.info.summary = Text(*info, "summary");
  description.info.any_parameter = Bool(*info, "any_parameter");
  description.page = Text(*info, "page");
  const auto parameters = info->find("parameters");
  if (parameters != info->end() && parameters->is_array()) {
    for (const json& item : *parameters) {
      if (!item.is_object()) continue;
      rules::ParameterSpec spec;
      spec.name = Text(item, "name");
      spec.type = Text(item, "type");
      if (!KnownType(spec.type)) {
        return InvalidArgument("rule " + config.rule + ": parameter " + spec.name +
                               " has the unknown type '" + spec.type +
                               "'; there are float, int, bool, string, regex list, collection list");
      }
      spec.default_value = Text(item, "default");
      spec.required = Bool(item, "required");
      spec.unit = Text(item, "unit");
      spec.help = Text(item, "help");
      spec.minimum = Number(item, "minimum", spec.minimum);
      spec.maximum = Number(item, "maximum", spec.maximum);
      spec.choices = Texts(item, "choices");
      spec.declared_at = Text(item, "declared_at");
      description.info.parameters.push_back(std::move(spec));
    }
  }
  const auto needs = reply.find("needs");
  if (needs != reply.end() && needs->is_object()) {
    description.needs.collections = Texts(*needs, "collections");
    description.needs.tensor_regex = Texts(*needs, "tensor_regex");
    description.needs.raw = Bool(*needs, "raw");
    if (Bool(*needs, "histograms")) {
      description.needs.histogram_collections = description.needs.collections;
      description.needs.histograms_of_regex = !description.needs.tensor_regex.empty();
    }
    const double interval = Number(*needs, "interval", 0);
    if (description.needs.raw && interval >= 1 && interval < 1e15) {
      description.needs.raw_schedule = plan::Schedule{};
      description.needs.raw_schedule->interval = static_cast<int64_t>(interval);
    }
  }
  return description;
}

Result<rules::Answer> ReadAnswer(const json& reply, int64_t global_step) {
  rules::Answer answer;
  answer.global_step = global_step;
  const std::string judged = Text(reply, "judged");
  if (judged == "judged") {
    answer.judged = rules::Judged::kJudged;
  } else if (judged == "incomplete") {
    answer.judged = rules::Judged::kIncomplete;
  } else if (judged != "not_due") {
    return Unavailable("its process answered what is no answer");
  }
  const auto findings = reply.find("findings");
  if (findings == reply.end() || !findings->is_array()) return answer;
  for (const json& item : *findings) {
    if (!item.is_object()) continue;
    rules::Finding finding;
    finding.global_step = global_step;
    finding.tensor = Text(item, "tensor");
    finding.worker = Text(item, "worker");
    finding.measure = Text(item, "measure");
    finding.value = Number(item, "value", 0);
    finding.comparison = Text(item, "comparison");
    finding.threshold = Number(item, "threshold", 0);
    finding.text = Text(item, "text");
    answer.findings.push_back(std::move(finding));
  }
  return answer;
}

}  // namespace tdbg::rulehost
