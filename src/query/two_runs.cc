#include "query/two_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "query/comparison.h"
#include "query/matrix.h"
#include "trial/mode_name.h"

namespace tdbg::query {
namespace {

// What one question may cost. The server has one thread: whoever pans meanwhile waits for it. Elements are
// compared in memory; a look-up of a statistic costs as much as several hundred of them.
constexpr int64_t kMostWork = int64_t{1} << 20;
constexpr int64_t kWorkOfARow = 256;
constexpr size_t kMostListed = 50;
constexpr size_t kMostNames = 8;

Json JsonOf(const Difference& d) {
  Json json = {{"global_step", d.step.global_step},
               {"mode", ModeName(d.step.mode)},
               {"mode_step", d.step.mode_step},
               {"tensor", d.tensor},
               {"worker", d.worker},
               {"by", d.by_values ? "values" : "statistics"}};
  if (!d.shape_a.empty()) {
    json["shape"] = d.shape_a;
    json["other_shape"] = d.shape_b;
    return json;
  }
  if (d.by_values) {
    json["elements"] = d.elements;
    json["different"] = d.different;
    if (d.index < 0) return json;
    json["index"] = d.index;
  } else {
    json["field"] = d.field;
  }
  json["value"] = JsonNumber(d.a);
  json["other_value"] = JsonNumber(d.b);
  return json;
}

Json JsonOf(const Comparison::Part& only) {
  Json some = Json::array();
  for (size_t i = 0; i < std::min(only.tensors.size(), kMostNames); ++i) some.push_back(only.tensors[i]);
  return {{"tensors", only.tensors.size()},
          {"steps", only.steps.size()},
          {"workers", only.workers},
          {"some_tensors", std::move(some)}};
}

Result<Answer> CompareRuns(Run& run, Run& other, const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"begin", "rtol", "atol"}));
  TensorFilter which;
  TDBG_ASSIGN_OR_RETURN(which.steps.begin,
                        question.Integer("begin", 0, 0, std::numeric_limits<int64_t>::max()));
  Tolerance tolerance;
  TDBG_ASSIGN_OR_RETURN(tolerance.rtol, question.FiniteFrom0("rtol", 0));
  TDBG_ASSIGN_OR_RETURN(tolerance.atol, question.FiniteFrom0("atol", 0));
  TDBG_ASSIGN_OR_RETURN(
      const Comparison found,
      Compare(run.trial(), other.trial(), which, tolerance, [](int64_t, const Comparison& so_far) {
        return so_far.elements + kWorkOfARow * (so_far.values + so_far.statistics) < kMostWork;
      }));
  Json differences = Json::array(), shapes = Json::array();
  for (size_t i = 0; i < std::min(found.first.size(), kMostListed); ++i)
    differences.push_back(JsonOf(found.first[i]));
  for (size_t i = 0; i < std::min(found.shapes.size(), kMostListed); ++i) {
    const Comparison::Declared& shape = found.shapes[i];
    shapes.push_back({{"tensor", shape.tensor}, {"shape", shape.a}, {"other_shape", shape.b}});
  }
  return JsonAnswer(
      {{"question", "compare"},
       {"generation", run.generation()},
       {"other_generation", other.generation()},
       {"other_path", other.trial().path()},
       {"rtol", tolerance.rtol},
       {"atol", tolerance.atol},
       {"compared", {{"steps", found.steps}, {"values", found.values}, {"statistics", found.statistics}}},
       {"last_step", found.last_step},
       {"next_step", found.next_step},
       {"parted", !found.first.empty()},
       {"differences", std::move(differences)},
       {"different", found.first.size()},
       {"shapes", std::move(shapes)},
       {"other_shapes", found.shapes.size()},
       {"unread", found.unread},
       {"coarse_steps", found.thinned},
       {"only_in_run", JsonOf(found.only_a)},
       {"only_in_other", JsonOf(found.only_b)},
       {"over", run.over() && other.over()}});
}

/// How many times as large; 1 for two zeros, infinity where only the second is one.
double Times(double a, double b) {
  if (a == b) return 1;
  return b == 0 ? std::numeric_limits<double>::infinity() : a / b;
}

