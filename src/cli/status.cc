// tdbg status: per rule, in the order given, SageMaker's four fields; then the run.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/run_path.h"

namespace tdbg::cli {
namespace {

std::string Indented(const std::string& text, std::string_view indent) {
  std::string out;
  for (const std::string& line : base::SplitList(text, '\n')) {
    out += std::string(out.empty() ? "" : "\n") + (out.empty() ? "" : std::string(indent)) + Printable(line);
  }
  return out;
}

std::string Time(int64_t wall_nanos) {
  char buffer[32];
  return wall_nanos == 0 ? "-" : base::FormatUtc(wall_nanos, buffer);
}

void PrintText(const Report& report, const Terminal& terminal) {
  for (const rules::RuleStatus& rule : report.rules) {
    Print("RuleConfigurationName  {}\n", Paint(terminal, Colour::kBold, Printable(rule.name)));
    Print("RuleEvaluationStatus   {}\n",
          Paint(terminal, ColourOf(rule.state), rules::RuleStateName(rule.state)));
    const bool abandoned = rule.state == rules::RuleState::kInProgress && !IsAlive(report);
    const std::string details = rule.details.empty() && abandoned
                                    ? "nobody judged the run to its end; judge it with: tdbg check " +
                                          ShellWord(DisplayPath(report.path))
                                    : rule.details;
    Print("StatusDetails          {}\n", details.empty() ? "-" : Indented(details, std::string(23, ' ')));
    Print("LastModifiedTime       {}\n\n", Time(rule.last_modified_wall_nanos));
  }
  if (report.rules.empty())
    Print("no rule was watching; judge the run with: tdbg check {}\n\n", ShellWord(DisplayPath(report.path)));
  for (const watch::ActionOutcome& action : report.actions) {
    Print("action    {}{} for {} at step {}: {}\n", Printable(action.action),
          action.target.empty() ? "" : " " + Printable(action.target), Printable(action.rule),
          action.global_step, action.status.ok() ? "done" : "failed: " + Printable(action.status.message()));
  }
  Print("state     {}\n", StateWords(report));
  if (report.attempts.size() > 1) Print("attempts  {}\n", fmt::join(report.attempts, ", "));
  if (!report.workers.empty())
    Print("workers   {}\n", Printable(fmt::format("{}", fmt::join(report.workers, ", "))));
  for (const auto& [worker, words] : FailureLines(report)) Print("{:<9} {}\n", worker, words);
  if (!report.why_nothing.empty()) Print("captured  nothing: {}\n", report.why_nothing);
  if (report.steps > 0) {
    Print("steps     {} ({} to {}; {} TRAIN, {} EVAL), last seen {} at {}\n", report.steps, report.first_step,
          report.last_step, report.train_steps, report.eval_steps, report.last_seen_step,
          Time(report.last_seen_wall_nanos));
    Print("kept      {}, {}\n", base::Counted(report.tensors, "tensor"), base::FormatBytes(report.bytes));
  }
  if (report.losses.empty() && report.damage.empty()) Print("lost      nothing\n");
  for (const LossInfo& loss : report.losses) {
    Print("lost      {} by {}", Printable(CountOfLoss(loss)), Printable(loss.cause));
    if (loss.bytes > 0) Print(", {}", base::FormatBytes(loss.bytes));
    if (loss.first_step >= 0) Print(", steps {} to {}", loss.first_step, loss.last_step);
    Print(" ({}){}{}\n", Printable(loss.worker), loss.text.empty() ? "" : ": ", Printable(loss.text));
  }
  for (const std::string& damage : report.damage) Print("damaged   {}\n", Printable(damage));
  Print("run       {}\n", Printable(DisplayPath(report.path)));
}

class StatusCommand : public Command {
 public:
  std::string name() const override { return "status"; }
  std::string help() const override { return "what the rules say of a run, and how it is"; }
  void Define(CLI::App& app) override {
    app.add_option("RUN", run_, "a path, a name under ./tdbg-runs, or last")->required();
    app.add_flag("--json", json_, "one JSON document on stdout");
    app.add_flag("--exit-code", exit_code_, "exit with 1 if a rule found issues");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_));
    TDBG_ASSIGN_OR_RETURN(const Report report, MakeReport(*trial, {}));
    if (json_)
      PrintJson(ReportToJson(report));
    else
      PrintText(report, Terminal::Of(STDOUT_FILENO));
    const bool issues = std::any_of(
        report.rules.begin(), report.rules.end(),
        [](const rules::RuleStatus& rule) { return rule.state == rules::RuleState::kIssuesFound; });
    // What a rule found in what can be read stands, whatever else there was.
    if (exit_code_ && issues) return kExitIssues;
    TDBG_RETURN_IF_ERROR(CouldNotRead(report.damage));
    return kExitOk;
  }

 private:
  std::string run_;
  bool json_ = false, exit_code_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand() { return std::make_unique<StatusCommand>(); }

}  // namespace tdbg::cli
