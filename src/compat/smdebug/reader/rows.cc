#include "compat/smdebug/reader/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compat/smdebug/reader/reductions.h"
#include "format/columns.h"
#include "store/reader/row_of_value.h"

namespace tdbg::compat::smdebug {
namespace {

using store::SummaryBatch;

constexpr uint32_t kNone = ~uint32_t{0};
// A batch takes whole steps until it has so many rows; the second bounds the constants below.
constexpr size_t kEnoughRows = 256, kMaxRows = 4096;

// What a column reads as before its rows are prepared, and where it is the same for all.
struct Constants {
  std::array<uint64_t, kMaxRows> zeros{};
  std::array<double, kMaxRows> nans{};
  std::array<uint64_t, kMaxRows> unprepared{};
  const uint64_t* Of(const uint64_t*) const { return zeros.data(); }
  const double* Of(const double*) const { return nans.data(); }
  Constants() {
    nans.fill(std::numeric_limits<double>::quiet_NaN());
    unprepared.fill(~uint64_t{0});
  }
};
const Constants& Same() {
  static const Constants constants;
  return constants;
}

}  // namespace

struct Rows::Batch {
  std::vector<uint32_t> tensor, raw, file_commit;  // raw: entry, or kNone; file_commit: of the row's step
  std::vector<int64_t> step;
  // Allocated by the first Prepare.
  struct {
#define TDBG_COLUMN(name, type, ...) std::vector<type> name;
    TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  } statistics;
  std::vector<double> mean_abs;
  std::vector<uint64_t> unknown;
  std::vector<uint32_t> histogram_bytes;
  std::vector<uint8_t> prepared;

  SummaryBatch View(size_t first_commit) const {
    SummaryBatch batch;
    const Constants& same = Same();
    batch.first_commit = static_cast<int64_t>(first_commit);
    batch.rows = tensor.size();
    batch.tensor = tensor.data();
    batch.step_first = batch.step_last = step.data();
    batch.level = batch.flags = reinterpret_cast<const uint32_t*>(same.zeros.data());
    batch.sub = batch.point = reinterpret_cast<const uint16_t*>(same.zeros.data());
    batch.histogram_offset = same.zeros.data();
    if (prepared.empty()) {
      format::ForEachStatistic([&same](auto& column) { column = same.Of(column); }, batch);
      batch.mean_abs = same.nans.data();
      batch.histogram_bytes = reinterpret_cast<const uint32_t*>(same.zeros.data());
      batch.unknown = same.unprepared.data();
      return batch;
    }
    format::ForEachStatistic([](auto& pointer, const auto& column) { pointer = column.data(); }, batch,
                             statistics);
    batch.mean_abs = mean_abs.data();
    batch.histogram_bytes = histogram_bytes.data();
    batch.unknown = unknown.data();
    return batch;
  }

  /// What there is already stays.
  void Allocate() {
    const size_t n = tensor.size();
    format::ForEachStatistic([n](auto& column, auto missing) { column.resize(n, missing); }, statistics,
                             Summary());
    mean_abs.resize(n, Summary::kNaN);
    unknown.resize(n, ~uint64_t{0});
    histogram_bytes.resize(n, 0);
    prepared.resize(n, 0);
  }

