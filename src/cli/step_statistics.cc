#include "cli/step_statistics.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "cli/terminal.h"
#include "format/columns.h"
#include "trial/elements.h"
#include "trial/mode_name.h"

namespace tdbg::cli {
namespace {

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

}  // namespace

StepStatistics::StepStatistics(const Trial& trial, const TensorInfo& info, const std::string& worker,
                               const Terminal& terminal, size_t steps)
    : trial_(trial),
      info_(info),
      worker_(worker),
      terminal_(terminal),
      count_(steps),
      numbered_(trial.modes().size() > 1),
      summaries_(
          {"STEP", "MODE", "COUNT", "NAN", "INF", "ZERO", "MEAN", "STD", "MIN", "MAX", "MEAN_ABS", "L2"}),
      scalars_({"STEP", "MODE", "VALUE"}),
      reductions_({"STEP", "MODE", "SAVED", "VALUE"}) {  // where these are all there is (smdebug's)
  for (size_t column = 2; column < 12; ++column) summaries_.AlignRight(column);
  scalars_.AlignRight(2);
  reductions_.AlignRight(3);
}

bool StepStatistics::IsShown() {
  const size_t row = row_++;
  if (!terminal_.is_terminal || count_ <= kMostRowsOnTerminal || row < kMostRowsOnTerminal / 2 ||
      row >= count_ - kMostRowsOnTerminal / 2) {
    return true;
  }
  if (++left_out_ == 1) {
    summaries_.Add({"..."});
    scalars_.Add({"..."});
  }
  return false;
}

Status StepStatistics::Add(int64_t step, bool has_histogram) {
  const auto at = trial_.step(step);
  const std::string mode(at && at->mode != ModeKey::kGlobal ? ModeName(at->mode) : "-");
  Json entry = {{"global_step", step}, {"mode", mode}, {"mode_step", at ? at->mode_step : -1}};
  const std::string cell = at && numbered_ ? fmt::format("{} {}", mode, at->mode_step) : mode;
  const bool shown = IsShown();
  const auto summary = trial_.summary(info_.name, step, worker_);
  if (!summary.ok() || summary->count == 1) {
    // Losses, learning rates: the value says it all.
    if (AddValue(step, cell, shown, &entry)) {
      list_.push_back(std::move(entry));
      return OkStatus();
    }
    if (!summary.ok() && summary.status().code() != Code::kNotFound) return summary.status();
  }
  if (!summary.ok()) return AddReductions(step, cell, shown, &entry);
  picture_.push_back(summary->mean_abs());
  entry.update(SummaryJson(*summary));
  if (has_histogram) entry["histogram"] = true;
  list_.push_back(std::move(entry));
  if (shown) summaries_.Add(SummaryCells(std::to_string(step), cell, *summary));
  return OkStatus();
}

bool StepStatistics::AddValue(int64_t step, const std::string& mode, bool shown, Json* entry) {
  const auto value = trial_.scalar(info_.name, step, worker_);
  if (!value.ok()) return false;
  as_scalar_ = true;
  picture_.push_back(*value);
  (*entry)["value"] = JsonOf(*value);
  if (shown) scalars_.Add({std::to_string(step), mode, Number(*value)});
  return true;
}

Status StepStatistics::AddReductions(int64_t step, const std::string& mode, bool shown, Json* entry) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<Reduction> saved,
                        trial_.saved_reductions(info_.name, step, worker_));
  if (saved.empty()) return OkStatus();  // only raw values there: --raw shows them
  for (const Reduction& reduction : saved) {
    const double number = ElementAsDouble(reduction.value, 0).value_or(std::nan(""));
    (*entry)["reductions"][reduction.name] = JsonOf(number);
    if (shown) reductions_.Add({std::to_string(step), mode, reduction.name, Number(number)});
  }
  list_.push_back(std::move(*entry));
  return OkStatus();
}

void StepStatistics::AddEnd(const Summary& summary) {
  if (as_scalar_ || (picture_.empty() && summary.count == 1)) {
    as_scalar_ = true;
    end_ = {{"value", JsonOf(summary.mean)}};
    scalars_.Add({"end", "-", Number(summary.mean)});
  } else {
    end_ = SummaryJson(summary);
    summaries_.Add(SummaryCells("end", "-", summary));
  }
}

std::string StepStatistics::Format() const {
  return (only_reductions() ? reductions_ : as_scalar_ ? scalars_ : summaries_).Format(terminal_);
}

}  // namespace tdbg::cli
