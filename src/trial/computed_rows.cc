#include "trial/computed_rows.h"

#include <algorithm>

#include "store/reader/row_of_value.h"

namespace tdbg {
namespace {

constexpr size_t kMostRows = 65536, kMostSteps = 64;

size_t CommitsOf(const store::WorkerReader& reader, int64_t global_step) {
  size_t count = 0;
  reader.commits().AnyAt(global_step, [&count](const format::Commit&) {
    ++count;
    return false;
  });
  return count;
}

}  // namespace

bool ComputedRows::KeepsValues(const store::WorkerReader& reader, int64_t global_step) {
  return reader.commits().AnyAt(global_step, [](const format::Commit& c) { return c.raw_tensors != 0; });
}

const ComputedRows::Step* ComputedRows::Known(const store::WorkerReader& reader, int64_t global_step) {
  const auto at =
      std::ranges::find_if(steps_, [&](const auto& step) { return step->global_step == global_step; });
  if (at == steps_.end()) return nullptr;
  if ((*at)->commits == CommitsOf(reader, global_step) && (*at)->rewrites == reader.rewrites())
    return at->get();
  rows_ -= (*at)->batch.rows;
  steps_.erase(at);
  return nullptr;
}

const ComputedRows::Step& ComputedRows::Make(store::WorkerReader& reader, int64_t global_step) {
  auto step = std::make_unique<Step>();
  step->global_step = global_step;
  step->commits = CommitsOf(reader, global_step);
  step->rewrites = reader.rewrites();
  step->batch_index = next_index_++;
  if (next_index_ < kFirstIndex) next_index_ = kFirstIndex;
  const std::span<const format::TensorDef> tensors = reader.tensors();
  for (size_t id = 0; id < tensors.size(); ++id) {
    if (has_row_[id] != 0 || tensors[id].kind == kStatisticKind) continue;  // which lies there as a value
    for (const store::RawRef& ref : reader.RawsAt(static_cast<format::TensorId>(id), global_step)) {
      if (ref.sub.point != Point::kEnd) step->raws.push_back(ref);
    }
  }
  // In a second pass: RawsAt's answer is the reader's scratch.
  for (const store::RawRef& ref : step->raws) AddRow(reader, ref, step.get());
  step->batch.rows = step->raws.size();
  format::ForEachSummaryColumn(
      [](format::SummaryColumn, auto& pointer, const auto& column) { pointer = column.data(); }, step->batch,
      *step);
  step->batch.unknown = step->unknown.data();
  rows_ += step->batch.rows;
  while (!steps_.empty() && (rows_ > kMostRows || steps_.size() >= kMostSteps)) {
    rows_ -= steps_.front()->batch.rows;
    steps_.erase(steps_.begin());
  }
  steps_.push_back(std::move(step));
  return *steps_.back();
}

void ComputedRows::AddRow(store::WorkerReader& reader, const store::RawRef& ref, Step* step) {
  if (!summarizer_) summarizer_ = std::make_unique<Summarizer>();
  Summary summary;
  const uint64_t unknown = store::SummaryOfValue(reader.ReadRaw(ref), summarizer_.get(), &summary);
  if (unknown != 0) summary = Summary();
  format::ForEachSummaryColumn([](format::SummaryColumn, auto& column) { column.emplace_back(); }, *step);
  format::ForEachStatistic([](auto& column, auto number) { column.back() = number; }, *step, summary);
  step->tensor.back() = ref.tensor;
  step->step_first.back() = step->step_last.back() = ref.global_step;
  step->sub.back() = ref.sub.sub;
  step->point.back() = static_cast<uint16_t>(ref.sub.point);
  step->histogram_bytes.back() =
      summary.count >= store::kHistogramFrom ? 1 : 0;  // counted when somebody asks
  step->unknown.push_back(unknown);
}

Result<Histogram> ComputedRows::HistogramOf(store::WorkerReader& reader, store::WorkerReader::RowRef row) {
  for (const auto& step : steps_) {
    if (step->batch_index != row.batch || row.row >= step->raws.size()) continue;
    return store::HistogramOfValue(reader.ReadRaw(step->raws[row.row]), summarizer_.get());
  }
  return Internal("histogram of a row that is not kept any more");
}

}  // namespace tdbg
