#include "cli/not_run.h"

#include <fmt/format.h>

#include "base/text.h"
#include "rules/rule.h"

namespace tdbg::cli {
namespace {

constexpr int kColumns = 100;  // where there is no terminal to ask
constexpr std::string_view kIndent = "  ";

// Names separated by commas, in indented lines that fit.
std::string Names(const std::vector<std::string>& names, int columns) {
  std::string text, line(kIndent);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = names[i] + (i + 1 < names.size() ? "," : "");
    if (line.size() > kIndent.size() && line.size() + 1 + name.size() > static_cast<size_t>(columns)) {
      text += line + "\n";
      line = kIndent;
    }
    line += (line.size() > kIndent.size() ? " " : "") + name;
  }
  return text + line + "\n";
}

std::string SnakeName(const std::string& rule) {
  const auto info = rules::BuiltinRules().Find(rule);
  return info.ok() ? (*info)->snake_name : rule;
}

}  // namespace

std::string FormatNotRun(const std::vector<NotRun>& rules, const std::string& run, const Terminal& terminal) {
  if (rules.empty()) return {};
  struct Group {
    NotRun::Cause cause;
    std::string_view head, next;  // {0}: the first rule of the group, {1}: the run
  };
  const Group groups[] = {
      {NotRun::Cause::kParameters, "lacked a parameter",
       "tdbg rules {0} lists them\ntdbg check {1} --rule {0} KEY=VALUE"},
      {NotRun::Cause::kNothing, "found nothing to judge",
       "tdbg check {1} --rule {0} says what it looked for\ntdbg run --rule {0} keeps it next time"},
      {NotRun::Cause::kPart, "had only a part of the inputs",
       "tdbg run --rule {0} keeps all of it next time"}};
  std::string text = fmt::format("\n{}; tdbg check {} --json says why of each\n",
                                 Paint(terminal, Colour::kBold, "could not run"), run);
  for (const Group& group : groups) {
    std::vector<std::string> names;
    for (const NotRun& rule : rules) {
      if (rule.cause == group.cause) names.push_back(rule.rule);
    }
    if (names.empty()) continue;
    text += fmt::format("{} {}:\n{}", base::Counted(names.size(), "rule"), group.head,
                        Names(names, terminal.is_terminal ? terminal.columns : kColumns));
    const std::string next = fmt::format(fmt::runtime(group.next), SnakeName(names.front()), run);
    for (const std::string& command : base::SplitList(next, '\n'))
      text += fmt::format("{}next: {}\n", kIndent, command);
  }
  return text;
}

}  // namespace tdbg::cli
