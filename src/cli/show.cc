// tdbg show: one tensor over the steps: statistics, one field of them, or values.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <type_traits>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "format/columns.h"
#include "tensor/magnitude.h"
#include "trial/elements.h"
#include "trial/mode_name.h"

namespace tdbg::cli {
namespace {

// On a terminal, more rows than this push the picture off the screen.
constexpr size_t kMaxRowsOnTerminal = 24;
constexpr int64_t kEdgeItems = 3;

std::string Number(double value) { return fmt::format("{:.6g}", value); }

Json SummaryJson(const Summary& s) {
  const auto json = []<typename T>(T number) -> Json {
    if constexpr (std::is_floating_point_v<T>) {
      return JsonOf(number);
    } else {
      return number;
    }
  };
  Json out;
#define TDBG_COLUMN(name, ...) out[#name] = json(s.name);
  TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  out["mean_abs"] = JsonOf(s.mean_abs());
  return out;
}

std::vector<std::string> SummaryCells(std::string step, std::string mode, const Summary& s) {
  return {std::move(step),
          std::move(mode),
          std::to_string(s.count),
          std::to_string(s.nan_count),
          std::to_string(s.pos_inf_count + s.neg_inf_count),
          std::to_string(s.zero_count),
          Number(s.mean),
          Number(std::sqrt(s.variance)),
          Number(s.min),
          Number(s.max),
          Number(s.mean_abs()),
          Number(s.l2)};
}

class ShowCommand : public Command {
 public:
  std::string name() const override { return "show"; }
  std::string help() const override { return "statistics or values of one tensor, step by step"; }
  void Define(CLI::App& app) override {
    app.add_option("RUN", run_, "a path, a name under ./tdbg-runs, or last")->required();
    app.add_option("TENSOR", tensor_, "its name, or its short name where that is unambiguous")->required();
    app.add_option("--steps", steps_, "global steps from A up to, not including, B")->type_name("A:B");
    app.add_option("--field", field_, "only this statistic: mean, variance, l2, abs_max, nan_count, ...")
        ->type_name("FIELD");
    app.add_option("--worker", worker_, "of this worker; default: the lowest rank")->type_name("NAME");
    AddAttempt(app, attempt_);
    app.add_flag("--raw", raw_, "the values themselves, where they were kept");
    app.add_flag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    if (raw_ && !field_.empty())
      return InvalidArgument("show: --raw and --field exclude each other; leave one out");
    TDBG_ASSIGN_OR_RETURN(range_, ParseStepRange(steps_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_, attempt_));
    const Result<int> shown = Show(*trial);
    const Status whole = CouldNotRead(trial->damage());
    if (whole.ok() || (!shown.ok() && shown.status().code() != Code::kNotFound)) return shown;
    // What is not there may be what could not be read.
    return shown.ok() ? whole : whole.Annotate(shown.status().message());
  }

