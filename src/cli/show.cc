// tdbg show: one tensor over the steps: statistics, one field of them, or values.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "base/text.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/step_statistics.h"
#include "cli/tensor_name.h"
#include "cli/terminal.h"
#include "tensor/magnitude.h"
#include "trial/coarse.h"
#include "trial/elements.h"
#include "trial/step_name.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kEdgeItems = 3;

std::string Number(double value) { return fmt::format("{:.6g}", value); }

class ShowCommand : public Command {
 public:
  std::string name() const override { return "show"; }
  std::string help() const override { return "statistics or values of one tensor, step by step"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("TENSOR", tensor_, "its name, or a part of it that no other tensor has").Required();
    flags.AddOption("--steps", steps_, "global steps from A up to, not including, B").TypeName("A:B");
    flags.AddOption("--field", field_, "only this statistic: mean, variance, l2, abs_max, nan_count, ...")
        .TypeName("FIELD");
    flags.AddOption("--worker", worker_, "of this worker; default: the lowest rank").TypeName("NAME");
    AddAttempt(flags, attempt_);
    flags.AddFlag("--raw", raw_, "the values themselves, where they were kept");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    if (raw_ && !field_.empty())
      return InvalidArgument("show: --raw and --field exclude each other; leave one out");
    TDBG_ASSIGN_OR_RETURN(range_, ParseStepRange(steps_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_, attempt_));
    const Result<int> shown = Show(*trial);
    const Status whole = CouldNotRead(trial->damage());
    if (whole.ok() || (!shown.ok() && shown.status().code() != Code::kNotFound)) return shown;
    // Something that is missing may be what could not be read.
    return shown.ok() ? whole : whole.Annotate(shown.status().message());
  }

 private:
  Result<int> Show(Trial& trial) const {
    TDBG_ASSIGN_OR_RETURN(const TensorInfo info, ResolveTensor(trial, tensor_));
    if (raw_ || info.kind == kStatisticKind) return ShowRaw(trial, info);
    return field_.empty() ? ShowStatistics(trial, info) : ShowField(trial, info);
  }
  Result<std::vector<int64_t>> StepsOf(Trial& trial, const TensorInfo& info, StepKind kind) const;
  Result<int> ShowStatistics(Trial& trial, const TensorInfo& info) const;
  Result<int> ShowField(Trial& trial, const TensorInfo& info) const;
  Result<int> ShowRaw(Trial& trial, const TensorInfo& info) const;
  void PrintHead(const TensorInfo& info, const Terminal& terminal) const;
  void PrintSeries(const Terminal& terminal, std::string_view what, const std::vector<double>& values) const;

  std::string run_, tensor_, steps_, field_, worker_;
  StepRange range_;
  int64_t attempt_ = -1;
  bool raw_ = false, json_ = false;
};

Result<std::vector<int64_t>> ShowCommand::StepsOf(Trial& trial, const TensorInfo& info, StepKind kind) const {
  TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> all, trial.tensor_steps(info.name, kind));
  std::vector<int64_t> steps;
  for (const int64_t step : all) {
    if (range_.Holds(step)) steps.push_back(step);
  }
  if (!steps.empty()) return steps;
  const char* what = kind == StepKind::kRaw ? "values" : "statistics";
  if (!all.empty()) {
    const auto first = TrialAccess(trial).FindStep(range_.begin);
    const bool dropped = first && CoarseRows(trial).IsThinned(*first);
    return NotFound(fmt::format("{}: no {} in --steps {}{}; they are kept for {} from {} to {}", info.name,
                                what, steps_, dropped ? " (dropped to keep the run within its budget)" : "",
                                base::Counted(all.size(), "step"), all.front(), all.back()));
  }
  return NotFound(kind == StepKind::kRaw
                      ? info.name +
                            ": no values were kept, only statistics; keep them with --collect NAME:INTERVAL"
                      : info.name + ": no statistics were kept; try --raw");
}

void ShowCommand::PrintHead(const TensorInfo& info, const Terminal& terminal) const {
  Print("{}  {} [{}]{}  {}\n", Paint(terminal, Colour::kBold, Printable(info.name)),
        info.dtype == DType::kInvalid ? "no values," : DTypeName(info.dtype), fmt::join(info.shape, ", "),
        IsComplex(info.dtype) && !raw_ ? ", statistics of |x|" : "",
        Printable(fmt::format("{}", fmt::join(info.collections, ","))));
}

void ShowCommand::PrintSeries(const Terminal& terminal, std::string_view what,
                              const std::vector<double>& values) const {
  if (!terminal.is_terminal || values.size() < 2) return;
  const std::string label = fmt::format("{} ", what);
  const std::string ends = fmt::format(" {} .. {}", Number(values.front()), Number(values.back()));
  const int columns = terminal.columns - DisplayWidth(label) - DisplayWidth(ends) - 1;
  if (columns < 8) return;
  Print("{}{}{}\n", label, Paint(terminal, Colour::kCyan, Sparkline(values, columns, terminal.ascii)), ends);
}

