#include "store/writer/journal_writer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/hash.h"

namespace tdbg::store {

using format::DropCause;
using format::DropKind;
using format::RecordType;
using format::SummaryRow;

namespace {

constexpr uint64_t kMaxUnsealedBytes = 4 << 20;

}  // namespace

JournalWriter::JournalWriter(Ring ring, Handoff* handoff, WhenFull when_full, uint64_t budget_bytes,
                             format::TensorId id_base, const base::Clock* clock)
    : ring_(ring),
      handoff_(handoff),
      when_full_(when_full),
      budget_(budget_bytes),
      id_base_(id_base),
      clock_(clock),
      raw_reserve_(RawReserve(ring.bytes)),
      committed_pos_(ring.committed()),
      committed_seq_(ring.header->committed_seq.load(std::memory_order_relaxed)),
      head_(committed_pos_),
      next_sequence_(committed_seq_ + 1) {}

bool JournalWriter::RepairRecords() {
  if (!handoff_->records_damaged.exchange(false, std::memory_order_acq_rel)) return false;
  WriteRecordsAgain();
  return true;
}

void JournalWriter::WriteRecordsAgain() {
  std::vector<std::string> definitions;
  std::vector<Record> others;
  for (Record& record : unsealed_records_) {
    if (record.type == RecordType::kTensorDef) {
      definitions.push_back(std::move(record.json));
    } else {
      others.push_back(std::move(record));
    }
  }
  defs_.insert(defs_.begin(), definitions.begin(), definitions.end());
  again_.insert(again_.begin(), others.begin(), others.end());
  unsealed_records_.clear();
  unsealed_bytes_ = 0;
}

void JournalWriter::ForgetSealedRecords() {
  // In this order: the drain says that a segment lacks something before it says that it is sealed.
  const uint64_t sealed = ring_.sealed();
  if (handoff_->records_damaged.load(std::memory_order_acquire)) return;
  while (!unsealed_records_.empty() && unsealed_records_.front().end_pos <= sealed) {
    unsealed_bytes_ -= unsealed_records_.front().json.size();
    unsealed_records_.pop_front();
  }
}

std::byte* JournalWriter::Begin(uint64_t payload_bytes) {
  const uint64_t contiguous = ring_.Contiguous(head_);
  if (format::RecordBytes(payload_bytes) > contiguous) {
    // Positions and the ring are multiples of 64, so there is always room for the pad's header.
    const auto pad = format::MakeRecordHeader(RecordType::kPad, next_sequence_++, head_,
                                              contiguous - sizeof(format::RecordHeader), 0, 0);
    std::memcpy(ring_.At(head_), &pad, sizeof(pad));
    head_ += contiguous;
  }
  return ring_.At(head_) + sizeof(format::RecordHeader);
}

void JournalWriter::Finish(RecordType type, uint64_t payload_bytes, int64_t step, uint64_t payload_hash,
                           uint64_t prefix_hash) {
  std::byte* const record = ring_.At(head_);
  const uint64_t total = format::RecordBytes(payload_bytes);
  const uint64_t used = sizeof(format::RecordHeader) + payload_bytes;
  std::memset(record + used, 0, total - used);
  const auto header =
      format::MakeRecordHeader(type, next_sequence_++, head_, payload_bytes, step, payload_hash, prefix_hash);
  std::memcpy(record, &header, sizeof(header));
  head_ += total;
}

bool JournalWriter::AppendJson(RecordType type, int64_t step, std::string_view json) {
  if (!FlushDefs() || !MakeRoom(json.size(), Class::kRows)) {
    Shed(DropKind::kSummary, step, 1, json.size(), refusal_);
    return false;
  }
  AddJson(type, step, json);
  open_records_.push_back({type, step, std::string(json), 0});
  return true;
}

void JournalWriter::AddJson(RecordType type, int64_t step, std::string_view json) {
  std::byte* const payload = Begin(json.size());
  const uint64_t hash = base::CopyAndHash64(payload, std::as_bytes(std::span(json)));
  Finish(type, json.size(), step, hash);
}

void JournalWriter::AppendTensorDef(format::TensorDef def) {
  def.id += id_base_;
  defs_.push_back(def.ToJson());
  handoff_->TellDefinition(defs_.back());
  FlushDefs();
}

bool JournalWriter::FlushDefs() {
  // Make room before looking at what comes next: MakeRoom may start another journal, and then puts in front
  // of it what the last one still held.
  const auto room_for = [this](const std::string& json) { return MakeRoom(json.size(), Class::kRows); };
  while (defs_in_ring_ < defs_.size()) {
    const size_t waiting = defs_.size();
    if (!room_for(defs_[defs_in_ring_])) return false;
    if (defs_.size() != waiting) continue;
    const std::string& json = defs_[defs_in_ring_++];
    AddJson(RecordType::kTensorDef, 0, json);
    open_records_.push_back({RecordType::kTensorDef, 0, json, 0});
  }
  while (again_in_ring_ < again_.size()) {
    const size_t waiting = again_.size();
    if (!room_for(again_[again_in_ring_].json)) return false;
    if (again_.size() != waiting || defs_in_ring_ < defs_.size()) return FlushDefs();
    const Record& record = again_[again_in_ring_++];
    AddJson(record.type, record.step, record.json);
  }
  return true;
}

BudgetLevel JournalWriter::budget_level() const {
  // What waits in the journal is counted as if it were sealed already: otherwise a small budget would be
  // overrun by a whole journal before the first segment exists.
  // While there is no journal, nothing waits, and the header speaks of the next one already.
  const uint64_t waiting = ring_.shared != nullptr ? head_ - ring_.sealed() : 0;
  return budget_.LevelAt(handoff_->bytes_sealed.load(std::memory_order_relaxed) + waiting);
}

void JournalWriter::SayOnce(BudgetLevel level) {
  if (level <= said_) return;
  static constexpr const char* kWhat[] = {"", "raw tensors are", "histograms, too, are",
                                          "statistics, too, are"};
  handoff_->NoteError(ResourceExhausted("the budget of " + std::to_string(budget_.bytes()) +
                                        " bytes is nearly used: " + kWhat[static_cast<int>(level)] +
                                        " no longer kept"));
  said_ = level;
}

void JournalWriter::CountDropped(DropCause cause, DropKind kind, int64_t step, uint64_t count,
                                 uint64_t bytes) {
  ring_.CountDropped(cause, kind, step, count, bytes);
}

void JournalWriter::Shed(DropKind kind, int64_t step, uint64_t count, uint64_t bytes, DropCause cause) {
  CountDropped(cause, kind, step, count, bytes);
  shed_ += static_cast<uint32_t>(count);
}

bool JournalWriter::AppendRowBatch(int64_t step, std::span<const SummaryRow> rows,
                                   std::span<const uint8_t> histograms, bool with_histograms,
                                   uint64_t histogram_bytes, bool as_one_block) {
  const uint64_t row_bytes = rows.size_bytes();
  const uint64_t kept_bytes = !with_histograms ? 0 : as_one_block ? histograms.size() : histogram_bytes;
  const uint64_t payload_bytes = sizeof(format::SummariesHeader) + row_bytes + kept_bytes;
  if (!MakeRoom(payload_bytes, Class::kRows)) return false;
  base::CopyingHash payload(Begin(payload_bytes));
  const format::SummariesHeader header{static_cast<uint32_t>(rows.size()), 0, kept_bytes};
  payload.Put(std::as_bytes(std::span(&header, 1)));
  if (id_base_ == 0 && with_histograms && as_one_block) {
    payload.Put(std::as_bytes(rows));
  } else {
    uint32_t at = 0;
    for (SummaryRow row : rows) {
      row.tensor += id_base_;
      if (row.histogram_bytes != 0 && !with_histograms) {
        row.histogram_offset = row.histogram_bytes = 0;
        row.flags |= format::kRowHistogramShed;
      } else if (row.histogram_bytes != 0 && !as_one_block) {
        row.histogram_offset = at;
        at += row.histogram_bytes;
      }
      payload.Put(std::as_bytes(std::span(&row, 1)));
    }
  }
  if (with_histograms && as_one_block) {
    payload.Put(std::as_bytes(histograms));
  } else if (with_histograms) {
    for (const SummaryRow& row : rows) {
      if (row.histogram_bytes == 0) continue;  // its offset means nothing
      payload.Put(std::as_bytes(histograms.subspan(row.histogram_offset, row.histogram_bytes)));
    }
  }
  Finish(RecordType::kSummaries, payload_bytes, step, payload.Finish());
  summary_rows_ += static_cast<uint32_t>(rows.size());
  return true;
}

void JournalWriter::AppendSummaries(int64_t step, std::span<const SummaryRow> rows,
                                    std::span<const uint8_t> histograms) {
  if (rows.empty()) return;
  const auto histogram_bytes_of = [](std::span<const SummaryRow> batch) {
    uint64_t bytes = 0;
    for (const SummaryRow& row : batch) bytes += row.histogram_bytes;
    return bytes;
  };
  for (const SummaryRow& row : rows) {
    if (uint64_t{row.histogram_offset} + row.histogram_bytes <= histograms.size()) continue;
    Shed(DropKind::kSummary, step, rows.size(), rows.size_bytes(),
         DropCause::kUnsupported);  // not a batch at all
    return;
  }
  const BudgetLevel level = budget_level();
  if (level >= BudgetLevel::kNoRows || !FlushDefs()) {
    const bool by_budget = level >= BudgetLevel::kNoRows;
    if (by_budget) SayOnce(level);
    Shed(DropKind::kSummary, step, rows.size(), rows.size_bytes(), by_budget ? DropCause::kBudget : refusal_);
    return;
  }

  // One record of everything would have to fit in one piece; batches of an eighth fit wherever there is room
  // at all.
  const uint64_t batch_limit = ring_.bytes / 8;
  const bool as_one_block = rows.size_bytes() + histograms.size() <= batch_limit;
  while (!rows.empty()) {
    size_t n = rows.size();
    if (!as_one_block) {
      uint64_t bytes = 0;
      for (n = 0; n < rows.size(); ++n) {
        bytes += sizeof(SummaryRow) + rows[n].histogram_bytes;
        if (bytes > batch_limit && n > 0) break;
      }
    }
    const auto batch = rows.first(n);
    rows = rows.subspan(n);
    const uint64_t histogram_bytes = histogram_bytes_of(batch);
    const auto with_histogram = static_cast<uint64_t>(std::count_if(
        batch.begin(), batch.end(), [](const SummaryRow& row) { return row.histogram_bytes != 0; }));
    DropCause cause = DropCause::kBudget;
    if (level < BudgetLevel::kNoHistograms) {
      if (AppendRowBatch(step, batch, histograms, true, histogram_bytes, as_one_block)) continue;
      cause = refusal_;
    } else if (with_histogram != 0) {
      SayOnce(level);
    }
    if (AppendRowBatch(step, batch, histograms, false, 0, as_one_block)) {
      Shed(DropKind::kHistogram, step, with_histogram, histogram_bytes, cause);
    } else {
      Shed(DropKind::kSummary, step, batch.size(), batch.size_bytes() + histogram_bytes, refusal_);
    }
  }
}

void JournalWriter::AppendScalars(int64_t step, std::span<const format::ScalarRow> rows) {
  if (rows.empty()) return;
  const uint64_t bytes = rows.size_bytes();
  const BudgetLevel level = budget_level();
  if (level >= BudgetLevel::kNoRows) {
    SayOnce(level);
    Shed(DropKind::kSummary, step, rows.size(), bytes, DropCause::kBudget);
    return;
  }
  if (!FlushDefs() || !MakeRoom(bytes, Class::kRows)) {
    Shed(DropKind::kSummary, step, rows.size(), bytes, refusal_);
    return;
  }
  base::CopyingHash payload(Begin(bytes));
  for (format::ScalarRow row : rows) {
    row.tensor += id_base_;
    payload.Put(std::as_bytes(std::span(&row, 1)));
  }
  Finish(RecordType::kScalars, bytes, step, payload.Finish());
  scalar_rows_ += static_cast<uint32_t>(rows.size());
}

bool JournalWriter::AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub,
                              const TensorView& view, DropKind worth) {
  const bool is_raw = worth == DropKind::kRaw;
  const uint64_t item = ItemSize(view.dtype);
  const uint64_t data_bytes = view.byte_count();
  if (item == 0 || (view.data == nullptr && data_bytes != 0)) {
    Shed(worth, step, 1, data_bytes, DropCause::kUnsupported);
    return false;
  }
  const BudgetLevel level = budget_level();
  if (level >= (is_raw ? BudgetLevel::kNoRaw : BudgetLevel::kNoRows)) {
    SayOnce(level);
    Shed(worth, step, 1, data_bytes, DropCause::kBudget);
    return false;
  }
  const uint64_t payload_bytes = format::kRawDataOffset + data_bytes;
  if (!FlushDefs() || !MakeRoom(payload_bytes, is_raw ? Class::kRaw : Class::kRows)) {
    Shed(worth, step, 1, data_bytes, refusal_);
    return false;
  }

  format::RawHeader raw;
  raw.tensor = tensor + id_base_;
  raw.sub = sub.sub;
  raw.point = static_cast<uint16_t>(sub.point);
  raw.dtype = static_cast<uint16_t>(view.dtype);
  if (view.shape.size() <= format::kMaxRank) {
    raw.rank = static_cast<uint16_t>(view.shape.size());
    std::copy(view.shape.begin(), view.shape.end(), raw.shape);
  } else {
    raw.rank = 1;
    raw.shape[0] = view.element_count();
    CountDropped(DropCause::kUnsupported, DropKind::kRaw, step, 1, 0);  // its shape is what is lost
  }
  std::byte prefix[format::kRawDataOffset] = {};
  std::memcpy(prefix, &raw, sizeof(raw));
  std::byte* const payload = Begin(payload_bytes);
  const uint64_t prefix_hash = base::CopyAndHash64(payload, prefix);
  std::byte* const data = payload + format::kRawDataOffset;
  uint64_t hash;
  if (view.is_contiguous()) {
    hash = base::CopyAndHash64(data, {static_cast<const std::byte*>(view.data), data_bytes});
  } else {
    // The one hash that is made of what lies in the ring: in pieces that fit into a cache a transposed copy
    // would cost several times as much.
    if (data_bytes != 0) CopyContiguous(view, data);
    hash = base::Hash64({data, data_bytes});
  }
  Finish(RecordType::kRaw, payload_bytes, step, hash, prefix_hash);
  ++raw_tensors_;
  return true;
}