/// Of a tensor in a bucket: the ratios of its largest and of its smallest values; of statistics that have a
/// sign, of the largest magnitude.
struct Ratios {
  double low = std::numeric_limits<double>::infinity(), high = -1;  ///< low > high: there is none
  void Add(double ratio) {
    low = std::min(low, ratio);
    high = std::max(high, ratio);
  }
  void Add(const Cell& a, const Cell& b, bool is_signed) {
    if (a.low > a.high || b.low > b.high) return;
    if (is_signed) {
      const auto size = [](const Cell& c) { return std::max(std::fabs(c.low), std::fabs(c.high)); };
      Add(Times(size(a), size(b)));
    } else {
      Add(Times(a.low, b.low));
      Add(Times(a.high, b.high));
    }
  }
};

Result<Answer> RatioOf(Run& run, Run& other, const Question& question) {
  const TrialAccess access(run.trial()), there(other.trial());
  TDBG_ASSIGN_OR_RETURN(const MatrixRequest request, ReadMatrixRequest(question, access));
  const bool is_signed = request.spec->id == MatrixStatistic::kMean ||
                         request.spec->id == MatrixStatistic::kMin ||
                         request.spec->id == MatrixStatistic::kMax;
  const StatisticBlocks& blocks = run.BlocksOf(*request.spec);
  const StatisticBlocks& blocks_there = other.BlocksOf(*request.spec);
  // The same tensor is that of the same name.
  constexpr uint32_t kNowhere = ~0u;
  std::vector<uint32_t> place_there(request.tensors.size(), kNowhere);
  std::vector<TensorIndex> tensors_there;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const std::string& name = access.tensor(request.tensors[i]).name;
    const auto found = there.Find(name);
    if (!found || there.tensor(*found).name != name) continue;
    place_there[i] = static_cast<uint32_t>(tensors_there.size());
    tensors_there.push_back(*found);
  }
  const size_t missing = request.tensors.size() - tensors_there.size();
  std::vector<Cell> cells(request.tensors.size()), cells_there(tensors_there.size());
  TensorPlaces places(request.tensors, access.tensor_count());
  TensorPlaces places_there(std::move(tensors_there), there.tensor_count());

  const size_t rows = request.rows.size(), buckets = request.buckets();
  const auto steps = access.steps();
  std::vector<int64_t> step_first(buckets), step_last(buckets);
  std::vector<float> low(rows * buckets), high(rows * buckets);
  std::vector<uint8_t> flags(rows * buckets), other_flags(rows * buckets);
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const auto [from, to] = request.positions(bucket, access.complete_count());
    step_first[bucket] = steps[from].info.global_step;
    step_last[bucket] = steps[to - 1].info.global_step;
    std::ranges::fill(cells, Cell());
    blocks.Merge(access, from, to, &places, &cells);
    std::ranges::fill(cells_there, Cell());
    blocks_there.Merge(there, FirstStepFrom(there, step_first[bucket]),
                       FirstStepFrom(there, step_last[bucket] + 1), &places_there, &cells_there);
    for (size_t row = 0; row < rows; ++row) {
      const size_t at = row * buckets + bucket;
      Ratios ratios;
      for (const uint32_t place : request.rows[row]) {
        flags[at] |= cells[place].flags;
        if (place_there[place] == kNowhere) continue;
        const Cell& theirs = cells_there[place_there[place]];
        other_flags[at] |= theirs.flags;
        ratios.Add(cells[place], theirs, is_signed);
      }
      const bool any = ratios.low <= ratios.high;
      low[at] = any ? static_cast<float>(ratios.low) : std::numeric_limits<float>::quiet_NaN();
      high[at] = any ? static_cast<float>(ratios.high) : std::numeric_limits<float>::quiet_NaN();
    }
  }
  Columns out;
  out.Add("low", low, {rows, buckets});
  out.Add("high", high, {rows, buckets});
  out.Add("flags", flags, {rows, buckets});
  out.Add("other_flags", other_flags, {rows, buckets});
  out.Add("step_first", step_first);
  out.Add("step_last", step_last);
  return out.Finish({{"question", "ratio"},
                     {"statistic", request.spec->name},
                     {"generation", run.generation()},
                     {"other_generation", other.generation()},
                     {"steps_per_bucket", request.width},
                     {"tensors_missing", missing},
                     {"rows", rows}});
}

}  // namespace

bool ConcernsTwoRuns(std::string_view question) { return question == "compare" || question == "ratio"; }

Result<Answer> AskOfTwo(Run& run, Run& other, const Question& question) {
  return question.name == "compare" ? CompareRuns(run, other, question) : RatioOf(run, other, question);
}

}  // namespace tdbg::query