  void Set(size_t i, const Summary& s) {
    format::ForEachStatistic([i](auto& column, auto number) { column[i] = number; }, statistics, s);
  }
};

Rows::Rows(const Part& part, Read read) : part_(part), read_(std::move(read)) {}
Rows::~Rows() = default;

void Rows::ForgetIfReordered() {
  if (reordered_ == part_.reordered()) return;
  reordered_ = part_.reordered();
  commits_done_ = 0;
  storage_.clear();
  batches_.clear();
  rows_of_.clear();
  series_.clear();
}

void Rows::BringUpToDate() {
  ForgetIfReordered();
  const size_t commits = part_.commits().size();
  if (commits_done_ == commits) return;
  rows_of_.resize(part_.tensors().size());
  std::vector<uint32_t> row_of(part_.tensors().size(), kNone);  // in the step at hand
  while (commits_done_ < commits) {
    auto batch = std::make_unique<Batch>();
    const size_t first_commit = commits_done_;
    for (; commits_done_ < commits && batch->tensor.size() < kEnoughRows; ++commits_done_) {
      const StepFile& file = part_.file_of(commits_done_);
      const std::span<const Entry> entries = part_.entries_of(file);
      const size_t step_begin = batch->tensor.size();
      for (const Entry& entry : entries) {
        if (entry.kind == EntryKind::kShape) continue;
        uint32_t& row = row_of[entry.tensor];
        if (row == kNone) {
          row = static_cast<uint32_t>(batch->tensor.size());
          batch->tensor.push_back(entry.tensor);
          batch->raw.push_back(kNone);
          batch->step.push_back(file.step);
          batch->file_commit.push_back(static_cast<uint32_t>(commits_done_));
        }
        // If a name was saved several times in a step, the last one counts.
        if (entry.kind == EntryKind::kRaw) batch->raw[row] = part_.index_of(entry);
      }
      for (size_t i = step_begin; i < batch->tensor.size(); ++i) row_of[batch->tensor[i]] = kNone;
    }
    // A step of more tensors than a batch may have rows goes on in the next batches.
    const size_t rows = batch->tensor.size();
    for (size_t begin = 0; begin < rows || begin == 0; begin += kMaxRows) {
      const size_t end = std::min(rows, begin + kMaxRows);
      auto piece = std::make_unique<Batch>();
      const auto cut = [&](const auto& from, auto* to) {
        to->assign(from.begin() + static_cast<ptrdiff_t>(begin), from.begin() + static_cast<ptrdiff_t>(end));
      };
      cut(batch->tensor, &piece->tensor);
      cut(batch->raw, &piece->raw);
      cut(batch->file_commit, &piece->file_commit);
      cut(batch->step, &piece->step);
      for (size_t i = 0; i < piece->tensor.size(); ++i) {
        rows_of_[piece->tensor[i]].push_back(
            {static_cast<uint32_t>(batches_.size()), static_cast<uint32_t>(i), piece->step[i], {}});
      }
      batches_.push_back(piece->View(first_commit));
      storage_.push_back(std::move(piece));
    }
  }
}

std::span<const SummaryBatch> Rows::batches() {
  BringUpToDate();
  return batches_;
}

std::span<const store::WorkerReader::RowRef> Rows::Of(format::TensorId tensor) {
  BringUpToDate();
  return tensor < rows_of_.size() ? std::span<const store::WorkerReader::RowRef>(rows_of_[tensor])
                                  : std::span<const store::WorkerReader::RowRef>();
}

void Rows::Prepare(uint32_t batch_index, uint32_t begin, uint32_t end) {
  BringUpToDate();
  if (batch_index >= storage_.size()) return;
  Batch& batch = *storage_[batch_index];
  if (batch.prepared.empty()) {
    batch.Allocate();
    batches_[batch_index] = batch.View(static_cast<size_t>(batches_[batch_index].first_commit));
  }
  for (uint32_t row = begin; row < end && row < batch.tensor.size(); ++row) {
    if (!batch.prepared[row]) PrepareRow(batch, row);
  }
}

store::WorkerReader::PreparedRows Rows::Series(format::TensorId tensor, int64_t begin, int64_t end) {
  ForgetIfReordered();
  SeriesOfTensor& series = series_[tensor];
  const size_t commits = part_.commits().size();
  for (; series.commits_done < commits; ++series.commits_done) {
    const StepFile& file = part_.file_of(series.commits_done);
    uint32_t raw = kNone;
    bool any = false;
    for (const Entry& entry : part_.entries_of(file)) {
      if (entry.tensor != tensor || entry.kind == EntryKind::kShape) continue;
      any = true;
      if (entry.kind == EntryKind::kRaw) raw = part_.index_of(entry);
    }
    if (!any) continue;
    if (series.storage.empty() || series.storage.back()->tensor.size() == kMaxRows) {
      series.storage.push_back(std::make_unique<Batch>());
      series.batches.emplace_back();
    }
    Batch& batch = *series.storage.back();
    series.rows.push_back({static_cast<uint32_t>(series.storage.size() - 1),
                           static_cast<uint32_t>(batch.tensor.size()),
                           file.step,
                           {}});
    batch.tensor.push_back(tensor);
    batch.raw.push_back(raw);
    batch.step.push_back(file.step);
    batch.file_commit.push_back(static_cast<uint32_t>(series.commits_done));
  }
  for (size_t i = 0; i < series.storage.size(); ++i) {
    Batch& batch = *series.storage[i];
    if (batch.prepared.size() == batch.tensor.size()) continue;
    batch.Allocate();
    series.batches[i] = batch.View(batch.file_commit.front());
  }
  const auto before = [](const store::WorkerReader::RowRef& row, int64_t step) {
    return row.global_step < step;
  };
  const auto first = std::lower_bound(series.rows.begin(), series.rows.end(), begin, before);
  const auto last = std::lower_bound(first, series.rows.end(), std::max(begin, end), before);
  for (auto row = first; row != last; ++row) {
    Batch& batch = *series.storage[row->batch];
    if (!batch.prepared[row->row]) PrepareRow(batch, row->row);
  }
  return {series.batches, {first, last}};
}

void Rows::PrepareRow(Batch& batch, uint32_t row) {
  batch.prepared[row] = 1;
  if (!summarizer_) summarizer_ = std::make_unique<Summarizer>();
  const StepFile& file = part_.file_of(batch.file_commit[row]);
  if (batch.raw[row] != kNone) {
    Summary summary;
    batch.unknown[row] =
        store::SummaryOfValue(read_(file, part_.entry(batch.raw[row])), summarizer_.get(), &summary);
    if (batch.unknown[row] != 0) return;
    batch.Set(row, summary);
    batch.mean_abs[row] = summary.mean_abs();
    batch.histogram_bytes[row] =
        summary.count >= store::kHistogramFrom ? 1 : 0;  // counted when somebody asks
    return;
  }
  SavedNumbers saved;
  bool readable = true;
  for (const Entry& entry : part_.entries_of(file)) {
    if (entry.tensor != batch.tensor[row]) continue;
    if (entry.kind == EntryKind::kShape) {
      saved.shape = &part_.shape(entry.offset);
    } else if (entry.kind != EntryKind::kRaw) {
      const auto value = read_(file, entry);
      readable &= value.ok();
      if (value.ok()) saved.Add(part_.operation(entry.kind), *value, summarizer_.get());
    }
  }
  if (!readable) {
    batch.unknown[row] = store::kUnreadable;
    return;
  }
  Summary summary;
  batch.unknown[row] = saved.ToSummary(&summary, &batch.mean_abs[row]);
  batch.Set(row, summary);
}

Result<Histogram> Rows::HistogramOf(store::WorkerReader::RowRef ref) {
  BringUpToDate();
  if (ref.batch >= storage_.size() || ref.row >= storage_[ref.batch]->tensor.size()) {
    return Internal("histogram of a row that does not exist");
  }
  const Batch& batch = *storage_[ref.batch];
  if (batch.raw[ref.row] == kNone) return NotFound("no histogram: only reductions were saved");
  if (!summarizer_) summarizer_ = std::make_unique<Summarizer>();
  return store::HistogramOfValue(
      read_(part_.file_of(batch.file_commit[ref.row]), part_.entry(batch.raw[ref.row])), summarizer_.get());
}

}  // namespace tdbg::compat::smdebug