bool JournalWriter::CommitEnd(std::string_view json, const format::Commit& commit) {
  // Definitions that wait for room are not asked to go before it.
  if (MakeRoom(EndPayloadBytes(json.size()), Class::kEnd)) {
    AddJson(RecordType::kEnd, commit.global_step, json);
  } else if (refused_by_renewal()) {
    return false;  // and no commit without it: there may be another journal by now
  } else {
    Shed(DropKind::kSummary, commit.global_step, 1, json.size(), refusal_);
  }
  return CommitAs(Class::kEnd, commit);
}

bool JournalWriter::CommitAs(Class c, format::Commit commit) {
  const bool defs_fit = FlushDefs();
  commit.summary_rows = summary_rows_;
  commit.scalar_rows = scalar_rows_;
  commit.raw_tensors = raw_tensors_;
  commit.shed = shed_;
  if (!MakeRoom(sizeof(commit), c)) {
    // An end is no step, and is tried again where there is another journal.
    if (c != Class::kEnd || !refused_by_renewal())
      CountDropped(refusal_, DropKind::kStep, commit.global_step, 1, open_bytes());
    Rollback();
    return false;
  }
  std::byte* const payload = Begin(sizeof(commit));
  const uint64_t hash = base::CopyAndHash64(payload, std::as_bytes(std::span(&commit, 1)));
  Finish(RecordType::kCommit, sizeof(commit), commit.global_step, hash);
  committed_seq_ = next_sequence_ - 1;
  committed_pos_ = head_;
  ring_.Set(&format::JournalHeader::committed_seq, committed_seq_);
  ring_.Set(&format::JournalHeader::committed_pos, committed_pos_);
  handoff_->committed.Add(committed_pos_, committed_seq_);
  summary_rows_ = scalar_rows_ = raw_tensors_ = shed_ = 0;
  defs_.erase(defs_.begin(), defs_.begin() + static_cast<std::ptrdiff_t>(defs_in_ring_));
  defs_in_ring_ = 0;
  KeepOpenRecords();
  (void)defs_fit;  // those that did not wait for the next step, and no row that needs them was taken
  return true;
}

