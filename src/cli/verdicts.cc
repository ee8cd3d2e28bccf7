#include "cli/verdicts.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/exit_codes.h"
#include "cli/run_summary.h"
#include "rules/details.h"
#include "watch/replay.h"

namespace tdbg::cli {

std::string FormatVerdicts(const std::vector<rules::RuleStatus>& statuses, const StepNames& names,
                           const Terminal& terminal) {
  std::string text;
  const std::vector<int> causes = rules::CausesOf(statuses);
  for (size_t i = 0; i < statuses.size(); ++i) {
    const rules::RuleStatus& status = statuses[i];
    text += fmt::format("{}  {}, {} judged", Paint(terminal, Colour::kBold, Printable(status.name)),
                        Paint(terminal, ColourOf(status.state), rules::RuleStateName(status.state)),
                        base::Counted(status.steps_judged, "step"));
    if (status.steps_incomplete > 0) text += fmt::format(", {} incomplete", status.steps_incomplete);
    text += "\n";
    if (causes[i] >= 0)
      text += "  follows from what " + Printable(statuses[static_cast<size_t>(causes[i])].name) + " found\n";
    // The incidents have said it.
    if (!status.findings.empty() && !status.findings.front().detector.empty()) continue;
    for (const rules::Finding& finding : status.findings) {
      const std::string step = fmt::format("  {}  ", names.Of(finding.global_step));
      text += step + Wrapped(FindingWords(finding), DisplayWidth(step)) + "\n";
      if (!finding.measure.empty() && !finding.text.empty())
        text += "  " + Wrapped(Printable(finding.text), 2) + "\n";
    }
    if (!status.findings.empty()) continue;
    for (const std::string& line : base::SplitList(status.details, '\n'))
      text += "  " + Wrapped(Printable(line), 2) + "\n";
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

Result<std::vector<rules::RuleStatus>> JudgeByProfile(Trial& trial) {
  plan::RuleConfig profile;
  profile.rule = "Profile";
  profile.optional = true;
  return watch::Replay(trial, {profile}, base::SystemClock().WallNanos());
}

Result<RunSummary> SummariseToExplain(Trial& trial) {
  TDBG_ASSIGN_OR_RETURN(RunSummary report, SummariseRun(trial, {}));
  if (!report.rules.empty()) return report;
  TDBG_ASSIGN_OR_RETURN(report.rules, JudgeByProfile(trial));
  report.incidents = rules::IncidentsOf(report.rules);
  watch::Explain(&report.incidents, report.origins);
  report.names = NamesFor(trial, report.rules, report.origins);
  return report;
}

}  // namespace tdbg::cli
