// Rows of a batch: by the calling thread alone, or shared by the threads of its OpenMP team.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "capture/openmp_team.h"
#include "capture/recorder.h"
#include "capture/thread_scratch.h"
#include "plan/groups.h"
#include "stats/floating_point_mode.h"
#include "tensor/magnitude.h"

namespace tdbg::capture {
namespace {

constexpr int64_t kHistogramFrom = 256;  // elements; smaller tensors' values can be kept instead
constexpr int kMaxThreads = 16;  // memory's speed is reached before that, and each has 350 KiB of scratch
// What a thread takes at a time: 20 us of work, against 0.1 us for taking it.
constexpr uint64_t kShareBytes = 128u << 10;
// A tensor of more is cut into pieces of this many, whoever takes them: its statistics are the same for any
// number of threads but one.
constexpr int64_t kPieceElements = 128 << 10;

/// Asks for the beginnings of the tensors that come next while one is being summed. Nothing of them is in a
/// cache when a step ends, and what the processor fetches ahead by itself it finds out anew in each.
class MemoryAhead {
 public:
  bool wants_more() const { return asked_ < kMaxBytes; }
  void Ask(const void* data, uint64_t bytes) {
    const auto* line = static_cast<const char*>(data);
    const auto* const end = line + std::min(bytes, kMaxBytes);
    for (; line < end; line += kLine) __builtin_prefetch(line);
    asked_ += std::min(bytes, kMaxBytes);
  }
  /// One of `bytes` is done. The first was not asked for.
  void Had(uint64_t bytes) { asked_ -= std::min(asked_, std::min(bytes, kMaxBytes)); }

 private:
  static constexpr uint64_t kMaxBytes = 8192;
  static constexpr uint64_t kLine = 64;
  uint64_t asked_ = 0;
};

/// work(k) for each k of [begin, end), the memory of those that come next being asked for meanwhile.
/// memory_of(k): {where its values lie, bytes}.
template <typename MemoryOf, typename Work>
void EachWithMemoryAhead(size_t begin, size_t end, MemoryOf memory_of, Work work) {
  MemoryAhead ahead;
  size_t next = begin;
  for (size_t k = begin; k < end; ++k) {
    for (next = std::max(next, k + 1); next < end && ahead.wants_more(); ++next) {
      const auto [data, bytes] = memory_of(next);
      ahead.Ask(data, bytes);
    }
    work(k);
    ahead.Had(memory_of(k).second);
  }
}

/// While it lives each of two vectors is the other.
class Exchanged {
 public:
  Exchanged(std::vector<uint8_t>* a, std::vector<uint8_t>* b) : a_(*a), b_(*b) { a_.swap(b_); }
  ~Exchanged() { a_.swap(b_); }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  std::vector<uint8_t>& a_;
  std::vector<uint8_t>& b_;
};

}  // namespace

/// The rows that a call adds. Where it does not come to its end (no memory) they are taken back: one without
/// its statistics would be one of the first tensor's, and pieces_ point to memory that is the caller's again.
class Recorder::Adding {
 public:
  Adding(Recorder* recorder, size_t rows)
      : recorder_(*recorder),
        rows_(rows),
        rows_before_(recorder->rows_.size()),
        histograms_before_(recorder->histograms_.size()) {}
  ~Adding() {
    if (done_) return;
    Recorder& r = recorder_;
    r.rows_.resize(rows_before_);
    r.histograms_.resize(histograms_before_);
    r.pieces_.clear();
    r.parts_ = 0;
    // But for the one that is counted by who catches what went wrong.
    if (rows_ > 1)
      r.sink_->CountDropped(format::DropCause::kAdaptorError, format::DropKind::kSummary, r.step_, rows_ - 1,
                            0);
  }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;
  void Done() {
    recorder_.counters_.summaries += recorder_.rows_.size() - rows_before_;
    done_ = true;
  }

