// tdbg steps: which steps a run has, what is kept of each, and whom it still waits for.
#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "trial/coarse.h"
#include "trial/mode_name.h"

namespace tdbg::cli {
namespace {

class StepsCommand : public Command {
 public:
  std::string name() const override { return "steps"; }
  std::string help() const override {
    return "steps by mode, global and the mode's own, and what is kept of each";
  }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("--mode", mode_, "only steps of this mode: train, eval or predict").TypeName("MODE");
    flags.AddOption("--steps", steps_, "global steps from A up to, not including, B").TypeName("A:B");
    flags
        .AddOption("--kind", kind_,
                   "only steps with these: raw values, summary (statistics), saved (by a SaveConfig), "
                   "histogram")
        .OneOf({"any", "raw", "summary", "saved", "histogram"});
    AddAttempt(flags, attempt_);
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    StepFilter filter{.incomplete = true};
    TDBG_ASSIGN_OR_RETURN(const StepRange range, ParseStepRange(steps_));
    filter.begin = range.begin;
    if (range.end >= 0) filter.end = range.end;
    if (kind_ == "raw") filter.kind = StepKind::kRaw;
    if (kind_ == "summary") filter.kind = StepKind::kSummary;
    if (kind_ == "saved") filter.kind = StepKind::kSaved;
    if (kind_ == "histogram") filter.kind = StepKind::kHistogram;
    ModeKey wanted = ModeKey::kGlobal;
    if (!mode_.empty()) {
      bool known = false;
      for (const ModeKey mode : {ModeKey::kTrain, ModeKey::kEval, ModeKey::kPredict}) {
        if (::strcasecmp(mode_.c_str(), ModeName(mode).data()) == 0) {  // of a literal, hence with its end
          wanted = mode;
          known = true;
        }
      }
      if (!known) return InvalidArgument("--mode: found \"" + mode_ + "\", accepted: train, eval, predict");
    }
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_, attempt_));
    std::vector<StepInfo> steps;
    for (const int64_t step : trial->steps(filter)) {
      const auto info = trial->step(step);
      if (info && (wanted == ModeKey::kGlobal || info->mode == wanted)) steps.push_back(*info);
    }
    if (steps.empty() && !trial->steps(StepFilter{.incomplete = true}).empty()) {
      return NotFound(
          fmt::format("none of the run's steps is asked for; `tdbg steps {}` lists them", ShellWord(run_)));
    }
    if (json_) {
      PrintAsText(*trial, steps);
    } else if (steps.empty()) {
      Tell("tdbg: the run holds no steps yet; tdbg status {} says why\n", ShellWord(run_));
    } else {
      PrintTable(*trial, steps);
    }
    TDBG_RETURN_IF_ERROR(CouldNotRead(trial->damage()));
    return kExitOk;
  }

 private:
  /// Rows of it were dropped, since coarse ones tell of it.
  static bool IsThinned(const Trial& trial, int64_t global_step) {
    const auto at = TrialAccess(trial).FindStep(global_step);
    return at && CoarseRows(trial).IsThinned(*at);
  }
  static void PrintAsText(const Trial& trial, const std::vector<StepInfo>& steps) {
    Json modes = Json::object(), list = Json::array();
    for (const ModeKey mode : trial.modes()) {
      const std::vector<int64_t> own = trial.steps(mode);
      modes[std::string(ModeName(mode))] = {{"steps", own.size()},
                                            {"first", own.empty() ? Json() : Json(own.front())},
                                            {"last", own.empty() ? Json() : Json(own.back())}};
    }
    for (const StepInfo& s : steps) {
      Json entry = {{"global_step", s.global_step},
                    {"mode", ModeName(s.mode)},
                    {"mode_step", s.mode_step},
                    {"time", JsonTime(s.wall_nanos)},
                    {"raw_values", s.raw_values},
                    {"statistics", s.summaries},
                    {"skipped", s.skipped},
                    {"complete", s.complete},
                    {"merged", IsThinned(trial, s.global_step)}};
      if (!s.complete) entry["missing_workers"] = trial.missing_workers(s.global_step);
      list.push_back(std::move(entry));
    }
    PrintJson({{"modes", modes}, {"last_complete_step", trial.last_complete_step()}, {"steps", list}});
  }

  static void PrintTable(const Trial& trial, const std::vector<StepInfo>& steps) {
    const Terminal terminal = Terminal::Of(STDOUT_FILENO);
    for (const ModeKey mode : trial.modes()) {
      const std::vector<int64_t> own = trial.steps(mode);
      if (!own.empty())
        Print("{}: {}, {} to {}\n", Paint(terminal, Colour::kBold, ModeName(mode)),
              base::Counted(own.size(), "step"), own.front(), own.back());
    }
    Table table({"STEP", "MODE", "MODE_STEP", "RAW", "STATISTICS", "REMARKS"});
    for (const size_t column : {0, 2, 3, 4}) table.AlignRight(column);
    size_t left_out = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool shown = !terminal.is_terminal || steps.size() <= kMostRowsOnTerminal ||
                         i < kMostRowsOnTerminal / 2 || i >= steps.size() - kMostRowsOnTerminal / 2;
      if (!shown) {
        if (left_out++ == 0) table.Add({"..."});
        continue;
      }
      const StepInfo& s = steps[i];
      std::string remarks = s.skipped ? "skipped by AMP" : "";
      if (IsThinned(trial, s.global_step)) remarks += remarks.empty() ? "merged" : "; merged";
      if (!s.complete) {
        remarks +=
            (remarks.empty() ? "" : "; ") +
            Printable(fmt::format("waits for {}", fmt::join(trial.missing_workers(s.global_step), ", ")));
      }
      table.Add({std::to_string(s.global_step), std::string(ModeName(s.mode)), std::to_string(s.mode_step),
                 std::to_string(s.raw_values), std::to_string(s.summaries), remarks});
    }
    Print("{}", table.Format(terminal));
    if (left_out > 0)
      Tell("{} left out; --steps A:B shows a part, | cat shows all\n", base::Counted(left_out, "step"));
  }

  std::string run_, mode_, steps_, kind_ = "any";
  int64_t attempt_ = -1;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStepsCommand() { return std::make_unique<StepsCommand>(); }

}  // namespace tdbg::cli
