// The summary at the end of `tdbg run`, for a user who wants to know what to do now.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/black_boxes.h"
#include "cli/muted_scripts.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "rules/details.h"
#include "rules/rule.h"

namespace tdbg::cli {
namespace {

constexpr size_t kMaxTensorsShown = 3;
constexpr size_t kMaxCommands = 4;
constexpr int kLabelColumns = 13;
constexpr int64_t kStepsBefore = 10, kStepsAfter = 5;

// What the headline says; the state in brackets only where it adds something.
std::string Headline(const RunSummary& report, const Terminal& terminal) {
  const std::string words = StateWords(report);
  const std::string state = Failed(report) ? "; the command " + words : " (" + words + ")";
  const auto muted = static_cast<size_t>(
      std::ranges::count_if(report.incidents, [](const rules::Incident& one) { return one.muted(); }));
  if (report.incidents.size() > muted) {
    const rules::Incident& incident = report.incidents.front();
    const bool stopped =
        report.ending && report.ending->stop == "requested" && report.ending->stopped_by == incident.rule;
    // Findings of NaN or infinity are that origin's consequences; others came later than it.
    const bool later = incident.detector.empty() && !report.origins.empty() && report.origins.front().seen &&
                       report.origins.front().global_step < incident.first_step;
    const bool explained = (IsExplained(incident, report.origins) || later) && !stopped;
    std::string line = Printable(explained ? report.origins.front().title : incident.title);
    line +=
        fmt::format("{} at {}", incident.detector.empty() && !explained ? "" : ",",
                    report.names.Of(explained ? report.origins.front().global_step : incident.first_step));
    if (stopped)
      line += incident.detector.empty() ? " and stopped the training" : ": the training was stopped";
    if (const size_t more = report.incidents.size() - muted - 1; more > 0 && !incident.detector.empty())
      line += fmt::format(", and {}", base::Counted(more, "further incident"));
    return Paint(terminal, Colour::kRed, line) + (stopped ? "" : state);
  }
  if (!report.why_nothing.empty()) return Paint(terminal, Colour::kYellow, "nothing was captured") + state;
  const bool known = std::ranges::any_of(
      report.incidents, [](const rules::Incident& one) { return one.muted() && one.nonfinite; });
  if (!known && !report.origins.empty() &&
      report.origins.front().seen) {  // found by no rule, as a NaN that was raised
    const watch::Origin& origin = report.origins.front();
    return Paint(terminal, Colour::kRed,
                 fmt::format("{}, at {}", Printable(origin.title), report.names.Of(origin.global_step))) +
           state;
  }
  if (report.rules.empty()) return "no rule was watching" + state;
  for (const rules::RuleStatus& rule : report.rules) {
    if (rule.state == rules::RuleState::kError && !rules::HadTooLittle(rule))
      return Paint(terminal, Colour::kYellow, "a rule could not be judged") + state;
  }
  const rules::Judging judging = rules::JudgingOf(report.rules);
  if (judging.NothingJudged()) return Paint(terminal, Colour::kYellow, "nothing to judge") + state;
  const std::string besides =
      muted == 0 ? "" : fmt::format(", {} muted", base::Counted(muted, "incident is", "incidents are"));
  return "no issue found" + judging.ByHowMany() + besides + state;
}

std::string Labelled(std::string_view label, std::string_view text) {
  return fmt::format("  {:<{}}{}\n", label, kLabelColumns, Wrapped(text, kLabelColumns + 2));
}

std::string Indented(const std::string& text, const std::string& indent) {
  return indent + Wrapped(Printable(text), static_cast<int>(indent.size())) + "\n";
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// `cause`: the rule whose finding this one's follows from, or null.
// `explained`: an origin above says where what it found came from.
std::string RuleLines(const rules::RuleStatus& rule, const rules::RuleStatus* cause, bool explained,
                      const StepNames& names, const Terminal& terminal, size_t name_columns) {
  if (cause != nullptr) {
    const std::string_view state = rules::RuleStateName(rule.state);
    const std::string name = fmt::format("  {:<{}}  ", Printable(rule.name), name_columns);
    const std::string what =
        fmt::format(", follows from what {} found: {}  {}", Printable(cause->name),
                    names.Of(rule.findings.front().global_step), FindingWords(rule.findings.front()));
    // Coloured after line breaking, since colour codes take no columns.
    const std::string lines = Wrapped(std::string(state) + what, DisplayWidth(name));
    return name + Paint(terminal, ColourOf(rule.state), state) + lines.substr(state.size()) + "\n";
  }
  const std::string indent(name_columns + 4, ' ');
  if (rules::HadTooLittle(rule)) {
    return fmt::format("  {:<{}}  {}\n", Printable(rule.name), name_columns,
                       Paint(terminal, Colour::kYellow, "not judged")) +
           Indented("it needs " + FirstLine(rule.details.substr(rules::kNotJudged.size())), indent);
  }
  std::string text = fmt::format("  {:<{}}  {}, {} judged", Printable(rule.name), name_columns,
                                 Paint(terminal, ColourOf(rule.state), rules::RuleStateName(rule.state)),
                                 base::Counted(rule.steps_judged, "step"));
  if (rule.steps_incomplete > 0) {
    text += fmt::format(", {} incomplete (what they needed was lost)",
                        base::Counted(rule.steps_incomplete, "step"));
  }
  text += "\n";
  // The incidents above have shown it.
  if (!rule.findings.empty() && !rule.findings.front().detector.empty()) return text;
  const size_t most_shown = explained ? 1 : kMaxTensorsShown;
  size_t shown = 0;
  for (const rules::Finding& finding : rule.findings) {
    if (shown++ == most_shown) {
      text += fmt::format("{}and {} more{}\n", indent, rule.findings.size() - most_shown,
                          explained ? " that follow from it" : "");
      break;
    }
    const std::string step = names.Of(finding.global_step) + "  ";
    text +=
        indent + step + Wrapped(FindingWords(finding), static_cast<int>(indent.size() + step.size())) + "\n";
    if (!finding.measure.empty() && !finding.text.empty()) text += Indented(finding.text, indent);
  }
  const bool unexplained = rule.findings.empty() && rule.state != rules::RuleState::kNoIssuesFound &&
                           rule.state != rules::RuleState::kInProgress;
  const bool remarked = rule.state == rules::RuleState::kNoIssuesFound;
  if ((unexplained || remarked) && !rule.details.empty()) text += Indented(FirstLine(rule.details), indent);
  return text;
}

std::string AllDropped(const RunSummary& report) {
  if (report.dropped.empty()) return "nothing";
  std::string text;
  for (const DroppedInfo& drop : report.dropped) {
    if (!text.empty()) text += "\n";
    text += DroppedWords(drop);
    if (!drop.text.empty()) text += ": " + Printable(drop.text);
  }
  return text;
}

// What a finding makes people ask, the most useful first.
std::vector<std::string> CommandsAfterFindings(const RunSummary& report, const std::string& run) {
  std::vector<std::string> commands;
  const auto heard = [](const rules::Incident& one) { return !one.muted(); };
  if (std::ranges::any_of(report.incidents, heard)) commands.push_back("explain " + run);
  if (!BlackBoxesOf(report.path).empty()) commands.push_back("replay " + run);
  const auto incident =
      std::ranges::find_if(report.incidents, [](const auto& i) { return !i.tensor.empty() && !i.muted(); });
  if (incident != report.incidents.end()) {
    // The steps that led there, and the few that followed.
    commands.push_back(fmt::format("show {} {} --steps {}:{}", run, ShellWord(incident->tensor),
                                   std::max<int64_t>(0, incident->first_step - kStepsBefore),
                                   incident->first_step + kStepsAfter));
  }
  const auto rule = std::ranges::find_if(report.rules, [](const rules::RuleStatus& r) {
    const auto info = rules::BuiltinRules().Find(r.rule);
    return !r.findings.empty() && info.ok() && (*info)->listed;
  });
  if (rule != report.rules.end())
    commands.push_back("rules show " + (*rules::BuiltinRules().Find(rule->rule))->snake_name);
  if (!commands.empty()) commands.push_back("report " + run);
  return commands;
}

std::string Commands(const RunSummary& report) {
  const std::string run = ShellWord(DisplayPath(report.path));
  std::vector<std::string> commands = CommandsAfterFindings(report, run);
  if (commands.empty()) {
    // The rules that watched found nothing, or could not judge: other rules may.
    if (report.steps > 0) commands.push_back("check " + run);
    commands.push_back("status " + run);
    if (report.tensors > 0) commands.push_back("tensors " + run);
  }
  if (commands.size() > kMaxCommands) commands.resize(kMaxCommands);
  std::string text;
  for (const std::string& command : commands)
    text += fmt::format("  {:<{}}tdbg {}\n", text.empty() ? "next" : "", kLabelColumns, command);
  return text;
}

}  // namespace

std::string FormatSummary(const RunSummary& report, const Terminal& terminal) {
  std::string text = fmt::format("\ntdbg: {}\n", Headline(report, terminal));
  size_t name_columns = 0;
  for (const rules::RuleStatus& rule : report.rules)
    name_columns = std::max(name_columns, Printable(rule.name).size());
  if (!report.why_nothing.empty()) {
    // Nothing was captured, so no rule judged anything: listing the rules would only bury the reason.
    text += Labelled("why", report.why_nothing);
  } else {
    bool told = false;  // the origin, by an incident
    for (const rules::Incident& incident : report.incidents) {
      if (incident.detector.empty()) continue;
      if (incident.muted()) {
        text += Labelled("muted", MutedLine(incident, report.names));
        continue;
      }
      std::string_view label = "incident";
      for (const std::string& line : IncidentLines(incident, report.origins, report.names)) {
        text += Labelled(label, line);
        label = "";
      }
      told |= IsExplained(incident, report.origins);
    }
    const std::vector<std::string> origins = OriginLines(report.origins, report.names);
    for (size_t i = told ? 1 : 0; i < origins.size(); ++i) text += Labelled("origin", origins[i]);
    const std::vector<int> causes = rules::CausesOf(report.rules);
    const bool nothing_judged = rules::JudgingOf(report.rules).NothingJudged();
    std::string nothing;
    for (size_t i = 0; i < report.rules.size(); ++i) {
      const rules::RuleStatus& rule = report.rules[i];
      if (rules::HadNothing(rule)) {
        nothing += (nothing.empty() ? "" : nothing_judged ? "; " : ", ") + rule.name;
        if (nothing_judged) nothing += ", which needs " + rule.details.substr(rules::kNothingToJudge.size());
        continue;
      }
      const rules::RuleStatus* const cause =
          causes[i] < 0 ? nullptr : &report.rules[static_cast<size_t>(causes[i])];
      const bool explained =
          !report.origins.empty() && report.origins.front().seen && rules::FollowsNonfinite(rule);
      text += RuleLines(rule, cause, explained, report.names, terminal, name_columns);
    }
    if (!nothing.empty()) text += Labelled("unused", "nothing to judge for " + nothing);
    std::string captured =
        report.steps == 0 ? "no complete step" : StepSpan(report.first_step, report.last_step);
    if (report.eval_steps > 0)
      captured += fmt::format(" ({} TRAIN, {} EVAL)", report.train_steps, report.eval_steps);
    captured +=
        fmt::format(" of {}, {}", base::Counted(report.tensors, "tensor"), base::FormatBytes(report.bytes));
    if (report.workers.size() > 1) captured += fmt::format(", {} workers", report.workers.size());
    text += Labelled("captured", captured);
    text += Labelled("dropped", AllDropped(report));
  }
  if (Failed(report) && report.ending->exit_code == 128 + SIGKILL) {
    text += Labelled("killed",
                     "by a SIGKILL that tdbg did not send: most often the kernel's or the container's "
                     "out-of-memory killer; dmesg, or whoever runs the container, can tell");
  }
  for (const auto& [worker, words] : FailureLines(report)) text += Labelled(worker, words);
  for (const EmptyCollection& empty : report.empty_collections)
    text += Labelled("empty", EmptyCollectionLine(empty, !IsAlive(report)));
  for (const std::string& line : OverheadLines(report)) text += Labelled("overhead", line);
  for (const std::string& damage : report.damage) text += Labelled("damaged", Printable(damage));
  for (const ExportOutcome& done : report.exports) {
    text += Labelled(Printable(done.to),
                     done.ok ? Printable(fmt::format("{}: {}", DisplayPath(done.path), done.text))
                             : Paint(terminal, Colour::kYellow, "stopped: ") + Printable(done.text));
  }
  text += Commands(report);
  text += fmt::format("  {:<{}}{}\n", "run", kLabelColumns, Printable(DisplayPath(report.path)));
  return text;
}

}  // namespace tdbg::cli
