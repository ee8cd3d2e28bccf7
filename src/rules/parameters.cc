#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/regex.h"
#include "base/text.h"
#include "rules/rule.h"

namespace tdbg::rules {
namespace {

// What SageMaker and smdebug send along with every rule. The engine and the launcher read them; no rule does.
constexpr const char* kOfEveryRule[] = {"rule_to_invoke", "start_step",  "end_step",     "base_trial",
                                        "other_trials",   "action_json", "source_s3_uri"};
constexpr std::string_view kOtherTrial = "other_trial_";

// other_trial_0, other_trial_1, ...: how SageMaker's clients hand over paths of other runs.
std::optional<int64_t> OtherTrialNumber(std::string_view name) {
  if (!name.starts_with(kOtherTrial)) return std::nullopt;
  return base::ParseInt(name.substr(kOtherTrial.size()));
}

std::string Bound(double bound) {
  return std::abs(bound) < 1e15 && bound == std::floor(bound) ? fmt::format("{:.0f}", bound)
                                                              : fmt::format("{:g}", bound);
}

std::string Accepted(const ParameterSpec& spec) {
  std::string text;
  if (!spec.choices.empty()) {
    text = "one of";
    for (const std::string& choice : spec.choices) text += (text == "one of" ? " " : ", ") + choice;
    return text;
  }
  if (spec.type == "float") text = "a number";
  if (spec.type == "int") text = "a whole number";
  if (spec.type == "bool") text = "True or False";
  if (spec.type == "regex list") text = "comma-separated regular expressions";
  if (spec.type == "collection list") text = "comma-separated collection names";
  if (spec.type == "string") text = "a text";
  const bool low = std::isfinite(spec.minimum), high = std::isfinite(spec.maximum);
  if (low && high) {
    text += fmt::format(" from {} to {}", Bound(spec.minimum), Bound(spec.maximum));
  } else if (low) {
    text += fmt::format(", at least {}", Bound(spec.minimum));
  }
  if (!spec.unit.empty()) text += fmt::format(" ({})", spec.unit);
  return text;
}

// In any case: "train" means TRAIN, and rules compare with one spelling.
const std::string* Choice(const ParameterSpec& spec, const std::string& value) {
  const auto same = [&](const std::string& choice) {
    return std::equal(choice.begin(), choice.end(), value.begin(), value.end(),
                      [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b); });
  };
  const auto found = std::find_if(spec.choices.begin(), spec.choices.end(), same);
  return found == spec.choices.end() ? nullptr : &*found;
}

bool Fits(const ParameterSpec& spec, const std::string& value) {
  if (spec.type == "float") {
    const auto number = base::ParseDouble(value);
    return number && std::isfinite(*number) && *number >= spec.minimum && *number <= spec.maximum;
  }
  if (spec.type == "int") {
    const auto number = base::ParseInt(value);
    return number && static_cast<double>(*number) >= spec.minimum &&
           static_cast<double>(*number) <= spec.maximum;
  }
  if (spec.type == "bool") return base::ParseBool(value).has_value();
  if (!spec.choices.empty()) return Choice(spec, value) != nullptr;
  if (spec.type == "regex list" || spec.type == "collection list") return !base::SplitList(value).empty();
  return true;
}

ParameterSpec StepBound(const std::string& name) {
  ParameterSpec spec;
  spec.name = name;
  spec.type = "int";
  spec.minimum = 0;
  spec.unit = "steps";
  return spec;
}

}  // namespace

