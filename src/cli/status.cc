// tdbg status: a line for each rule, those with findings first; then the run. --verbose: SageMaker's four
// fields for each rule.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/stable_sort.h"
#include "base/text.h"
#include "cli/break.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/muted_scripts.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/terminal.h"
#include "rules/details.h"

namespace tdbg::cli {
namespace {

std::string Time(int64_t wall_nanos) {
  char buffer[32];
  return wall_nanos == 0 ? "-" : base::FormatUtc(wall_nanos, buffer);
}

constexpr int kLabelColumns = 10, kFieldColumns = 23;

bool IsAbandoned(const rules::RuleStatus& rule, const RunSummary& report) {
  return rule.state == rules::RuleState::kInProgress && !IsAlive(report);
}

std::string JudgeIt(const RunSummary& report) { return "tdbg check " + ShellWord(DisplayPath(report.path)); }

/// SageMaker's four fields.
void PrintWhole(const rules::RuleStatus& rule, const RunSummary& report, const Terminal& terminal) {
  Print("RuleConfigurationName  {}\n", Paint(terminal, Colour::kBold, Printable(rule.name)));
  Print("RuleEvaluationStatus   {}\n",
        Paint(terminal, ColourOf(rule.state), rules::RuleStateName(rule.state)));
  std::string details;
  for (const std::string& line : base::SplitList(rule.details, '\n'))
    details += (details.empty() ? "" : "\n") + Printable(line);
  if (details.empty())
    details = IsAbandoned(rule, report)
                  ? "nobody judged the run to its end; judge it with: " + JudgeIt(report)
                  : "-";
  Print("StatusDetails          {}\n", Wrapped(details, kFieldColumns));
  Print("LastModifiedTime       {}\n\n", Time(rule.last_modified_wall_nanos));
}

/// The order of the lines: the most important state first.
int Rank(const rules::RuleStatus& rule) {
  switch (rule.state) {
    case rules::RuleState::kIssuesFound:
      return 0;
    case rules::RuleState::kError:
      return rules::HadTooLittle(rule) ? 4 : 1;
    case rules::RuleState::kInProgress:
      return 2;
    case rules::RuleState::kStopped:
      return 3;
    case rules::RuleState::kNoIssuesFound:
      return rules::HadNothing(rule) ? 6 : 5;
  }
  return 6;
}

/// A rule's outcome behind its name and state, on one line.
std::string Outcome(const rules::RuleStatus& rule, const rules::RuleStatus* cause, const RunSummary& report) {
  if (!rule.findings.empty() && !rule.findings.front().detector.empty()) {
    const auto own = [&](const rules::Incident& incident) {
      return incident.rule == rule.name && !incident.muted();
    };
    const auto first = std::ranges::find_if(report.incidents, own);
    const auto count = std::ranges::count_if(report.incidents, own);
    if (first != report.incidents.end())
      return fmt::format("{}, {}: {}", base::Counted(static_cast<uint64_t>(count), "incident"),
                         report.names.Of(first->first_step), first->title);
    return rule.state == rules::RuleState::kInProgress ? "nothing that is not muted so far"
                                                       : "nothing that is not muted";
  }
  if (!rule.findings.empty()) {
    const rules::Finding& finding = rule.findings.front();
    std::string text = fmt::format("{}  {}", report.names.Of(finding.global_step), FindingWords(finding));
    if (rule.findings.size() > 1)
      text = fmt::format("{} at {}", base::Counted(rule.findings.size(), "tensor"), text);
    return cause == nullptr ? text : "follows from " + Printable(cause->name) + ", " + text;
  }
  if (rules::HadNothing(rule)) return "nothing to judge";
  if (IsAbandoned(rule, report)) return "not judged to the run's end: " + JudgeIt(report);
  // What a watcher that goes on has told does not say how far it is.
  if (rule.state == rules::RuleState::kInProgress) return "no finding so far";
  if (rule.state == rules::RuleState::kNoIssuesFound) {
    std::string text = base::Counted(rule.steps_judged, "step") + " judged";
    if (rule.steps_incomplete > 0) text += fmt::format(", {} incomplete", rule.steps_incomplete);
    return text;
  }
  std::string first = rule.details.substr(0, rule.details.find('\n'));
  if (rules::HadTooLittle(rule)) first = "needs " + first.substr(rules::kNotJudged.size());
  return Printable(first);
}

void PrintRules(const RunSummary& report, const Terminal& terminal) {
  if (report.rules.empty()) {
    Print("no rule was watching; judge the run with: {}\n\n", JudgeIt(report));
    return;
  }
  const std::vector<int> causes = rules::CausesOf(report.rules);
  std::vector<size_t> order(report.rules.size());
  std::iota(order.begin(), order.end(), size_t{0});
  base::StableSort(&order, [&](size_t a, size_t b) {
    const auto key = [&](size_t i) { return std::pair(Rank(report.rules[i]), causes[i] >= 0); };
    return key(a) < key(b);
  });
  constexpr int kStateColumns = 13;  // of "NoIssuesFound"
  int name_columns = 0;
  for (const rules::RuleStatus& rule : report.rules)
    name_columns = std::max(name_columns, DisplayWidth(Printable(rule.name)));
  for (const size_t i : order) {
    const rules::RuleStatus& rule = report.rules[i];
    const rules::RuleStatus* const cause =
        causes[i] < 0 ? nullptr : &report.rules[static_cast<size_t>(causes[i])];
    const std::string name = Printable(rule.name);
    const bool too_little = rules::HadTooLittle(rule);
    const bool nothing = rules::HadNothing(rule);
    const std::string state(too_little ? "not judged"
                            : nothing  ? "unused"
                                       : rules::RuleStateName(rule.state));
    const Colour colour = too_little ? Colour::kYellow : nothing ? Colour::kNone : ColourOf(rule.state);
    Print("{}{}  {}{}  {}\n", name, std::string(static_cast<size_t>(name_columns - DisplayWidth(name)), ' '),
          Paint(terminal, colour, state), std::string(kStateColumns - state.size(), ' '),
          Fit(Outcome(rule, cause, report),
              terminal.is_terminal ? std::max(20, kTextColumns - name_columns - kStateColumns - 4) : 0));
  }
  Print("\n");
}

void PrintLine(std::string_view label, const std::string& text) {
  Print("{:<{}}{}\n", label, kLabelColumns, Wrapped(text, kLabelColumns));
}

void PrintRun(const RunSummary& report) {
  bool told = false;  // the origin, by an incident
  for (const rules::Incident& incident : report.incidents) {
    if (incident.detector.empty()) continue;
    if (incident.muted()) {
      PrintLine("muted", MutedLine(incident, report.names));
      continue;
    }
    std::string_view label = "incident";
    for (const std::string& line : IncidentLines(incident, report.origins, report.names)) {
      PrintLine(label, line);
      label = "";
    }
    told |= IsExplained(incident, report.origins);
  }
  const std::vector<std::string> origins = OriginLines(report.origins, report.names);
  for (size_t i = told ? 1 : 0; i < origins.size(); ++i) PrintLine("origin", origins[i]);
  for (const watch::ActionOutcome& action : report.actions) {
    PrintLine("action",
              fmt::format("{}{} for {} at {}: {}", Printable(action.action),
                          action.target.empty() ? "" : " " + Printable(action.target), Printable(action.rule),
                          report.names.Of(action.global_step),
                          action.status.ok() ? "done" : "failed: " + Printable(action.status.message())));
  }
  PrintLine("state", StateWords(report));
  if (report.attempts.size() > 1) PrintLine("attempts", fmt::format("{}", fmt::join(report.attempts, ", ")));
  // Where all of them were on one machine, nobody asks which.
  std::set<std::string> hosts(report.hosts.begin(), report.hosts.end());
  hosts.erase("");
  if (hosts.size() > 1) {
    std::vector<std::string> places;
    for (size_t i = 0; i < report.attempts.size(); ++i) {
      if (!report.hosts[i].empty())
        places.push_back(fmt::format("attempt {} on {}", report.attempts[i], Printable(report.hosts[i])));
    }
    PrintLine("hosts", fmt::format("{}", fmt::join(places, ", ")));
  }
  constexpr size_t kMostStarts = 5;
  const size_t hidden = report.starts.size() - std::min(report.starts.size(), kMostStarts);
  if (hidden > 0) PrintLine("", fmt::format("{} earlier begins: --json", hidden));
  for (size_t i = hidden; i < report.starts.size(); ++i)
    PrintLine("began",
              fmt::format("attempt {} at step {}", report.starts[i].attempt, StartWords(report.starts[i])));
  const size_t first = report.checkpoints.size() - std::min(report.checkpoints.size(), kMostStarts);
  for (size_t i = first; i < report.checkpoints.size(); ++i) {
    const CheckpointReturn& back = report.checkpoints[i];
    PrintLine("restored", fmt::format("attempt {}'s checkpoints{}: {}", back.attempt,
                                      back.wiped ? ", which were wiped" : "", back.Words()));
  }
  if (!report.workers.empty())
    PrintLine("workers", Printable(fmt::format("{}", fmt::join(report.workers, ", "))));
  for (const auto& [worker, words] : FailureLines(report)) Print("{:<9} {}\n", worker, words);
  if (!report.why_nothing.empty()) PrintLine("captured", "nothing: " + report.why_nothing);
  if (report.steps > 0) {
    PrintLine("steps", fmt::format("{} ({} to {}; {} TRAIN, {} EVAL), last seen {} at {}", report.steps,
                                   report.first_step, report.last_step, report.train_steps, report.eval_steps,
                                   report.last_seen_step, Time(report.last_seen_wall_nanos)));
    PrintLine("kept", base::Counted(report.tensors, "tensor") + ", " + base::FormatBytes(report.bytes));
  }
  if (report.coarse_steps > 0) {
    PrintLine("coarse",
              fmt::format("{} between {} and {} {} no longer single: their rows were merged and dropped",
                          base::Counted(report.coarse_steps, "step"), report.coarse_first, report.coarse_last,
                          report.coarse_steps == 1 ? "is" : "are"));
  }
  if (report.dropped.empty() && report.damage.empty()) PrintLine("dropped", "nothing");
  for (const DroppedInfo& drop : report.dropped) PrintLine("dropped", DroppedLine(drop));
  for (const EmptyCollection& empty : report.empty_collections)
    PrintLine("empty", EmptyCollectionLine(empty, !IsAlive(report)));
  for (const std::string& line : OverheadLines(report)) PrintLine("overhead", line);
  for (const std::string& damage : report.damage) PrintLine("damaged", Printable(damage));
  Print("{:<{}}{}\n", "run", kLabelColumns, Printable(DisplayPath(report.path)));
}

class StatusCommand : public Command {
 public:
  std::string name() const override { return "status"; }
  std::string help() const override { return "what the rules say of a run, and how it is"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.AddFlag("--verbose", verbose_, "all that each rule says, in SageMaker's four fields");
    flags.AddFlag("--exit-code", exit_code_, "exit with 1 if a rule found issues");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_));
    TDBG_ASSIGN_OR_RETURN(const RunSummary report, SummariseRun(*trial, {}));
    NoteUnusableMutes(trial->path());
    const std::vector<watch::Held> held = watch::HeldWorkers(*trial);
    if (json_) {
      Json json = SummaryToJson(report);
      json["held"] = HeldToJson(held);
      PrintJson(json);
    } else {
      const Terminal terminal = Terminal::Of(STDOUT_FILENO);
      if (verbose_) {
        for (const rules::RuleStatus& rule : report.rules) PrintWhole(rule, report, terminal);
      }
      if (!verbose_ || report.rules.empty()) PrintRules(report, terminal);
      PrintRun(report);
      for (const watch::Held& h : held) {
        PrintLine("held",
                  Printable(fmt::format(
                      "{} after step {}, {} at most from {} on{}{}; tdbg continue {}", h.worker, h.after_step,
                      base::Counted(static_cast<uint64_t>(std::max<int64_t>(h.seconds, 0)), "second"),
                      Time(h.wall_nanos), h.because.empty() ? "" : ": ", h.because, ShellWord(run_))));
      }
      if (!verbose_ && !report.rules.empty())
        Print("{:<{}}tdbg status {} --verbose\n", "details", kLabelColumns,
              ShellWord(DisplayPath(report.path)));
    }
    const bool issues = std::any_of(
        report.rules.begin(), report.rules.end(),
        [](const rules::RuleStatus& rule) { return rule.state == rules::RuleState::kIssuesFound; });
    // Findings stand, even if other parts of the run cannot be read.
    if (exit_code_ && issues) return kExitIssues;
    TDBG_RETURN_IF_ERROR(CouldNotRead(report.damage));
    return kExitOk;
  }

 private:
  std::string run_;
  bool json_ = false, exit_code_ = false, verbose_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand() { return std::make_unique<StatusCommand>(); }

}  // namespace tdbg::cli
