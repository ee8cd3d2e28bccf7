#include "cli/verdicts.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/exit_codes.h"
#include "cli/report.h"

namespace tdbg::cli {

Json VerdictsToJson(const std::vector<rules::RuleStatus>& statuses) {
  Json list = Json::array();
  for (const rules::RuleStatus& status : statuses) list.push_back(RuleToJson(status));
  return list;
}

std::string FormatVerdicts(const std::vector<rules::RuleStatus>& statuses, const Terminal& terminal) {
  std::string text;
  for (const rules::RuleStatus& status : statuses) {
    text += fmt::format("{}  {}, {} judged", Paint(terminal, Colour::kBold, Printable(status.name)),
                        Paint(terminal, ColourOf(status.state), rules::RuleStateName(status.state)),
                        base::Counted(status.steps_judged, "step"));
    if (status.steps_incomplete > 0) text += fmt::format(", {} incomplete", status.steps_incomplete);
    text += "\n";
    for (const rules::Finding& finding : status.findings) {
      text += fmt::format("  step {}  {}\n", finding.global_step, FindingWords(finding));
    }
    if (!status.findings.empty()) continue;
    for (const std::string& line : base::SplitList(status.details, '\n'))
      text += "  " + Printable(line) + "\n";
  }
  return text;
}

int ExitCodeOfVerdicts(const std::vector<rules::RuleStatus>& statuses) {
  bool unjudged = false;
  for (const rules::RuleStatus& status : statuses) {
    if (status.state == rules::RuleState::kIssuesFound) return kExitIssues;
    unjudged = unjudged || status.state == rules::RuleState::kError;
  }
  return unjudged ? kExitNotJudged : kExitOk;
}

}  // namespace tdbg::cli