Result<Parameters> Parameters::Parse(const RuleInfo& info, const std::map<std::string, std::string>& given) {
  std::vector<ParameterSpec> specs = info.parameters;
  const auto refuse = [&](const std::string& name, const std::string& why) {
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&](const ParameterSpec& s) { return s.name == name; });
    const std::string declared = spec == specs.end() || spec->declared_at.empty()
                                     ? ""
                                     : fmt::format(" (declared at {})", spec->declared_at);
    return InvalidArgument(fmt::format("rule {}: parameter {}: {}{}", info.class_name, name, why, declared));
  };
  for (const char* name : {"start_step", "end_step"}) {
    const bool own =
        std::any_of(specs.begin(), specs.end(), [&](const ParameterSpec& s) { return s.name == name; });
    if (!own) specs.push_back(StepBound(name));
  }
  std::vector<std::string> names;
  for (const ParameterSpec& spec : specs) names.push_back(spec.name);
  names.insert(names.end(), std::begin(kOfEveryRule), std::end(kOfEveryRule));

  Parameters parsed;
  for (const auto& [name, value] : given) {
    if (std::find(names.begin(), names.end(), name) == names.end() && !OtherTrialNumber(name)) {
      if (info.any_parameter) {
        parsed.values_[name] = value;
        continue;
      }
      std::string known;
      for (const ParameterSpec& spec : specs) known += (known.empty() ? "" : ", ") + spec.name;
      const auto nearest = base::Nearest(name, names);
      return refuse(name, fmt::format("unknown{}; {} accepts {}",
                                      nearest ? fmt::format(", did you mean {}?", *nearest) : "",
                                      info.class_name, known));
    }
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&](const ParameterSpec& s) { return s.name == name; });
    if (spec == specs.end()) {
      parsed.values_[name] = value;
      continue;
    }
    // Blanks around a value come from YAML and shells and mean nothing. Python's None is "not given".
    const std::string trimmed(base::Trim(value));
    if (trimmed == "None" && !spec->required && spec->default_value.empty()) continue;
    if (!Fits(*spec, trimmed)) return refuse(name, fmt::format("'{}' is not {}", value, Accepted(*spec)));
    if (spec->type == "regex list") {
      for (const std::string& pattern : base::SplitList(trimmed)) {
        const auto regex = base::Regex::Compile(pattern);
        if (!regex.ok()) return refuse(name, regex.status().message());
      }
    }
    parsed.values_[name] = spec->choices.empty() ? trimmed : *Choice(*spec, trimmed);
  }
  for (const ParameterSpec& spec : specs) {
    if (parsed.values_.contains(spec.name)) continue;
    if (spec.required) return refuse(spec.name, "missing; it takes " + Accepted(spec));
    if (spec.default_value.empty()) continue;
    parsed.values_[spec.name] = spec.default_value;
    parsed.defaults_.insert(spec.name);
  }
  return parsed;
}

bool Parameters::Has(const std::string& name) const { return values_.contains(name); }

bool Parameters::IsGiven(const std::string& name) const { return Has(name) && !defaults_.contains(name); }

// Parse has looked at every value; a rule that asks for another name or type than it declared is our defect.
double Parameters::Float(const std::string& name) const {
  const auto value = base::ParseDouble(Text(name));
  TDBG_CHECK(value.has_value());
  return *value;
}

int64_t Parameters::Int(const std::string& name) const {
  const auto value = base::ParseInt(Text(name));
  TDBG_CHECK(value.has_value());
  return *value;
}

bool Parameters::Bool(const std::string& name) const {
  const auto value = base::ParseBool(Text(name));
  TDBG_CHECK(value.has_value());
  return *value;
}

std::string Parameters::Text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::string() : found->second;
}

std::vector<std::string> Parameters::OtherTrials() const {
  std::vector<std::string> trials = List("other_trials");
  std::map<int64_t, std::string> numbered;
  for (const auto& [name, value] : values_) {
    if (const auto number = OtherTrialNumber(name)) numbered[*number] = std::string(base::Trim(value));
  }
  for (auto& [number, path] : numbered) trials.push_back(std::move(path));
  return trials;
}

std::vector<std::string> Parameters::List(const std::string& name) const {
  return base::SplitList(Text(name));
}

}  // namespace tdbg::rules