Result<int> ShowCommand::ShowStatistics(Trial& trial, const TensorInfo& info) const {
  // Final weights, and what a script recorded after its last step.
  const Result<Summary> at_end = steps_.empty() ? trial.final_summary(info.name, worker_)
                                                : Result<Summary>(NotFound("the end is no step"));
  auto found = StepsOf(trial, info, StepKind::kAny);
  if (!found.ok() && !(at_end.ok() && found.status().code() == Code::kNotFound)) return found.status();
  const std::vector<int64_t> steps = found.ok() ? *std::move(found) : std::vector<int64_t>();
  TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> histograms,
                        trial.tensor_steps(info.name, StepKind::kHistogram));
  const Terminal terminal = Terminal::Of(STDOUT_FILENO);
  StepStatistics found_at(trial, info, worker_, terminal, steps.size());
  for (const int64_t step : steps)
    TDBG_RETURN_IF_ERROR(found_at.Add(step, std::ranges::binary_search(histograms, step)));
  if (at_end.ok()) found_at.AddEnd(*at_end);
  if (json_) {
    Json document = {{"tensor", info.name},
                     {"dtype", DTypeName(info.dtype)},
                     {"shape", info.shape},
                     {"steps", found_at.steps()}};
    if (IsComplex(info.dtype)) document["statistics_of"] = "magnitude";
    if (at_end.ok()) document["end"] = found_at.end();
    PrintJson(document);
    return kExitOk;
  }
  PrintHead(info, terminal);
  if (found_at.only_reductions()) {
    Print("{}", found_at.Format());
    return kExitOk;
  }
  if (found_at.picture().empty() && !at_end.ok()) {
    Tell("tdbg: only raw values are kept of it; add --raw to see them\n");
    return kExitOk;
  }
  PrintSeries(terminal, found_at.picture_of(), found_at.picture());
  if (!histograms.empty()) {
    Print("histograms at {} from {} to {} (tdbg steps --kind histogram)\n",
          base::Counted(histograms.size(), "step"), histograms.front(), histograms.back());
  }
  Print("{}", found_at.Format());
  if (found_at.left_out() > 0)
    Tell("{} left out; --steps A:B shows a part, | cat shows all\n",
         base::Counted(found_at.left_out(), "step"));
  return kExitOk;
}

Result<int> ShowCommand::ShowField(Trial& trial, const TensorInfo& info) const {
  TDBG_ASSIGN_OR_RETURN(const Trial::Series series, trial.series(info.name, field_, worker_));
  const Terminal terminal = Terminal::Of(STDOUT_FILENO);
  Json list = Json::array();
  std::vector<double> picture;
  std::string text;
  for (size_t i = 0; i < series.steps.size(); ++i) {
    if (!range_.Holds(series.steps[i])) continue;
    picture.push_back(series.values[i]);
    if (json_)
      list.push_back(Json::array({series.steps[i], JsonOf(series.values[i])}));
    else
      text += fmt::format("{}\t{}\n", series.steps[i], series.values[i]);
  }
  if (picture.empty())
    return NotFound(info.name + ": no " + field_ + " is kept for these steps; try without --steps");
  if (json_) {
    PrintJson({{"tensor", info.name}, {"field", field_}, {"series", list}});
    return kExitOk;
  }
  PrintSeries(terminal, field_, picture);
  Print("{}", text);
  return kExitOk;
}

Result<int> ShowCommand::ShowRaw(Trial& trial, const TensorInfo& info) const {
  TDBG_ASSIGN_OR_RETURN(std::vector<int64_t> steps, StepsOf(trial, info, StepKind::kRaw));
  // Values are long: without a range, the newest.
  if (steps_.empty()) steps.erase(steps.begin(), steps.end() - 1);
  const Terminal terminal = Terminal::Of(STDOUT_FILENO);
  Json list = Json::array();
  for (const int64_t step : steps) {
    TDBG_ASSIGN_OR_RETURN(const TensorValue value, trial.value(info.name, step, worker_));
    if (json_) {
      list.push_back({{"global_step", step}, {"shape", value.shape}, {"values", TensorJson(value)}});
      continue;
    }
    Print("{} {}  {} [{}]\n{}\n", Paint(terminal, Colour::kBold, Printable(info.name)),
          StepNames(trial, {&step, 1}).Of(step), DTypeName(value.dtype), fmt::join(value.shape, ", "),
          FormatTensor(value, kEdgeItems));
  }
  if (json_) PrintJson({{"tensor", info.name}, {"dtype", DTypeName(info.dtype)}, {"values", list}});
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> MakeShowCommand() { return std::make_unique<ShowCommand>(); }

}  // namespace tdbg::cli
