// What a tensor's elements were: histograms over the steps, one step's, and values where they were kept.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "query/run.h"
#include "trial/elements.h"

namespace tdbg::query {
namespace {

constexpr int64_t kAnyStep = std::numeric_limits<int64_t>::max();
// Reading one costs some 2 us and a page of the file.
constexpr size_t kMostRead = 4096;
constexpr size_t kMostValues = size_t{1} << 16;

}  // namespace

Result<Answer> Run::Histograms(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"tensor", "worker", "begin", "end", "columns"}));
  TDBG_ASSIGN_OR_RETURN(const TensorInfo info, trial_->tensor(question.Text("tensor")));
  TDBG_ASSIGN_OR_RETURN(const int64_t begin, question.Integer("begin", 0, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(const int64_t end, question.Integer("end", kAnyStep, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(const int64_t columns, question.Integer("columns", 200, 1, 4096));
  const std::string_view worker = question.Text("worker");
  StepFilter filter;
  filter.kind = StepKind::kHistogram;
  filter.begin = begin;
  filter.end = end;
  TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, trial_->tensor_steps(info.name, filter, worker));
  const size_t width =
      std::max<size_t>((steps.size() + static_cast<size_t>(columns) - 1) / static_cast<size_t>(columns), 1);
  const size_t stride = std::max<size_t>(steps.size() / kMostRead, 1);
  std::vector<int64_t> step_first, step_last;
  std::vector<uint32_t> offset{0};
  std::vector<int16_t> bucket;
  std::vector<uint64_t> count, zeros, nonfinite;
  size_t read = 0;
  for (size_t at = 0; at < steps.size(); at += width) {
    const size_t to = std::min(at + width, steps.size());
    std::map<int16_t, uint64_t> merged;
    uint64_t zero = 0, bad = 0;
    for (size_t i = at; i < to; i += stride) {
      const auto histogram = trial_->histogram(info.name, steps[i], worker);
      if (!histogram.ok()) continue;
      ++read;
      for (const HistogramBucket& b : *histogram) merged[b.bucket] += b.count;
      if (const auto summary = trial_->summary(info.name, steps[i], worker); summary.ok()) {
        zero += summary->zero_count;
        bad += summary->count - summary->finite_count();
      }
    }
    step_first.push_back(steps[at]);
    step_last.push_back(steps[to - 1]);
    for (const auto& [b, n] : merged) {
      bucket.push_back(b);
      count.push_back(n);
    }
    offset.push_back(static_cast<uint32_t>(bucket.size()));
    zeros.push_back(zero);
    nonfinite.push_back(bad);
  }
  Columns out;
  out.Add("step_first", step_first);
  out.Add("step_last", step_last);
  out.Add("offset", offset);
  out.Add("bucket", bucket);
  out.Add("count", count);
  out.Add("zero_count", zeros);
  out.Add("nonfinite_count", nonfinite);
  return out.Finish({{"question", "histograms"},
                     {"tensor", info.name},
                     {"generation", generation_},
                     {"kept", steps.size()},
                     {"read", read}});
}

Result<Answer> Run::HistogramAt(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"tensor", "worker", "step"}));
  TDBG_ASSIGN_OR_RETURN(const TensorInfo info, trial_->tensor(question.Text("tensor")));
  TDBG_ASSIGN_OR_RETURN(const int64_t step, question.Integer("step", 0, 0, kAnyStep));
  const std::string_view worker = question.Text("worker");
  TDBG_ASSIGN_OR_RETURN(const Summary summary, trial_->summary(info.name, step, worker));
  Json head = {{"question", "histogram"}, {"tensor", info.name}, {"step", step}, {"generation", generation_}};
  const auto put = [&]<typename T>(const char* key, T value) {
    if constexpr (std::is_floating_point_v<T>)
      head["summary"][key] = JsonNumber(value);
    else
      head["summary"][key] = value;
  };
#define TDBG_COLUMN(name, ...) put(#name, summary.name);
  TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  put("mean_abs", summary.mean_abs());
  std::vector<double> lower, upper;
  std::vector<uint64_t> count;
  const auto histogram = trial_->histogram(info.name, step, worker);
  if (histogram.ok()) {
    for (const HistogramBucket& b : *histogram) {
      lower.push_back(BucketLower(b.bucket));
      upper.push_back(BucketUpper(b.bucket));
      count.push_back(b.count);
    }
  } else {
    head["why_none"] = histogram.status().message();
  }
  Columns out;
  out.Add("lower", lower);
  out.Add("upper", upper);
  out.Add("count", count);
  return out.Finish(std::move(head));
}

Result<Answer> Run::Values(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"tensor", "worker", "step"}));
  TDBG_ASSIGN_OR_RETURN(const TensorInfo info, trial_->tensor(question.Text("tensor")));
  TDBG_ASSIGN_OR_RETURN(const int64_t step, question.Integer("step", 0, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(const TensorValue value, trial_->value(info.name, step, question.Text("worker")));
  size_t elements = 1;
  for (const int64_t axis : value.shape) elements *= static_cast<size_t>(axis);
  const size_t shown = std::min(elements, kMostValues);
  std::vector<double> values;
  values.reserve(shown);
  for (size_t i = 0; i < shown; ++i) {
    const auto one = ElementAsDouble(value, i);
    if (!one)
      return Unimplemented(info.name + ": elements of " + std::string(DTypeName(value.dtype)) +
                           " are not shown; tdbg show --raw prints them");
    values.push_back(*one);
  }
  Columns out;
  out.Add("value", values);
  return out.Finish({{"question", "values"},
                     {"tensor", info.name},
                     {"step", step},
                     {"shape", value.shape},
                     {"dtype", DTypeName(value.dtype)},
                     {"elements", elements},
                     {"shown", shown}});
}

}  // namespace tdbg::query
