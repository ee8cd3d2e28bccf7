#include "capture/recorder.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <numeric>
#include <utility>

#include "capture/thread_scratch.h"
#include "format/overhead.h"
#include "format/scalar_timestamps.h"
#include "plan/groups.h"
#include "tensor/magnitude.h"

namespace tdbg::capture {
namespace {

using plan::kSummaryGroup;
// Histogram offsets are 32 bits, and a step's scratch must stay within the memory that was announced.
constexpr size_t kFlushHistogramsAt = 8u << 20;
constexpr uint64_t kPendingRawLimit = 8u << 20;

}  // namespace

struct Recorder::PendingRaw {
  Id id;
  Place place;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

Recorder::Recorder(plan::CompiledPlan plan, Sink* sink, RecorderOptions options)
    : plan_(std::move(plan)),
      sink_(sink),
      options_(options),
      step_(options.first_step),
      looks_(plan_.plan().overhead, plan_.plan().summaries_every) {
  std::fill(std::begin(mode_steps_), std::end(mode_steps_), 0);
  // A continued training goes on counting where it was; how many evaluations came before is not known.
  mode_steps_[static_cast<int>(ModeKey::kTrain)] = options.first_step;
  mode_steps_[static_cast<int>(ModeKey::kGlobal)] = options.first_step;
  for (const auto& [mode, first] : options.first_mode_steps) mode_steps_[static_cast<int>(mode)] = first;
  scratches_.push_back(std::make_unique<ThreadScratch>());
}

Recorder::~Recorder() = default;

void Recorder::LookEvery(int64_t every) {
  every = std::max<int64_t>(1, every);
  if (every == look_every_) return;
  look_every_ = every;
  looks_.SetSpacing(std::lcm(std::max<int64_t>(1, plan_.plan().summaries_every), every));
  tell_overhead_from_ = global_step() + 1;
}

bool Recorder::MayLook(Id id, uint64_t bytes) {
  if (bytes < LookBudget::kLarge || !looks_.on() || state_ != State::kOpen) return true;
  if ((tensors_[id].summary_groups & due_ & plan::kMoreGroup) != 0) return true;
  return looks_.IsDue(id, mode_step(mode_));
}

void Recorder::AddLarge(Id id, uint64_t bytes) {
  if (bytes >= LookBudget::kLarge) large_.push_back({id, bytes});
}

int64_t Recorder::LookBegins(uint64_t bytes) const {
  return bytes >= LookBudget::kLarge && looks_.on() ? options_.clock->MonotonicNanos() : kNotCounted;
}

template <typename AddAll>
void Recorder::CountLooks(int64_t begun, uint64_t bytes, bool usual, AddAll add_all) {
  if (begun == kNotCounted) return;
  try {
    large_.clear();
    add_all();
    looks_.Looked(large_, bytes, options_.clock->MonotonicNanos() - begun, usual);
  } catch (const std::bad_alloc&) {
    // The rows are there. What they cost is counted with the next ones.
  }
}

std::string Recorder::OverheadJson() const {
  format::Overhead said{
      .from_step = tell_overhead_from_, .share = plan_.plan().overhead, .every = look_every_};
  const std::vector<LookBudget::Rare> rare = looks_.rare();
  said.rare = rare.size();
  for (const LookBudget::Rare& r : rare) {
    if (said.tensors.size() == format::Overhead::kMostTensors) break;
    said.tensors.push_back({std::string(NameOf(r.id)), r.every * looks_.spacing(), r.nanos / 1e6});
  }
  return said.ToJson();
}

bool Recorder::BeginStep(ModeKey mode) {
  if (state_ != State::kBetween) {
    if (state_ == State::kEnd) return false;
    EndStep(false);
  }
  mode_ = mode;
  state_ = State::kOpen;
  const int64_t mode_step = mode == ModeKey::kGlobal ? step_ : mode_steps_[static_cast<int>(mode)];
  due_ = options_.inert ? 0 : plan_.DueGroups(static_cast<int>(mode), mode_step);
  if (step_ < more_end_ && !options_.inert) due_ |= plan::kMoreGroup;
  due_ = plan::LessOften(due_, mode_step, look_every_);
  if ((due_ & plan::kHistogramGroup) != 0) ++histogram_spans_[static_cast<size_t>(mode)];
  if (!(due_ & kSummaryGroup)) {  // put between the steps, and statistics are not due here
    rows_.clear();
    histograms_.clear();
    derived_rows_.clear();
    derived_bytes_.clear();
  }
  if (!pending_raw_.empty()) {
    for (const PendingRaw& p : pending_raw_) {
      if (RawDue(tensors_[p.id])) AppendRaw(p.id, {p.bytes.data(), p.dtype, p.shape, {}}, p.place);
    }
    pending_raw_.clear();
    pending_raw_bytes_ = 0;
  }
  return due_ != 0;
}

bool Recorder::Due(Id id) const {
  const Tensor* t = Find(id);
  return t != nullptr && (((t->summary_groups | t->raw_groups) & due_) != 0 ||
                          (!t->details->derived.empty() && (due_ & kSummaryGroup) != 0));
}

bool Recorder::RawDue(Id id, ModeKey mode, int64_t mode_step) const {
  const Tensor* t = Find(id);
  if (t == nullptr || options_.inert) return false;
  uint64_t due = plan_.DueGroups(static_cast<int>(mode), mode_step);
  if (step_ < more_end_) due |= plan::kMoreGroup;  // requested; the step may be one of those that come
  return t->always || (t->raw_groups & due) != 0;
}

int64_t Recorder::mode_step(ModeKey mode) const {
  if (mode == ModeKey::kGlobal) return global_step();
  const int64_t next = mode_steps_[static_cast<int>(mode)];
  return state_ == State::kOpen && mode == mode_ ? next : next - 1;
}

uint64_t Recorder::DueGroups() const { return state_ == State::kBetween ? kSummaryGroup : due_; }

Place Recorder::Resolved(Place place) const {
  if (state_ == State::kEnd && place.point == StepPoint::kNone) place.point = StepPoint::kEnd;
  return place;
}

bool Recorder::WantsSummary(Id id, DType dtype) {
  const uint64_t due = DueGroups();
  return (tensors_[id].summary_groups & due) != 0 && (IsComplex(dtype) || HasStatisticsOrTold(id, dtype));
}

/// Counts a type without statistics once per tensor, not at every step. Of text nobody misses any.
bool Recorder::HasStatisticsOrTold(Id id, DType dtype) {
  if (HasStatistics(dtype)) return true;
  if (dtype == DType::kText) return false;
  Tensor& t = tensors_[id];
  if (!t.told_unsupported) {
    t.told_unsupported = true;
    sink_->CountDropped(format::DropCause::kUnsupported, format::DropKind::kSummary, step_, 1, 0);
    Explain(format::DropCause::kUnsupported, format::DropKind::kSummary,
            "statistics of " + std::string(NameOf(id)) + ", whose dtype is " + std::string(DTypeName(dtype)));
  }
  return false;
}

void Recorder::Put(Id id, const TensorView& view, Place place_given) {
  if (id >= tensors_.size() || tensors_[id].scalar) return;
  const Place place = Resolved(place_given);
  Look(id, view, place);
  PutRawIfDue(id, view, place);
}

void Recorder::PutSparse(Id id, const TensorView& values, uint64_t elements, Place place) {
  if (id >= tensors_.size() || tensors_[id].scalar) return;
  if (elements >= static_cast<uint64_t>(values.element_count())) Look(id, values, Resolved(place), elements);
}

void Recorder::Look(Id id, const TensorView& view, Place place, std::optional<uint64_t> elements) {
  const uint64_t bytes = view.byte_count();
  if (!MayLook(id, bytes)) return;
  const int64_t begun = LookBegins(bytes);
  if (WantsSummary(id, view.dtype)) {
    Announce(&tensors_[id]);
    if (IsComplex(view.dtype)) {
      FillMagnitudes(id, view, place, /*remember=*/false, elements.value_or(0));
    } else {
      FillOne(id, view, place, /*remember=*/false, elements.value_or(0));
    }
  }
  if (unit_statistics_ != nullptr && !elements) Derive(id, view, place);
  CountLooks(begun, bytes, /*usual=*/true, [&] { AddLarge(id, bytes); });
}

void Recorder::PutRawIfDue(Id id, const TensorView& view, Place place) {
  const Tensor& t = tensors_[id];
  if (RawDue(t)) {
    AppendRaw(id, view, place);
  } else if (WaitsForNextStep(t)) {
    KeepForNextStep(id, view, place);
  }
}

void Recorder::KeepForNextStep(Id id, const TensorView& view, Place place) {
  const uint64_t bytes = view.byte_count();
  if (pending_raw_bytes_ + bytes > kPendingRawLimit) {
    sink_->CountDropped(format::DropCause::kStepTooLarge, format::DropKind::kRaw, step_, 1, bytes);
    return;
  }
  pending_raw_bytes_ += bytes;
  PendingRaw pending{
      id, place, view.dtype, {view.shape.begin(), view.shape.end()}, std::vector<std::byte>(bytes)};
  CopyContiguous(view, pending.bytes.data());
  pending_raw_.push_back(std::move(pending));
}

/// The tensor's derived statistics, while its bytes are still in the cache from the summary.
void Recorder::Derive(Id id, const TensorView& view, Place place) {
  const uint64_t due = DueGroups();
  if (tensors_[id].details->derived.empty() || !(due & kSummaryGroup) || !HasStatisticsOrTold(id, view.dtype))
    return;
  const Details& t = *tensors_[id].details;
  for (const Derived& derived : t.derived) {
    // Of another rank than was defined, it may have no such axis.
    const Status status = unit_statistics_->Compute(derived.statistic, view, t.unit_axis, &derived_value_);
    if (!status.ok()) continue;
    Announce(&tensors_[id]);  // a statistic without its tensor means nothing to a rule
    AddDerivedRow(derived, derived_value_, place);
  }
}

void Recorder::AddDerivedRow(const Derived& derived, const StatisticValue& value, Place place) {
  DerivedRow row{derived.id, place, DType::kInvalid, static_cast<int64_t>(2 + value.values.size()),
                 (derived_bytes_.size() + 7) / 8 * 8};
  derived_bytes_.resize(row.offset);
  row.dtype = AppendStatistic(derived.statistic, value, &derived_bytes_);
  Announce(&tensors_[derived.id]);
  derived_rows_.push_back(row);
  if (derived_bytes_.size() > kFlushHistogramsAt) FlushRows();
}

void Recorder::PutStatistic(Id id, const Statistic& statistic, const StatisticValue& value, Place place) {
  const Tensor* t = Find(id);
  const uint64_t due = DueGroups();
  if (t == nullptr || !(due & kSummaryGroup)) return;
  for (const Derived& derived : t->details->derived) {
    if (derived.statistic != statistic) continue;
    Announce(&tensors_[id]);
    AddDerivedRow(derived, value, Resolved(place));
  }
}

bool Recorder::PutMany(std::span<const Id> ids, std::span<const void* const> data, Place place_given,
                       std::span<const uint8_t> unchanged) {
  const Place place = Resolved(place_given);
  const size_t n = std::min(ids.size(), data.size());
  work_.clear();
  nonfinite_ = false;
  remembers_ = unchanged.size() == n && n != 0;
  uint64_t bytes = 0;
  bool raw = false;
  for (size_t i = 0; i < n; ++i) {
    const Id id = ids[i];
    if (id >= tensors_.size() || tensors_[id].scalar) continue;
    if (remembers_ && !unchanged[i]) {  // also where nothing is due, or nothing is there: nobody looks then
      LastRow* const last = LastOf(id);
      last->holds = false;
    }
    if (data[i] == nullptr) {
      if (remembers_ && unchanged[i] && WantsSummary(id, tensors_[id].dtype))
        RepeatRow(id, place, /*readable=*/false);
      continue;
    }
    if (WantsSummary(id, tensors_[id].dtype)) {
      Announce(&tensors_[id]);
      const bool may_look = MayLook(id, tensors_[id].bytes);
      const bool repeats = remembers_ && unchanged[i] && (unchanged[i] != Run::kWorthALook || !may_look);
      if (repeats && RepeatRow(id, place, /*readable=*/may_look)) {
        // said again
      } else if (!may_look) {
        // too dear for this step
      } else if (const Tensor& t = tensors_[id]; IsComplex(t.dtype)) {
        FillMagnitudes(id, {data[i], t.dtype, t.details->shape, {}}, place, remembers_);
      } else {
        work_.push_back(static_cast<uint32_t>(i));
        bytes += tensors_[id].bytes;
      }
    }
    raw |= RawDue(tensors_[id]) || WaitsForNextStep(tensors_[id]);
  }
  const int64_t begun = LookBegins(bytes);
  if (!work_.empty()) FillRows(ids, data, place, bytes);
  if (const bool derived = unit_statistics_ != nullptr; raw || derived) {
    for (size_t i = 0; i < n; ++i) {
      if (ids[i] >= tensors_.size() || data[i] == nullptr) continue;
      const Tensor& t = tensors_[ids[i]];
      const TensorView view{data[i], t.dtype, t.details->shape, {}};
      if (derived && MayLook(ids[i], t.bytes)) Derive(ids[i], view, place);
      PutRawIfDue(ids[i], view, place);
    }
  }
  CountLooks(begun, bytes, /*usual=*/!raw, [&] {
    for (const uint32_t i : work_) AddLarge(ids[i], tensors_[ids[i]].bytes);
  });
  return nonfinite_;
}

void Recorder::PutSummary(Id id, const Summary& summary, std::span<const HistogramBucket> histogram,
                          Place place_given) {
  if (id >= tensors_.size() || tensors_[id].scalar) return;
  const uint64_t due = DueGroups();
  if (!(tensors_[id].summary_groups & due)) return;
  Announce(&tensors_[id]);
  format::SummaryRow& row = rows_.emplace_back(format::ToRow(id, KeyOf(Resolved(place_given)), summary));
  ++counters_.summaries;
  if (histogram.data() == nullptr || !HasHistogram(tensors_[id], static_cast<int64_t>(row.count))) return;
  if (HistogramDue(tensors_[id], static_cast<int64_t>(row.count)))
    AddHistogram(histogram, &row, &histograms_);
  if (FinishRow(&row)) {
    row.flags = 0;
    AddHistogram(histogram, &row, &histograms_);
  }
  FlushRowsIfMany();
}

void Recorder::PutRaw(Id id, const TensorView& view, Place place_given) {
  if (id >= tensors_.size() || tensors_[id].scalar) return;
  PutRawIfDue(id, view, Resolved(place_given));
}

void Recorder::PutScalar(Id id, double value, Place place_given) {
  if (id >= tensors_.size() || !tensors_[id].scalar) return;
  const Place place = Resolved(place_given);
  format::ScalarRow row;
  row.tensor = id;
  row.sub = place.sub;
  row.point = static_cast<uint16_t>(place.point);
  row.value = value;
  Announce(&tensors_[id]);
  scalars_.push_back(row);
  ++counters_.scalars;
}

void Recorder::PutContext(std::string_view topic, std::string_view json) {
  // What the script itself says of its values is no context of ours.
  if (options_.inert || (!plan_.plan().context && topic != format::kScalarTimestamps)) return;
  std::string& last = context_[std::string(topic)];
  if (last == json) return;
  last = json;
  sink_->AppendContext({StepOfRecords(), std::string(topic), last});
  recorded_ = true;
}

void Recorder::Explain(format::DropCause cause, format::DropKind kind, std::string_view detail) {
  unsaid_details_ |= drop_details_.Add(cause, kind, detail);
}

void Recorder::AppendRaw(Id id, const TensorView& view, Place place) {
  Announce(&tensors_[id]);
  // Statistics are worth more than raw bytes: they must not find the journal full of those.
  FlushRows();
  recorded_ = true;  // shed or not: the step says what is missing
  if (sink_->AppendRaw(StepOfRecords(), id, KeyOf(place), view, format::DropKind::kRaw)) ++counters_.raws;
}

void Recorder::FlushRowsIfMany() {
  if (rows_.size() >= kFlushRowsAt || histograms_.size() > kFlushHistogramsAt) FlushRows();
}

void Recorder::FlushRows() {
  if ((rows_.empty() && derived_rows_.empty()) || state_ == State::kBetween) return;
  const int64_t step = StepOfRecords();
  if (!rows_.empty()) sink_->AppendSummaries(step, rows_, histograms_);
  for (const DerivedRow& row : derived_rows_) {
    const TensorView view{derived_bytes_.data() + row.offset, row.dtype, {&row.length, 1}, {}};
    sink_->AppendRaw(step, row.id, KeyOf(row.place), view, format::DropKind::kSummary);
  }
  rows_.clear();
  histograms_.clear();
  derived_rows_.clear();
  derived_bytes_.clear();
  recorded_ = true;
}

void Recorder::Commit(int64_t step, int64_t mode_step, uint32_t flags) {
  FlushRows();
  if (!scalars_.empty()) {
    sink_->AppendScalars(step, scalars_);
    scalars_.clear();
  }
  if (unsaid_details_) {
    sink_->AppendContext({step, std::string(format::DropDetails::kTopic), drop_details_.ToJson()});
    unsaid_details_ = false;
  }
  format::Commit commit;
  commit.global_step = step;
  commit.mode_step = mode_step;
  commit.wall_nanos = options_.clock->WallNanos();
  commit.monotonic_nanos = options_.clock->MonotonicNanos();
  commit.flags = flags;
  commit.mode = static_cast<uint16_t>(mode_);
  sink_->Commit(commit);
  uncommitted_defs_ = false;
}

bool Recorder::HoldsAnything() const {
  return recorded_ || !rows_.empty() || !derived_rows_.empty() || !scalars_.empty();
}

int64_t Recorder::EndStep(bool skipped) {
  if (state_ != State::kOpen) return -1;
  const int64_t closed = step_;
  if (looks_.asked() && looks_.StepEnded(options_.clock->MonotonicNanos())) tell_overhead_from_ = step_ + 1;
  // A step in which something was due is a step of the run even if every tensor was absent: that is an
  // answer. One in which nothing was due is not, and only the heartbeat says that it passed.
  if ((due_ != 0 && plan_.plan().empty_steps) || HoldsAnything()) {
    if (tell_overhead_from_ >= 0) {
      sink_->AppendContext({step_, std::string(format::kOverhead), OverheadJson()});
      tell_overhead_from_ = -1;
    }
    Commit(step_, mode_step(mode_), skipped ? format::kCommitSkipped : 0);
    recorded_ = false;
  } else {
    sink_->Heartbeat(step_, options_.clock->WallNanos());
  }
  ++counters_.steps;
  if (mode_ != ModeKey::kGlobal) ++mode_steps_[static_cast<int>(mode_)];
  ++step_;
  due_ = 0;
  state_ = State::kBetween;
  return closed;
}

void Recorder::CancelStep() {
  if (state_ != State::kOpen) return;
  if (HoldsAnything()) {
    EndStep(false);
    return;
  }
  due_ = 0;
  state_ = State::kBetween;
}

void Recorder::LeaveStep() {
  if (state_ != State::kOpen) return;
  rows_.clear();
  histograms_.clear();
  derived_rows_.clear();
  derived_bytes_.clear();
  std::move(scalars_.begin(), scalars_.end(), std::back_inserter(left_scalars_));
  scalars_.clear();
  if (std::exchange(recorded_, false)) {
    sink_->Discard();
    uncommitted_defs_ = true;  // and context: what comes next commits them
  }
  due_ = 0;
  state_ = State::kBetween;
}

void Recorder::BeginEnd() {
  if (state_ == State::kEnd) return;
  EndStep(false);
  // Put after the last step, for a step that never came.
  constexpr auto kEnd = static_cast<uint16_t>(StepPoint::kEnd);
  for (format::SummaryRow& row : rows_) row.point = row.point == 0 ? kEnd : row.point;
  std::move(left_scalars_.begin(), left_scalars_.end(), std::back_inserter(scalars_));
  left_scalars_.clear();
  for (format::ScalarRow& row : scalars_) row.point = row.point == 0 ? kEnd : row.point;
  for (DerivedRow& row : derived_rows_) {
    if (row.place.point == StepPoint::kNone) row.place.point = StepPoint::kEnd;
  }
  pending_raw_.clear();
  state_ = State::kEnd;
  due_ = !options_.inert && plan_.plan().record_end ? ~uint64_t{0} : 0;
}

void Recorder::FinishEnd() {
  if (state_ != State::kEnd) BeginEnd();
  // Definitions without a value after them would otherwise be a step half made, and counted as lost.
  if (uncommitted_defs_ || unsaid_details_ || HoldsAnything()) {
    Commit(step_ - 1, mode_ == ModeKey::kGlobal ? step_ - 1 : mode_steps_[static_cast<int>(mode_)] - 1,
           format::kCommitOutside);
    recorded_ = false;
  }
}

}  // namespace tdbg::capture
