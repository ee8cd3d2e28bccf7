// The layer map: rows of tensors, or of groups of them, over buckets of steps.
#include "query/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "query/run.h"
#include "trial/coarse.h"

namespace tdbg::query {
namespace {

constexpr int64_t kMostColumns = 4096;
constexpr size_t kMostRows = 4096;
constexpr size_t kMostCells = size_t{1} << 20;
constexpr int64_t kAnyStep = std::numeric_limits<int64_t>::max();

}  // namespace

size_t FirstStepFrom(const TrialAccess& access, int64_t global_step) {
  const auto steps = access.steps();
  size_t low = 0, high = access.complete_count();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (steps[middle].info.global_step < global_step)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Result<MatrixRequest> ReadMatrixRequest(const Question& question, const TrialAccess& access) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({"statistic", "rows", "begin", "end", "columns"}));
  MatrixRequest request;
  const std::string_view name = question.Text("statistic");
  request.spec = FindStatistic(name.empty() ? "mean_abs" : name);
  if (request.spec == nullptr) {
    std::string known;
    for (const StatisticSpec& s : MatrixStatistics())
      known += (known.empty() ? "" : ", ") + std::string(s.name);
    return InvalidArgument(
        fmt::format("{}: no statistic '{}'; there are: {}", question.name, name.substr(0, 40), known));
  }
  TDBG_ASSIGN_OR_RETURN(const int64_t begin, question.Integer("begin", 0, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(const int64_t end, question.Integer("end", kAnyStep, 0, kAnyStep));
  TDBG_ASSIGN_OR_RETURN(const int64_t columns, question.Integer("columns", 512, 1, kMostColumns));
  std::vector<std::vector<uint32_t>>& rows = request.rows;
  if (question.Text("rows").empty()) {
    for (uint32_t t = 0; t < access.tensor_count() && t < kMostRows; ++t) rows.push_back({t});
  } else {
    TDBG_ASSIGN_OR_RETURN(rows, ParseRows(question.Text("rows"), access.tensor_count(), kMostRows));
  }
  // Buckets are aligned blocks of 2^k step positions, the same wherever the window begins, so that colours do
  // not flicker when the user pans.
  request.first = FirstStepFrom(access, begin);
  request.last = std::max(request.first, FirstStepFrom(access, end));
  while (request.buckets() > static_cast<size_t>(columns)) request.width *= 2;
  if (!rows.empty()) {
    while (request.buckets() * rows.size() > kMostCells) request.width *= 2;
  }
  if (request.last > request.first) request.first = request.first / request.width * request.width;
  // Reads only tensors that some row names, each once however many rows name it.
  std::vector<uint32_t> place_of(access.tensor_count(), ~0u);
  for (std::vector<uint32_t>& row : rows) {
    for (uint32_t& tensor : row) {
      if (place_of[tensor] == ~0u) {
        place_of[tensor] = static_cast<uint32_t>(request.tensors.size());
        request.tensors.push_back(tensor);
      }
      tensor = place_of[tensor];
    }
  }
  return request;
}

Result<Answer> Run::Matrix(const Question& question) {
  const TrialAccess access(*trial_);
  TDBG_ASSIGN_OR_RETURN(const MatrixRequest request, ReadMatrixRequest(question, access));
  const StatisticBlocks& blocks = BlocksOf(*request.spec);
  const auto& rows = request.rows;
  const size_t buckets = request.buckets();
  const auto steps = access.steps();
  std::vector<int64_t> step_first(buckets), step_last(buckets);
  std::vector<uint32_t> shed(buckets), coarse(buckets);
  const CoarseRows thinned(*trial_);
  std::vector<float> low(rows.size() * buckets), high(rows.size() * buckets);
  std::vector<uint8_t> flags(rows.size() * buckets);
  std::vector<Cell> cells(request.tensors.size());
  TensorPlaces places(request.tensors, access.tensor_count());
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const auto [from, to] = request.positions(bucket, access.complete_count());
    step_first[bucket] = steps[from].info.global_step;
    step_last[bucket] = steps[to - 1].info.global_step;
    for (size_t i = from; i < to; ++i) {
      // What was dropped because coarse rows tell of it is shown all the same.
      if (thinned.IsThinned(i))
        ++coarse[bucket];
      else
        shed[bucket] += steps[i].shed;
    }
    std::ranges::fill(cells, Cell());
    blocks.Merge(access, from, to, &places, &cells);
    for (size_t row = 0; row < rows.size(); ++row) {
      Cell cell;
      for (const uint32_t place : rows[row]) cell.Merge(cells[place]);
      const size_t at = row * buckets + bucket;
      const bool any = cell.low <= cell.high;
      low[at] = any ? cell.low : std::numeric_limits<float>::quiet_NaN();
      high[at] = any ? cell.high : std::numeric_limits<float>::quiet_NaN();
      flags[at] = cell.flags;
    }
  }
  Columns out;
  out.Add("low", low, {rows.size(), buckets});
  out.Add("high", high, {rows.size(), buckets});
  out.Add("flags", flags, {rows.size(), buckets});
  out.Add("step_first", step_first);
  out.Add("step_last", step_last);
  out.Add("shed", shed);
  out.Add("coarse", coarse);
  return out.Finish({{"question", "matrix"},
                     {"statistic", request.spec->name},
                     {"generation", generation_},
                     {"steps_per_bucket", request.width},
                     {"rows", rows.size()}});
}

}  // namespace tdbg::query
