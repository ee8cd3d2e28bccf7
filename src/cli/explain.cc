// tdbg explain: a run's incidents as a story: what was found, what shows it, what followed, what to do.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/muted_scripts.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/tensor_name.h"
#include "cli/terminal.h"
#include "cli/verdicts.h"
#include "rules/details.h"
#include "trial/step_name.h"

namespace tdbg::cli {
namespace {

constexpr size_t kMostLines = 20, kIncidentsShown = 3, kMutedShown = 3;
constexpr int kLabelColumns = 11;

using Values = std::vector<std::pair<int64_t, double>>;

// What the profile kept with a finding; of another rule's what the run shows of the tensor up to that step.
Values HistoryOf(const Trial& trial, const rules::Finding& finding, std::string* of) {
  if (!finding.history.empty()) {
    *of = finding.history_of;
    return finding.history;
  }
  if (finding.tensor.empty()) return {};
  const auto info = trial.tensor(finding.tensor);
  if (!info.ok()) return {};
  const bool one_number = info->kind == "scalar" || info->kind == "loss" || info->shape.empty();
  *of = one_number ? "value" : finding.measure == "nan_count" ? "nan_count" : "l2";
  const auto series = trial.series(finding.tensor, *of, finding.worker);
  if (!series.ok()) return {};
  Values values;
  for (size_t i = 0; i < series->steps.size() && series->steps[i] <= finding.global_step; ++i)
    values.emplace_back(series->steps[i], series->values[i]);
  if (values.size() > rules::kMostHistory)
    values.erase(values.begin(), values.end() - static_cast<ptrdiff_t>(rules::kMostHistory));
  return values;
}

bool LostBetween(const Trial& trial, int64_t first, int64_t last) {
  return std::ranges::any_of(trial.dropped(), [&](const DroppedInfo& drop) {
    return (drop.kind == "summary" || drop.kind == "step") && drop.cause != "unsupported" &&
           drop.first_step <= last && drop.last_step >= first;
  });
}

// "▁▂▃█ l2 of gradient/Net_l1.weight, steps 20 to 31: 0.12 to 3.4; norm of all gradients 210, expected at
// most 12"
std::string HistoryLine(const Trial& trial, const rules::Finding& finding) {
  std::string of;
  const Values history = HistoryOf(trial, finding, &of);
  if (history.empty()) return {};
  std::vector<double> values;
  for (const auto& [step, value] : history) values.push_back(value);
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const Terminal terminal = Terminal::Of(STDOUT_FILENO);
  std::string text = fmt::format(
      "{} {} of {}, {}: ", Sparkline(values, static_cast<int>(rules::kMostHistory), terminal.ascii), of,
      Printable(finding.tensor), StepSpan(history.front().first, history.back().first));
  text += !(most >= least) ? "none is finite"
          : most > least   ? fmt::format("{:.4g} to {:.4g}", least, most)
                           : fmt::format("{:.4g}", most);
  if (!std::isfinite(values.back()))
    text += fmt::format(", then {}", std::isnan(values.back()) ? "NaN" : "infinity");
  if (LostBetween(trial, history.front().first, history.back().first)) text += ", and some were dropped";
  if (const auto expected = rules::ExpectedOf(finding)) {
    text += fmt::format("; {} {:.4g}, expected {} {:.4g}", Printable(finding.measure), finding.value,
                        finding.comparison == ">"    ? "at most"
                        : finding.comparison == "<"  ? "at least"
                        : finding.comparison == ">=" ? "below"
                                                     : "above",
                        finding.threshold);
  }
  return text;
}

// They come before those that are muted.
size_t Heard(const std::vector<rules::Incident>& incidents) {
  return static_cast<size_t>(std::ranges::count_if(incidents, [](const auto& one) { return !one.muted(); }));
}

bool Concerns(const rules::Incident& incident, const std::string& tensor) {
  const auto of = [&](const rules::Finding& finding) {
    return finding.tensor == tensor || finding.tensor.ends_with("/" + tensor) ||
           finding.text.find(tensor) != std::string::npos;
  };
  return std::ranges::any_of(incident.evidence, of) || std::ranges::any_of(incident.consequences, of);
}

class ExplainCommand : public Command {
 public:
  std::string name() const override { return "explain"; }
  std::string help() const override { return "what happened to a run, why, and what to do: its incidents"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    const Flag step = flags.AddOption("--step", step_, "only what had begun by this global step");
    flags.AddOption("--tensor", tensor_, "only incidents in which this tensor has a part").Excludes(step);
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer("\nexit code: 0 no incident that is not muted, 1 incidents, 5 none in what could be read");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_));
    TDBG_ASSIGN_OR_RETURN(RunSummary report, SummariseToExplain(*trial));
    NoteUnusableMutes(trial->path());
    if (!tensor_.empty()) {
      TDBG_ASSIGN_OR_RETURN(const TensorInfo info, ResolveTensor(*trial, tensor_));
      std::erase_if(report.incidents, [&](const auto& incident) { return !Concerns(incident, info.name); });
    }
    if (step_ >= 0)
      std::erase_if(report.incidents, [&](const auto& incident) { return incident.first_step > step_; });
    if (json_) {
      PrintJson({{"run", LastingPlace(report.path)},
                 {"state", StateWords(report)},
                 {"incidents", IncidentsToJson(report.incidents, report.names)},
                 {"nan_origins", OriginsToJson(report.origins, report.names)}});
    } else {
      PrintStory(*trial, report);
    }
    const Status whole = CouldNotRead(trial->damage());  // judging reads more than the summary did
    if (Heard(report.incidents) == 0) {
      TDBG_RETURN_IF_ERROR(whole);
      return kExitOk;
    }
    // What was found stands, whatever else could not be read.
    if (!whole.ok()) Tell("tdbg: {}\n", whole.message());
    return kExitIssues;
  }

