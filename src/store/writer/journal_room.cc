// Whether there is room in the journal, and a journal at all: what the training thread waits for.
#include <algorithm>

#include "store/writer/journal_writer.h"

namespace tdbg::store {

using format::DropCause;

namespace {

// A disk that takes no write for this long is treated as broken: training must not hang with it.
constexpr int64_t kStallNanos = 30'000'000'000;
constexpr int64_t kWaitSliceNanos = 100'000'000;

// Twice, since the pad before a record that would wrap is smaller than the record.
constexpr uint64_t kEndReserve = 2 * format::RecordBytes(EndPayloadBytes(kMaxEndBytes));

}  // namespace

uint64_t JournalWriter::RawReserve(uint64_t ring_bytes) {
  return std::min(std::max<uint64_t>(ring_bytes / 16, 256 << 10), ring_bytes / 2);
}

bool JournalWriter::HoldsJournal() {
  switch (handoff_->renewal.load(std::memory_order_acquire)) {
    case Renewal::kNone:
      break;
    case Renewal::kWanted:
      if (head_ != committed_pos_ && !spoiled_ &&
          handoff_->renewal_is_patient.load(std::memory_order_relaxed))
        return true;
      spoiled_ = head_ != committed_pos_;
      Forget();
      ForgetSealedRecords();
      ring_.shared = nullptr;
      handoff_->renewal.store(Renewal::kLetGo, std::memory_order_release);
      handoff_->Urge();
      if (when_full_ == WhenFull::kBlock) AwaitJournal(kStallNanos);
      return handoff_->renewal.load(std::memory_order_relaxed) == Renewal::kNone && !spoiled_;
    case Renewal::kLetGo:
      return false;
    case Renewal::kReady:
      TakeFresh();
      break;
  }
  return !spoiled_;
}

void JournalWriter::TakeFresh() {
  ring_ = handoff_->fresh;
  raw_reserve_ = RawReserve(ring_.bytes);
  head_ = committed_pos_ = ring_.committed();
  ring_.Publish();  // with what was counted and seen meanwhile
  if (handoff_->fresh_has_all) {
    unsealed_records_.clear();
    unsealed_bytes_ = 0;
  }
  WriteRecordsAgain();
  handoff_->renewal.store(Renewal::kNone, std::memory_order_release);
}

void JournalWriter::AwaitJournal(int64_t timeout_nanos) {
  const int64_t until = clock_->MonotonicNanos() + timeout_nanos;
  for (;;) {
    const uint32_t ticket = handoff_->sealed.Ticket();
    if (HoldsJournal() || handoff_->renewal.load(std::memory_order_relaxed) == Renewal::kNone) return;
    const int64_t left = until - clock_->MonotonicNanos();
    if (left <= 0) return;
    handoff_->sealed.Wait(ticket, left);
  }
}

uint64_t JournalWriter::Limit(Class c) const {
  switch (c) {
    case Class::kRaw:
      return ring_.bytes - raw_reserve_;
    case Class::kRows:
      return ring_.bytes - ring_.bytes / 64;
    case Class::kCommit:
      return ring_.bytes - kEndReserve;
    case Class::kEnd:
      break;
  }
  return ring_.bytes;
}

uint64_t JournalWriter::Need(uint64_t payload_bytes) const {
  const uint64_t record = format::RecordBytes(payload_bytes);
  const uint64_t contiguous = ring_.Contiguous(head_);
  return record <= contiguous ? record : contiguous + record;
}

bool JournalWriter::MakeRoom(uint64_t payload_bytes, Class c) {
  if (!HoldsJournal()) {
    refusal_ = DropCause::kDamaged;
    return false;
  }
  const uint64_t limit = Limit(c);
  if (payload_bytes > limit) {
    refusal_ = DropCause::kStepTooLarge;
    return false;
  }
  const uint64_t need = Need(payload_bytes);
  if (head_ + need - ring_.sealed() <= limit) return true;
  // The open step alone is larger than what fits: waiting for the drain would never end.
  if (open_bytes() + need > limit) {
    refusal_ = DropCause::kStepTooLarge;
    return false;
  }
  if (when_full_ == WhenFull::kBlock) return WaitForDrain(need, limit);
  const uint32_t cause = handoff_->drain_cause.load(std::memory_order_relaxed);
  refusal_ = cause != 0 ? static_cast<DropCause>(cause) : DropCause::kJournalFull;
  return false;
}

bool JournalWriter::WaitForDrain(uint64_t need, uint64_t limit) {
  uint64_t progress = handoff_->progress.load(std::memory_order_relaxed);
  int64_t since = clock_->MonotonicNanos();
  for (;;) {
    const uint32_t ticket = handoff_->sealed.Ticket();
    if (head_ + need - ring_.sealed() <= limit) break;
    if (handoff_->renewal.load(std::memory_order_acquire) != Renewal::kNone) {
      handoff_->producer_waits.store(false, std::memory_order_relaxed);
      (void)HoldsJournal();
      refusal_ = DropCause::kDamaged;
      return false;
    }
    if (const uint32_t cause = handoff_->drain_cause.load(std::memory_order_acquire)) {
      refusal_ = static_cast<DropCause>(cause);
      handoff_->producer_waits.store(false, std::memory_order_relaxed);
      return false;
    }
    const uint64_t now_progress = handoff_->progress.load(std::memory_order_relaxed);
    if (now_progress != progress) {
      progress = now_progress;
      since = clock_->MonotonicNanos();
    } else if (progress == stalled_at_progress_ || clock_->MonotonicNanos() - since > kStallNanos) {
      // Later steps do not wait again until the disk has made progress.
      stalled_at_progress_ = progress;
      handoff_->NoteError(
          Unavailable("the disk took no write for 30 s; raw tensors are dropped until it does"));
      refusal_ = DropCause::kIoError;
      return false;
    }
    handoff_->producer_waits.store(true, std::memory_order_release);
    handoff_->Urge();
    handoff_->sealed.Wait(ticket, kWaitSliceNanos);
  }
  handoff_->producer_waits.store(false, std::memory_order_relaxed);
  return true;
}

bool JournalWriter::RoomForRaw(uint64_t bytes) const {
  if (budget_level() >= BudgetLevel::kNoRaw) return false;
  if (handoff_->renewal.load(std::memory_order_relaxed) != Renewal::kNone) return false;
  const uint64_t limit = Limit(Class::kRaw);
  if (bytes > limit) return false;
  const uint64_t need = Need(format::kRawDataOffset + bytes);
  const bool waits =
      when_full_ == WhenFull::kBlock && handoff_->drain_cause.load(std::memory_order_relaxed) == 0;
  return (waits ? open_bytes() : head_ - ring_.sealed()) + need <= limit;
}

}  // namespace tdbg::store
