#include "cli/arguments.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tdbg::cli {
namespace {

constexpr char kJoint = '\x1f';  // ASCII's unit separator: no shell word holds one by accident

size_t KeyLength(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z') ||
                             text[n] == '_' || (n > 0 && text[n] >= '0' && text[n] <= '9'))) {
    ++n;
  }
  return n;
}

bool IsAssignment(std::string_view text) {
  const size_t n = KeyLength(text);
  return n > 0 && n < text.size() && text[n] == '=';
}

std::vector<std::string> SplitAssignments(std::string_view text) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && IsAssignment(text.substr(i + 1))) {
      pieces.emplace_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  pieces.emplace_back(text.substr(begin));
  return pieces;
}

Status AssignLimit(const std::string& key, const std::string& value, plan::RuleConfig* rule) {
  const auto seconds = base::ParseInt(value);
  const auto bytes = base::ParseBytes(value);
  if ((key == "limit_seconds" || key == "limit_start_seconds") && seconds && *seconds >= 1) {
    (key == "limit_seconds" ? rule->limit_seconds : rule->limit_start_seconds) = *seconds;
  } else if (key == "limit_memory" && bytes) {
    rule->limit_memory = *bytes;
  } else {
    return InvalidArgument(fmt::format(
        "--rule-file {}: found {}={}; accepted: limit_seconds=N, limit_start_seconds=N (whole seconds), "
        "limit_memory=SIZE",
        rule->rule, key, value));
  }
  return OkStatus();
}

Status Assign(const std::string& piece, plan::RuleConfig* rule) {
  if (!IsAssignment(piece)) {
    return InvalidArgument(
        fmt::format("--rule {}: found '{}'; write parameters as key=value", rule->rule, piece));
  }
  const size_t n = KeyLength(piece);
  const std::string key = piece.substr(0, n);
  const std::string value = piece.substr(n + 1);
  if (key == "on_issue") {
    rule->on_issue.push_back(value);
  } else if (key == "name") {
    rule->name = value;
  } else if (key == "action_cooldown_seconds") {
    rule->action_cooldown_seconds = base::ParseInt(value);
    if (!rule->action_cooldown_seconds || *rule->action_cooldown_seconds < 0) {
      return InvalidArgument(
          fmt::format("--rule {}: found {}={}; accepted: whole seconds, 0 or more", rule->rule, key, value));
    }
  } else if (!rule->file.empty() && key.starts_with("limit_")) {
    return AssignLimit(key, value, rule);
  } else if (!rule->parameters.emplace(key, value).second) {
    return InvalidArgument(fmt::format("--rule {}: '{}' is given twice; give it once", rule->rule, key));
  }
  return OkStatus();
}

// The assignments that SplitArguments joined to a rule, from `joint` on.
Status AssignJoined(const std::string& text, size_t joint, plan::RuleConfig* rule) {
  for (size_t begin = joint; begin != std::string::npos;) {
    const size_t end = text.find(kJoint, begin + 1);
    TDBG_RETURN_IF_ERROR(
        Assign(text.substr(begin + 1, end == std::string::npos ? end : end - begin - 1), rule));
    begin = end;
  }
  return OkStatus();
}

}  // namespace

Arguments SplitArguments(std::span<const std::string> words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      arguments.has_command = true;
      arguments.command.assign(words.begin() + static_cast<ptrdiff_t>(i) + 1, words.end());
      break;
    }
    std::string rule;
    const bool takes_parameters = words[i] == "--rule" || words[i] == "--rule-file";
    if (takes_parameters && i + 1 < words.size() && words[i + 1] != "--") {
      arguments.ours.push_back(words[i]);
      rule = words[++i];
    } else if (words[i].starts_with("--rule=") || words[i].starts_with("--rule-file=")) {
      rule = words[i];
    } else {
      arguments.ours.push_back(words[i]);
      continue;
    }
    while (i + 1 < words.size() && IsAssignment(words[i + 1])) {
      rule += kJoint;
      rule += words[++i];
    }
    arguments.ours.push_back(rule);
  }
  return arguments;
}

Result<plan::RuleConfig> ParseRuleFlag(const std::string& text) {
  plan::RuleConfig rule;
  rule.where = "--rule";
  const size_t joint = text.find(kJoint);
  const std::string head = text.substr(0, joint);
  const size_t colon = head.find(':');
  rule.rule = head.substr(0, colon);
  if (rule.rule.empty())
    return InvalidArgument("--rule: the rule's name is missing; `tdbg rules` lists them");
  if (colon != std::string::npos && colon + 1 < head.size()) {
    for (const std::string& piece : SplitAssignments(std::string_view(head).substr(colon + 1))) {
      TDBG_RETURN_IF_ERROR(Assign(piece, &rule));
    }
  }
  TDBG_RETURN_IF_ERROR(AssignJoined(text, joint, &rule));
  return rule;
}

Result<plan::RuleConfig> ParseRuleFileFlag(const std::string& text) {
  plan::RuleConfig rule;
  rule.where = "--rule-file";
  const size_t joint = text.find(kJoint);
  if (const Status parsed = plan::ParseRuleFile(text.substr(0, joint), &rule); !parsed.ok()) {
    return parsed.Annotate("--rule-file");
  }
  TDBG_RETURN_IF_ERROR(AssignJoined(text, joint, &rule));
  return rule;
}

}  // namespace tdbg::cli