 private:
  Recorder& recorder_;
  const size_t rows_;
  const size_t rows_before_;
  const size_t histograms_before_;
  bool done_ = false;
};

void Recorder::ShareThreads(int threads) {
  const int team_size = OpenMpTeam::Available() ? std::clamp(threads, 1, kMaxThreads) : 1;
  while (static_cast<int>(scratches_.size()) < team_size)
    scratches_.push_back(std::make_unique<ThreadScratch>());
  scratches_.resize(static_cast<size_t>(team_size));
}

/// Of a shape that does not vary the plan has decided, of a part by the size of the whole.
bool Recorder::HasHistogram(const Tensor& t, int64_t elements) {
  return t.histogram_groups != 0 && (!t.variable_shape || elements >= kHistogramFrom);
}

bool Recorder::HistogramDue(const Tensor& t, int64_t elements) const {
  // Put between the steps it belongs to the next one, and of that nothing is known yet.
  const uint64_t due = state_ == State::kBetween ? ~uint64_t{0} : due_;
  return (t.histogram_groups & due) != 0 && HasHistogram(t, elements);
}

bool Recorder::FinishRow(format::SummaryRow* row) {
  nonfinite_ |= (row->nan_count | row->pos_inf_count | row->neg_inf_count) != 0;
  const Tensor& t = tensors_[row->tensor];
  if (!HasHistogram(t, static_cast<int64_t>(row->count))) return false;
  const bool due = row->histogram_bytes != 0;
  if (!due) row->flags |= format::kRowHistogramNotDue;
  // The histogram of a whole needs all parts, and other workers do not see this one: there only steps decide.
  if (plan_.plan().histograms_every <= plan_.plan().summaries_every) return false;
  if ((t.histogram_groups & plan::kHistogramGroup) == 0 || t.part) return false;
  const auto mode = static_cast<size_t>(mode_);
  std::vector<RecentRange>& recent = recent_[mode];
  if (recent.size() < tensors_.size()) recent.resize(tensors_.size());
  return recent[row->tensor].Leaves(*row, histogram_spans_[mode]) && !due;
}

void Recorder::FillRow(ThreadScratch* scratch, Id id, const TensorView& view, Place place, bool histogram,
                       format::SummaryRow* row) const {
  Summary summary;
  // Types without statistics were sorted out before.
  (void)scratch->summarizer.Summarize(view, &summary, histogram ? &scratch->histogram : nullptr);
  *row = format::ToRow(id, KeyOf(place), summary);
  if (histogram) AddHistogram(scratch->histogram, row, &scratch->bytes);
}

void Recorder::AddHistogram(std::span<const HistogramBucket> histogram, format::SummaryRow* row,
                            std::vector<uint8_t>* bytes) {
  const size_t before = bytes->size();
  EncodeHistogram(histogram, bytes);
  row->histogram_offset = static_cast<uint32_t>(before);
  row->histogram_bytes = static_cast<uint32_t>(bytes->size() - before);
}

void Recorder::AddZeros(uint64_t elements, format::SummaryRow* row) {
  const uint64_t zeros = elements - row->count;
  if (zeros == 0) return;
  Summary of_zeros;
  of_zeros.count = of_zeros.zero_count = zeros;
  of_zeros.min = of_zeros.max = of_zeros.mean = of_zeros.variance = of_zeros.m3 = of_zeros.m4 = 0;
  of_zeros.l1 = of_zeros.l2 = of_zeros.abs_min = of_zeros.abs_max = 0;
  const format::SummaryRow before = *row;
  *row = format::ToRow(before.tensor, {before.sub, static_cast<format::Point>(before.point)},
                       Merge(format::FromRow(before), of_zeros));
  row->flags = before.flags;
  row->histogram_offset = before.histogram_offset;
  row->histogram_bytes = before.histogram_bytes;
}

void Recorder::FillOne(Id id, const TensorView& view, Place place, bool remember, uint64_t elements) {
  Adding adding(this, 1);
  rows_.emplace_back();
  const auto fill = [&](bool histogram) {
    if (Shares(view.byte_count()) && view.is_contiguous()) {
      AddPieces(id, view, rows_.size() - 1, histogram);
      FillShared(place);
    } else {
      ThreadScratch* scratch = scratches_[0].get();
      const Exchanged histograms(&scratch->bytes, &histograms_);
      FillRow(scratch, id, view, place, histogram, &rows_.back());
    }
    if (elements != 0) AddZeros(elements, &rows_.back());
  };
  fill(HistogramDue(tensors_[id], elements != 0 ? static_cast<int64_t>(elements) : view.element_count()));
  if (FinishRow(&rows_.back())) fill(true);
  if (remember) RememberRow(id, rows_.back());
  adding.Done();
  FlushRowsIfMany();
}

void Recorder::FillMagnitudes(Id id, const TensorView& view, Place place, bool remember, uint64_t elements) {
  const std::vector<double> magnitudes = Magnitudes(view);
  FillOne(id, {magnitudes.data(), DType::kFloat64, view.shape, {}}, place, remember, elements);
}

void Recorder::FillRows(std::span<const Id> ids, std::span<const void* const> data, Place place,
                        uint64_t bytes) {
  const auto view_of = [&](size_t k) {
    const uint32_t i = work_[k];
    const Tensor& t = tensors_[ids[i]];
    return TensorView{data[i], t.dtype, {&t.elements, 1}, {}};
  };
  if (Shares(bytes)) {
    Adding adding(this, work_.size());
    const size_t first = rows_.size();
    rows_.resize(first + work_.size());
    const auto due = [&](size_t k) {
      const Tensor& t = tensors_[ids[work_[k]]];
      return HistogramDue(t, t.elements);
    };
    for (size_t k = 0; k < work_.size(); ++k) AddPieces(ids[work_[k]], view_of(k), first + k, due(k));
    FillShared(place);
    for (size_t k = 0; k < work_.size(); ++k) {
      if (FinishRow(&rows_[first + k])) AddPieces(ids[work_[k]], view_of(k), first + k, true);
    }
    if (!pieces_.empty()) FillShared(place);
    RememberRows(ids, 0, work_.size(), first);
    adding.Done();
    FlushRowsIfMany();
    return;
  }
  const stats::FloatingPointMode once(true);
  ThreadScratch* scratch = scratches_[0].get();
  for (size_t begin = 0; begin < work_.size();) {
    Adding adding(this, work_.size() - begin);
    const size_t first = rows_.size();
    const size_t room = first < kFlushRowsAt ? kFlushRowsAt - first : kFlushRowsAt;
    const size_t end = std::min(begin + room, work_.size());
    rows_.resize(first + (end - begin));
    {
      const Exchanged histograms(&scratch->bytes, &histograms_);
      EachWithMemoryAhead(
          begin, end, [&](size_t k) { return std::pair(data[work_[k]], tensors_[ids[work_[k]]].bytes); },
          [&](size_t k) {
            const Tensor& t = tensors_[ids[work_[k]]];
            format::SummaryRow* const row = &rows_[first + (k - begin)];
            FillRow(scratch, ids[work_[k]], view_of(k), place, HistogramDue(t, t.elements), row);
            if (FinishRow(row)) FillRow(scratch, ids[work_[k]], view_of(k), place, true, row);
          });
    }
    RememberRows(ids, begin, end, first);
    adding.Done();
    begin = end;
    FlushRowsIfMany();
  }
}

/// Of a tensor that is what it was when its last row was made: that row once more. False: there is none, or
/// it lacks the histogram that is due and the tensor can be read. Where it cannot, a row without the
/// histogram is better than a step without the row.
bool Recorder::RepeatRow(Id id, Place place, bool readable) {
  const Tensor& t = tensors_[id];
  if (t.last == Tensor::kNever) return false;
  const LastRow& last = last_rows_[t.last];
  const bool due = HistogramDue(t, t.elements);
  if (!last.holds || (due && last.histogram.empty() && readable)) return false;
  Adding adding(this, 1);
  format::SummaryRow& row = rows_.emplace_back(last.row);
  row.sub = place.sub;
  row.point = static_cast<uint16_t>(place.point);
  row.flags = row.histogram_offset = row.histogram_bytes = 0;
  if (due && !last.histogram.empty()) {
    row.histogram_offset = static_cast<uint32_t>(histograms_.size());
    row.histogram_bytes = static_cast<uint32_t>(last.histogram.size());
    histograms_.insert(histograms_.end(), last.histogram.begin(), last.histogram.end());
  }
  (void)FinishRow(&row);  // what does not change leaves no range, and is part of it
  adding.Done();
  ++counters_.repeats;
  FlushRowsIfMany();
  return true;
}

auto Recorder::LastOf(Id id) -> LastRow* {
  Tensor& t = tensors_[id];
  if (t.last == Tensor::kNever) {
    t.last = static_cast<uint32_t>(last_rows_.size());
    last_rows_.emplace_back();
  }
  return &last_rows_[t.last];
}

namespace {

bool SameStatistics(format::SummaryRow a, const format::SummaryRow& b) {
  a.sub = b.sub;
  a.point = b.point;
  a.flags = b.flags;
  a.histogram_offset = b.histogram_offset;
  a.histogram_bytes = b.histogram_bytes;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

/// The rows from `first_row` on, of work_[begin, end), may be asked for again.
void Recorder::RememberRows(std::span<const Id> ids, size_t begin, size_t end, size_t first_row) {
  if (!remembers_) return;
  for (size_t k = begin; k < end; ++k) RememberRow(ids[work_[k]], rows_[first_row + (k - begin)]);
}

void Recorder::RememberRow(Id id, const format::SummaryRow& row) {
  const auto histogram = histograms_.begin() + row.histogram_offset;
  LastRow& last = *LastOf(id);
  // Whoever looks again now and then, to be sure, finds the same numbers to the last bit. Its
  // histogram then stays good for the steps at which one is due.
  const bool keep = row.histogram_bytes == 0 && SameStatistics(row, last.row);
  last.row = row;
  last.holds = true;
  if (!keep) last.histogram.assign(histogram, histogram + row.histogram_bytes);
}

void Recorder::AddPieces(Id id, const TensorView& view, size_t row, bool histogram) {
  const int64_t elements = view.element_count();
  // Sums of float64 may leave its range: the Summarizer knows what to do then, a merge does not.
  const bool cut = elements > kPieceElements && view.dtype != DType::kFloat64;
  const int64_t each = cut ? kPieceElements : elements;
  int64_t from = 0;
  do {
    const auto* const data =
        static_cast<const std::byte*>(view.data) + static_cast<size_t>(from) * ItemSize(view.dtype);
    const uint32_t part = cut ? parts_++ : Piece::kWhole;
    pieces_.push_back(
        {data, std::min(each, elements - from), id, static_cast<uint32_t>(row), part, view.dtype, histogram});
    from += each;
  } while (from < elements);
}

void Recorder::FillShared(Place place) {
  struct Part {
    Summary summary;
    Histogram histogram;
  };
  std::vector<Part> parts(std::exchange(parts_, 0));
  std::vector<uint8_t> lane_of(pieces_.size());
  std::vector<uint32_t> shares;  // ends of runs of about kShareBytes
  uint64_t run = 0;
  for (size_t k = 0; k < pieces_.size(); ++k) {
    run += pieces_[k].bytes();
    if (run < kShareBytes && k + 1 < pieces_.size()) continue;
    shares.push_back(static_cast<uint32_t>(k + 1));
    run = 0;
  }
  for (auto& scratch : scratches_) scratch->bytes.clear();

  std::atomic<size_t> next{0};
  OpenMpTeam::Run(static_cast<int>(scratches_.size()), [&](int number) {
    const stats::FloatingPointMode once(true);
    ThreadScratch* const scratch = scratches_[static_cast<size_t>(number)].get();
    const auto memory_of = [&](size_t k) { return std::pair(pieces_[k].data, pieces_[k].bytes()); };
    const auto fill = [&](size_t k) {
      const Piece& piece = pieces_[k];
      const TensorView view{piece.data, piece.dtype, {&piece.elements, 1}, {}};
      lane_of[k] = static_cast<uint8_t>(number);
      if (piece.part == Piece::kWhole)
        return FillRow(scratch, piece.id, view, place, piece.histogram, &rows_[piece.row]);
      Part& part = parts[piece.part];
      (void)scratch->summarizer.Summarize(view, &part.summary, piece.histogram ? &part.histogram : nullptr);
    };
    for (size_t s; (s = next.fetch_add(1, std::memory_order_relaxed)) < shares.size();) {
      EachWithMemoryAhead(s == 0 ? 0 : shares[s - 1], shares[s], memory_of, fill);
    }
  });

  // Rows are in the order they were given, whoever made them; each thread's bytes follow one another.
  std::vector<uint32_t> offset_of(scratches_.size());
  for (size_t l = 0; l < scratches_.size(); ++l) {
    offset_of[l] = static_cast<uint32_t>(histograms_.size());
    histograms_.insert(histograms_.end(), scratches_[l]->bytes.begin(), scratches_[l]->bytes.end());
  }
  for (size_t k = 0; k < pieces_.size();) {
    const Piece& piece = pieces_[k];
    format::SummaryRow& row = rows_[piece.row];
    if (piece.part == Piece::kWhole) {
      if (row.histogram_bytes != 0) row.histogram_offset += offset_of[lane_of[k]];
      ++k;
      continue;
    }
    Part whole = std::move(parts[piece.part]);
    for (++k; k < pieces_.size() && pieces_[k].row == piece.row; ++k) {
      const Part& part = parts[pieces_[k].part];
      whole.summary = Merge(whole.summary, part.summary);
      whole.histogram = MergeHistograms(whole.histogram, part.histogram);
    }
    row = format::ToRow(piece.id, KeyOf(place), whole.summary);
    if (piece.histogram) AddHistogram(whole.histogram, &row, &histograms_);
  }
  pieces_.clear();
}

}  // namespace tdbg::capture