 private:
  Result<int> Show(Trial& trial) const {
    TDBG_ASSIGN_OR_RETURN(const TensorInfo info, trial.tensor(tensor_));
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
    return NotFound(fmt::format("{}: no {} in --steps {}; they are kept for {} from {} to {}", info.name,
                                what, steps_, base::Counted(all.size(), "step"), all.front(), all.back()));
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
  Print("{}{}{}\n", label, Paint(terminal, Colour::kCyan, Sparkline(values, columns)), ends);
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
  Table table({"STEP", "MODE", "COUNT", "NAN", "INF", "ZERO", "MEAN", "STD", "MIN", "MAX", "MEAN_ABS", "L2"});
  for (size_t column = 2; column < 12; ++column) table.AlignRight(column);
  Table scalars({"STEP", "MODE", "VALUE"});
  scalars.AlignRight(2);
  Table reductions({"STEP", "MODE", "SAVED", "VALUE"});  // where these are all there is (smdebug's)
  reductions.AlignRight(3);
  Json list = Json::array();
  std::vector<double> picture;
  bool as_scalar = false;
  size_t row = 0, skipped = 0;
  for (const int64_t step : steps) {
    const auto at = trial.step(step);
    const std::string mode(at && at->mode != ModeKey::kGlobal ? ModeName(at->mode) : "-");
    Json entry = {{"global_step", step}, {"mode", mode}, {"mode_step", at ? at->mode_step : -1}};
    const bool shown = !terminal.is_terminal || steps.size() <= kMaxRowsOnTerminal ||
                       row < kMaxRowsOnTerminal / 2 || row >= steps.size() - kMaxRowsOnTerminal / 2;
    ++row;
    if (!shown) ++skipped;
    if (!shown && skipped == 1) {
      table.Add({"..."});
      scalars.Add({"..."});
    }
    const auto summary = trial.summary(info.name, step, worker_);
    if (!summary.ok() || summary->count == 1) {
      // Losses, learning rates: the value says it all.
      const auto value = trial.scalar(info.name, step, worker_);
      if (value.ok()) {
        as_scalar = true;
        picture.push_back(*value);
        entry["value"] = JsonOf(*value);
        if (shown) scalars.Add({std::to_string(step), mode, Number(*value)});
        list.push_back(std::move(entry));
        continue;
      }
      if (!summary.ok() && summary.status().code() != Code::kNotFound) return summary.status();
    }
    if (!summary.ok()) {
      TDBG_ASSIGN_OR_RETURN(const std::vector<Reduction> saved,
                            trial.saved_reductions(info.name, step, worker_));
      if (saved.empty()) continue;  // only raw values there: --raw shows them
      for (const Reduction& reduction : saved) {
        const double number = ElementAsDouble(reduction.value, 0).value_or(std::nan(""));
        entry["reductions"][reduction.name] = JsonOf(number);
        if (shown) reductions.Add({std::to_string(step), mode, reduction.name, Number(number)});
      }
      list.push_back(std::move(entry));
      continue;
    }
    const Summary& s = *summary;
    picture.push_back(s.mean_abs());
    entry.update(SummaryJson(s));
    if (std::ranges::binary_search(histograms, step)) entry["histogram"] = true;
    list.push_back(std::move(entry));
    if (!shown) continue;
    table.Add(SummaryCells(std::to_string(step), mode, s));
  }
  Json final_json;
  if (at_end.ok() && (as_scalar || (picture.empty() && at_end->count == 1))) {
    as_scalar = true;
    final_json = {{"value", JsonOf(at_end->mean)}};
    scalars.Add({"end", "-", Number(at_end->mean)});
  } else if (at_end.ok()) {
    final_json = SummaryJson(*at_end);
    table.Add(SummaryCells("end", "-", *at_end));
  }
  if (json_) {
    Json document = {
        {"tensor", info.name}, {"dtype", DTypeName(info.dtype)}, {"shape", info.shape}, {"steps", list}};
    if (IsComplex(info.dtype)) document["statistics_of"] = "magnitude";
    if (at_end.ok()) document["end"] = final_json;
    PrintJson(document);
    return kExitOk;
  }
  PrintHead(info, terminal);
  if (picture.empty() && !reductions.empty()) {
    Print("{}", reductions.Format(terminal));
    return kExitOk;
  }
  if (picture.empty() && !at_end.ok()) {
    Tell("tdbg: only raw values are kept of it; add --raw to see them\n");
    return kExitOk;
  }
  PrintSeries(terminal, as_scalar ? "value" : "mean_abs", picture);
  if (!histograms.empty()) {
    Print("histograms at {} from {} to {} (tdbg steps --kind histogram)\n",
          base::Counted(histograms.size(), "step"), histograms.front(), histograms.back());
  }
  Print("{}", (as_scalar ? scalars : table).Format(terminal));
  if (skipped > 0)
    Tell("{} left out; --steps A:B shows a part, | cat shows all\n", base::Counted(skipped, "step"));
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
    Print("{} step {}  {} [{}]\n{}\n", Paint(terminal, Colour::kBold, Printable(info.name)), step,
          DTypeName(value.dtype), fmt::join(value.shape, ", "), FormatTensor(value, kEdgeItems));
  }
  if (json_) PrintJson({{"tensor", info.name}, {"dtype", DTypeName(info.dtype)}, {"values", list}});
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> MakeShowCommand() { return std::make_unique<ShowCommand>(); }

}  // namespace tdbg::cli