 private:
  void Line(std::string_view label, const std::string& text) {
    const std::string line = fmt::format("{:<{}}{}\n", label, kLabelColumns, Wrapped(text, kLabelColumns));
    const auto count = static_cast<size_t>(std::ranges::count(line, '\n'));
    if (lines_ + count > kMostLines) return;
    lines_ += count;
    Print("{}", line);
  }

  void PrintStory(const Trial& trial, const RunSummary& report) {
    const std::string run = ShellWord(DisplayPath(report.path));
    const rules::Judging judging = rules::JudgingOf(report.rules);
    const size_t heard = Heard(report.incidents), muted = report.incidents.size() - heard;
    const auto counted = heard == 0
                             ? judging.NothingJudged() && !IsAlive(report)
                                   ? std::string("nothing was judged")
                                   : "no incident" + (IsAlive(report) ? " so far" : judging.ByHowMany())
                             : base::Counted(static_cast<uint64_t>(heard), "incident");
    Line("run", fmt::format("{} ({}), {}: {}{}{}", Printable(report.name), StateWords(report),
                            base::Counted(static_cast<uint64_t>(report.steps), "step"), counted,
                            muted > 0 ? fmt::format(", {} muted", muted) : std::string(),
                            step_ >= 0         ? fmt::format(" up to step {}", step_)
                            : !tensor_.empty() ? " with " + Printable(tensor_)
                                               : std::string()));
    size_t number = 0;
    for (const rules::Incident& incident : report.incidents) {
      ++number;
      if (incident.muted()) {
        if (number - heard <= kMutedShown)
          Line(fmt::format("{}", number), "muted: " + MutedLine(incident, report.names));
        continue;
      }
      if (number > kIncidentsShown) {
        if (number == kIncidentsShown + 1)
          Line("", fmt::format("and {} more: tdbg explain {} --json", heard - kIncidentsShown, run));
        continue;
      }
      Line(fmt::format("{}", number), fmt::format("{} ({})", Printable(incident.title), incident.id));
      std::string_view label = "what";
      for (const std::string& line : IncidentLines(incident, report.origins, report.names)) {
        Line(label, line);
        label = "";
      }
      if (const std::string history = HistoryLine(trial, incident.evidence.front()); !history.empty())
        Line("history", history);
      if (number == 1 && !incident.tensor.empty())
        Line("look", fmt::format("tdbg show {} {} --steps {}:{}", run, ShellWord(incident.tensor),
                                 std::max<int64_t>(0, incident.first_step - 10), incident.first_step + 5));
    }
    for (const rules::RuleStatus& rule : report.rules) {
      if (rule.state == rules::RuleState::kError) Line("not judged", Printable(rule.details));
      if (rule.state == rules::RuleState::kInProgress && !IsAlive(report))
        Line("not judged", fmt::format("to the run's end by {}: tdbg check {}", Printable(rule.name), run));
      // What is muted stands above.
      if (rule.state == rules::RuleState::kNoIssuesFound && !rule.details.empty() && rule.findings.empty())
        Line("remark", Printable(rule.details.substr(0, rule.details.find('\n'))));
    }
  }

  std::string run_, tensor_;
  int64_t step_ = -1;
  size_t lines_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace tdbg::cli
