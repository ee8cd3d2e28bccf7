// One tensor over the steps: as a line, and by worker.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/envelope.h"
#include "query/run.h"
#include "trial/coarse.h"
#include "trial/mode_name.h"

namespace tdbg::query {
namespace {

constexpr int64_t kMostColumns = 16384;
constexpr int64_t kAnyStep = std::numeric_limits<int64_t>::max();
constexpr size_t kMostCells = size_t{1} << 20;
// Of all workers together: some 90 bytes each while they are read.
constexpr size_t kMostRowsAtOnce = size_t{1} << 19;

struct Window {
  int64_t begin = 0, end = kAnyStep, columns = 1000;
};

Result<Window> WindowOf(const Question& question, int64_t columns) {
  Window window;
  TDBG_ASSIGN_OR_RETURN(window.begin, question.Integer("begin", 0, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(window.end, question.Integer("end", kAnyStep, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(window.columns, question.Integer("columns", columns, 1, kMostColumns));
  return window;
}

// Seconds since the previous recorded step of the attempt, by the times of their commits.
Trial::Series StepSeconds(const Trial& trial) {
  Trial::Series series;
  const TrialAccess access(trial);
  const auto steps = access.steps();
  for (size_t i = 1; i < access.complete_count(); ++i) {
    const auto before = steps[i - 1], now = steps[i];
    if (now.attempt != before.attempt) continue;
    // If steps in between were not kept, their share each.
    const int64_t between = now.info.global_step - before.info.global_step;
    series.steps.push_back(now.info.global_step);
    series.values.push_back(static_cast<double>(now.info.wall_nanos - before.info.wall_nanos) * 1e-9 /
                            static_cast<double>(std::max<int64_t>(between, 1)));
  }
  return series;
}

/// Points of single steps and of coarse rows. Of a step that has both they are the same value.
Trial::Series Together(const Trial::Series& fine, const CoarseRows::Points& coarse) {
  Trial::Series out;
  size_t i = 0, k = 0;
  while (i < fine.steps.size() || k < coarse.steps.size()) {
    const bool take_fine =
        k == coarse.steps.size() || (i < fine.steps.size() && fine.steps[i] <= coarse.steps[k]);
    if (take_fine) {
      if (k < coarse.steps.size() && coarse.steps[k] == fine.steps[i]) ++k;
      out.steps.push_back(fine.steps[i]);
      out.values.push_back(fine.values[i++]);
    } else {
      out.steps.push_back(coarse.steps[k]);
      out.values.push_back(coarse.values[k++]);
    }
  }
  return out;
}

/// kGlobal: of all. \error kInvalidArgument  no mode is called so
Result<ModeKey> ModeCalled(std::string_view text) {
  if (text.empty()) return ModeKey::kGlobal;
  for (const ModeKey mode : {ModeKey::kTrain, ModeKey::kEval, ModeKey::kPredict}) {
    if (text == ModeName(mode)) return mode;
  }
  return InvalidArgument("mode: '" + std::string(text.substr(0, 40)) +
                         "' is none; there are: TRAIN, EVAL, PREDICT");
}

/// The modes of the series' points, in the order of their numbers. Leaves it only those of `mode`, unless it
/// is kGlobal.
std::vector<std::string> TakeModes(const StepModes& known, ModeKey mode, Trial::Series* series) {
  std::array<bool, 8> seen{};
  Trial::Series kept;
  auto step = known.steps.begin();
  if (!series->steps.empty()) step = std::ranges::lower_bound(known.steps, series->steps.front());
  for (size_t i = 0; i < series->steps.size(); ++i) {
    while (step != known.steps.end() && *step < series->steps[i]) ++step;
    if (step == known.steps.end()) break;
    const ModeKey of = known.modes[static_cast<size_t>(step - known.steps.begin())];
    seen[static_cast<size_t>(of) % seen.size()] = true;
    if (of != mode) continue;
    kept.steps.push_back(series->steps[i]);
    kept.values.push_back(series->values[i]);
  }
  if (mode != ModeKey::kGlobal) *series = std::move(kept);
  std::vector<std::string> names;
  for (const ModeKey of : {ModeKey::kTrain, ModeKey::kEval, ModeKey::kPredict}) {
    if (seen[static_cast<size_t>(of)]) names.emplace_back(ModeName(of));
  }
  return names;
}

/// Points of steps [begin, end).
Trial::Series Within(Trial::Series series, int64_t begin, int64_t end) {
  const auto from = std::ranges::lower_bound(series.steps, begin) - series.steps.begin();
  const auto to = std::max(from, std::ranges::lower_bound(series.steps, end) - series.steps.begin());
  series.steps.erase(series.steps.begin() + to, series.steps.end());
  series.steps.erase(series.steps.begin(), series.steps.begin() + from);
  series.values.erase(series.values.begin() + to, series.values.end());
  series.values.erase(series.values.begin(), series.values.begin() + from);
  return series;
}

}  // namespace

void StepModes::Update(const TrialAccess& access) {
  if (access.overlay_generation() != overlay_generation) {
    overlay_generation = access.overlay_generation();
    steps.clear();
    modes.clear();
  }
  const auto all = access.steps();
  for (size_t i = steps.size(); i < access.complete_count(); ++i) {
    const StepInfo info = all[i].info;
    steps.push_back(info.global_step);
    modes.push_back(info.mode);
  }
}

Result<Answer> Run::Line(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"tensor", "field", "worker", "mode", "begin", "end", "columns"}));
  TDBG_ASSIGN_OR_RETURN(const Window window, WindowOf(question, 1000));
  TDBG_ASSIGN_OR_RETURN(const ModeKey mode, ModeCalled(question.Text("mode")));
  const std::string tensor(question.Text("tensor"));
  std::string field(question.Text("field"));
  if (field.empty()) field = "value";
  Trial::Series series;
  bool coarse = false, lost = false;
  if (tensor.empty() && field == "step_seconds") {
    series = StepSeconds(*trial_);
  } else {
    TDBG_ASSIGN_OR_RETURN(series, trial_->series(tensor, field, question.Text("worker")));
    const TrialAccess access(*trial_);
    TDBG_ASSIGN_OR_RETURN(const TensorIndex index, access.Resolve(tensor));
    const CoarseRows::Points points =
        CoarseRows(*trial_).PointsOf(index, field, question.Text("worker"), window.begin, window.end);
    coarse = !points.steps.empty() || points.lost;
    lost = points.lost;
    if (!points.steps.empty()) series = Together(series, points);
  }
  series = Within(std::move(series), window.begin, window.end);
  modes_.Update(TrialAccess(*trial_));
  const std::vector<std::string> modes = TakeModes(modes_, mode, &series);
  const Envelope envelope = EnvelopeOf(series.steps, series.values, static_cast<size_t>(window.columns));
  Columns out;
  out.Add("step", envelope.steps);
  out.Add("value", envelope.values);
  out.Add("nonfinite_step", envelope.nonfinite_steps);
  out.Add("nonfinite_value", envelope.nonfinite_values);
  return out.Finish(
      {{"question", "line"},
       {"tensor", tensor},
       {"field", field},
       {"generation", generation_},
       {"points", envelope.points},
       {"modes", modes},
       {"coarse", coarse},
       {"lost", lost},
       {"exact", !coarse && envelope.points == envelope.steps.size() + envelope.nonfinite_steps.size()}});
}

Result<Answer> Run::Workers(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"tensor", "field", "begin", "end", "columns"}));
  TDBG_ASSIGN_OR_RETURN(const Window window, WindowOf(question, 512));
  std::string field(question.Text("field"));
  if (field.empty()) field = "mean_abs";
  TDBG_ASSIGN_OR_RETURN(const TensorInfo info, trial_->tensor(question.Text("tensor")));
  TensorFilter filter;
  filter.names = {info.name};
  filter.steps.begin = window.begin;
  filter.steps.end = window.end;
  TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, trial_->tensor_steps(info.name, filter.steps));
  const size_t known = std::max<size_t>(TrialAccess(*trial_).workers().size(), 1);
  const size_t columns = std::clamp<size_t>(kMostCells / known, 1, static_cast<size_t>(window.columns));
  const size_t width = std::max<size_t>((steps.size() + columns - 1) / columns, 1);
  const size_t buckets = (steps.size() + width - 1) / width;
  // Statistics leave out what is not finite; whether anything was, the counts say.
  const std::array<std::string, 6> fields{field,           "nan_count",  "pos_inf_count",
                                          "neg_inf_count", "zero_count", "count"};
  std::vector<std::string> workers;
  std::vector<std::vector<Cell>> rows;  // of each worker
  const size_t at_once = std::max<size_t>(kMostRowsAtOnce / known, 1);
  for (size_t from = 0; from < steps.size(); from += at_once) {
    filter.steps.begin = steps[from];
    filter.steps.end = from + at_once < steps.size() ? steps[from + at_once] : window.end;
    TDBG_ASSIGN_OR_RETURN(const Frame frame, trial_->frame(filter, fields, "*"));
    std::vector<size_t> row_of;
    for (const std::string& name : frame.workers) {
      const auto at = std::ranges::find(workers, name);
      row_of.push_back(static_cast<size_t>(at - workers.begin()));
      if (at != workers.end()) continue;
      workers.push_back(name);
      rows.emplace_back(buckets);
    }
    for (size_t i = 0; i < frame.step.size(); ++i) {
      const auto at = static_cast<size_t>(std::ranges::lower_bound(steps, frame.step[i]) - steps.begin());
      if (at == steps.size()) continue;
      Cell one;
      one.flags = kCellKept;
      const double value = frame.values[0][i], nan = frame.values[1][i];
      if (std::isnan(nan)) {  // a plain number, or what was saved by name alone: it has no counts
        if (std::isnan(value)) one.flags |= kCellNan;
        if (std::isinf(value)) one.flags |= kCellInfinity;
      } else {
        if (nan > 0) one.flags |= kCellNan;
        if (frame.values[2][i] > 0 || frame.values[3][i] > 0) one.flags |= kCellInfinity;
        if (frame.values[5][i] > 0 && frame.values[4][i] == frame.values[5][i]) one.flags |= kCellAllZero;
      }
      constexpr double kMost = std::numeric_limits<float>::max();
      if (std::isfinite(value)) one.low = one.high = static_cast<float>(std::clamp(value, -kMost, kMost));
      rows[row_of[frame.worker[i]]][at / width].Merge(one);
    }
  }
  std::vector<float> low, high;
  std::vector<uint8_t> flags;
  for (const std::vector<Cell>& cells : rows) {
    for (const Cell& cell : cells) {
      const bool any = cell.low <= cell.high;
      low.push_back(any ? cell.low : std::numeric_limits<float>::quiet_NaN());
      high.push_back(any ? cell.high : std::numeric_limits<float>::quiet_NaN());
      flags.push_back(cell.flags);
    }
  }
  std::vector<int64_t> step_first, step_last;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    step_first.push_back(steps[bucket * width]);
    step_last.push_back(steps[std::min((bucket + 1) * width, steps.size()) - 1]);
  }
  Columns out;
  out.Add("low", low, {rows.size(), buckets});
  out.Add("high", high, {rows.size(), buckets});
  out.Add("flags", flags, {rows.size(), buckets});
  out.Add("step_first", step_first);
  out.Add("step_last", step_last);
  return out.Finish({{"question", "workers"},
                     {"tensor", info.name},
                     {"field", field},
                     {"workers", workers},
                     {"generation", generation_}});
}

}  // namespace tdbg::query