void JournalWriter::KeepOpenRecords() {
  ForgetSealedRecords();
  const auto in_ring = again_.begin() + static_cast<std::ptrdiff_t>(again_in_ring_);
  open_records_.insert(open_records_.begin(), std::make_move_iterator(again_.begin()),
                       std::make_move_iterator(in_ring));
  again_.erase(again_.begin(), in_ring);
  again_in_ring_ = 0;
  (void)RepairRecords();
  for (Record& record : open_records_) {
    record.end_pos = committed_pos_;
    unsealed_bytes_ += record.json.size();
    unsealed_records_.push_back(std::move(record));
  }
  open_records_.clear();
  // A script that says a page of context at every step must not make us hold a journal's worth of it.
  while (unsealed_bytes_ > kMaxUnsealedBytes) {
    const auto other = std::find_if(unsealed_records_.begin(), unsealed_records_.end(),
                                    [](const Record& r) { return r.type != RecordType::kTensorDef; });
    if (other == unsealed_records_.end()) break;
    unsealed_bytes_ -= other->json.size();
    unsealed_records_.erase(other);
  }
}

void JournalWriter::Forget() {
  head_ = committed_pos_;
  next_sequence_ = committed_seq_ + 1;
  summary_rows_ = scalar_rows_ = raw_tensors_ = shed_ = 0;
  defs_in_ring_ = again_in_ring_ = 0;
  open_records_.clear();
}

void JournalWriter::Discard() {
  std::vector<Record> kept;
  for (Record& record : open_records_) {
    if (record.type != RecordType::kTensorDef) kept.push_back(std::move(record));  // those are in defs_
  }
  Rollback();
  again_.insert(again_.end(), std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
}

bool JournalWriter::Rollback() {
  const bool holds = HoldsJournal();
  const bool was_open = spoiled_ || head_ != committed_pos_;
  // SealLeftovers takes a valid record behind committed_pos for a step that a crash cut off; this one was
  // not.
  if (holds && was_open) std::memset(ring_.At(committed_pos_), 0, sizeof(format::RecordHeader));
  Forget();
  spoiled_ = false;
  return was_open;
}

}  // namespace tdbg::store
