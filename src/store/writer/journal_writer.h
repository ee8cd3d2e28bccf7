// The training thread's side of the journal: frames records, sheds what does not fit, publishes steps.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "format/journal.h"
#include "format/records.h"
#include "store/writer/budget.h"
#include "store/writer/ring.h"
#include "store/writer/worker_writer.h"

namespace tdbg::store {

/// Payload bytes of the end record and its commit, counted as one record.
constexpr uint64_t EndPayloadBytes(uint64_t json_bytes) {
  return json_bytes + format::RecordBytes(sizeof(format::Commit));
}

/// See WorkerWriter for what the calls promise; this is their implementation without threads and files.
///
///   filled:  |<------------ raw ------------>|<-- rows, defs -->|<--- commits --->|<-- end -->|
///            0                     ring - reserve     ring - ring/64   ring - kEndReserve
///
/// Each class may fill the ring up to its own mark, so a burst of raw tensors never costs a summary, a
/// commit finds room for itself even when statistics did not, and a training that goes on for long on a full
/// disk can still say how it ended.
/// \threadsafety One thread.
class JournalWriter {
 public:
  /// Borrows both for life. `id_base`: TensorIds that predecessors in this directory used up.
  JournalWriter(Ring ring, Handoff* handoff, WhenFull when_full, uint64_t budget_bytes,
                format::TensorId id_base, const base::Clock* clock);

  void AppendTensorDef(format::TensorDef def);
  void AppendSummaries(int64_t step, std::span<const format::SummaryRow> rows,
                       std::span<const uint8_t> histograms);
  void AppendScalars(int64_t step, std::span<const format::ScalarRow> rows);
  bool AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub, const TensorView& view,
                 format::DropKind worth);
  /// A small record of JSON: context, acknowledgement. False if it did not fit, which is counted.
  bool AppendJson(format::RecordType type, int64_t step, std::string_view json);
  /// False if even the commit record did not fit: the step is lost and counted.
  bool Commit(format::Commit commit) { return CommitAs(Class::kCommit, commit); }
  /// The end's record and its commit. \pre no step is open. Fits always if `json` has at most kMaxEndBytes;
  /// a longer one is left out (and counted) where there is no room. False where there is no journal, or only
  /// half of it went into one that the drain has given up since: refused_by_renewal, and to be done again.
  bool CommitEnd(std::string_view json, const format::Commit& commit);
  /// Whether what was refused last was refused because the journal changes.
  bool refused_by_renewal() const { return refusal_ == format::DropCause::kDamaged; }
  /// Forgets the open step. \return whether there was one.
  bool Rollback();
  /// The same, but the next commit has its definitions, context and acknowledgements.
  void Discard();
  /// Records that the worker was alive at this step, though it kept nothing.
  void Heartbeat(int64_t step, int64_t wall_nanos) {
    if (handoff_->renewal.load(std::memory_order_relaxed) != Renewal::kNone) (void)HoldsJournal();
    ring_.Set(&format::JournalHeader::last_seen_step, step);
    ring_.Set(&format::JournalHeader::last_seen_wall_nanos, wall_nanos);
  }
  /// Waits, at most so long, where the drain is about to make another journal. \pre no step is open.
  void AwaitJournal(int64_t timeout_nanos);
  /// Where a segment could not take records that are written once (definitions, context), the next commit
  /// writes them again. \return whether it will
  bool RepairRecords();
  void SayEnded() { ring_.Set(&format::JournalHeader::ended, uint64_t{1}); }
  void CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                    uint64_t bytes);

  bool RoomForRaw(uint64_t bytes) const;
  uint64_t open_bytes() const { return head_ - committed_pos_; }

 private:
  enum class Class { kRaw, kRows, kCommit, kEnd };
  /// Whether there is a journal to write to. Where the drain wants to make another one, now is when the ring
  /// is let go of: what is open is lost, and so is what is still to come of that step.
  bool HoldsJournal();
  void TakeFresh();
  void ForgetSealedRecords();
  void KeepOpenRecords();
  void WriteRecordsAgain();
  void Forget();  // what is open
  static uint64_t RawReserve(uint64_t ring_bytes);
  uint64_t Limit(Class c) const;
  /// Room for a record of this payload, a pad before it included. Where the policy says so, waits.
  bool MakeRoom(uint64_t payload_bytes, Class c);
  bool WaitForDrain(uint64_t need, uint64_t limit);
  uint64_t Need(uint64_t payload_bytes) const;
  /// \pre MakeRoom. Payload memory of the next record, 64-aligned.
  std::byte* Begin(uint64_t payload_bytes);
  void Finish(format::RecordType type, uint64_t payload_bytes, int64_t step, uint64_t payload_hash,
              uint64_t prefix_hash = 0);
  /// \pre MakeRoom.
  void AddJson(format::RecordType type, int64_t step, std::string_view json);
  bool CommitAs(Class c, format::Commit commit);
  bool FlushDefs();
  BudgetLevel budget_level() const;
  void SayOnce(BudgetLevel level);
  void Shed(format::DropKind kind, int64_t step, uint64_t count, uint64_t bytes, format::DropCause cause);
  /// One record of consecutive rows. False if nothing of it could be kept.
  bool AppendRowBatch(int64_t step, std::span<const format::SummaryRow> rows,
                      std::span<const uint8_t> histograms, bool with_histograms, uint64_t histogram_bytes,
                      bool as_one_block);

  Ring ring_;
  Handoff* const handoff_;
  const WhenFull when_full_;
  const Budget budget_;
  const format::TensorId id_base_;
  const base::Clock* const clock_;
  uint64_t raw_reserve_;

  uint64_t committed_pos_, committed_seq_;  // what the header says of them is for others
  uint64_t head_;                           // end of the open step
  bool spoiled_ = false;                    // the ring was let go of while this step was open
  uint64_t next_sequence_;
  format::DropCause refusal_ = format::DropCause::kJournalFull;  // why MakeRoom last said no
  uint64_t stalled_at_progress_ = ~uint64_t{0};
  BudgetLevel said_ = BudgetLevel::kAll;
  uint32_t summary_rows_ = 0, scalar_rows_ = 0, raw_tensors_ = 0, shed_ = 0;

  // Definitions not committed yet, in order: the first `defs_in_ring_` lie in the open step, the others wait
  // for room. A definition is never dropped: rows without one are noise.
  std::vector<std::string> defs_;
  size_t defs_in_ring_ = 0;

  // What is written once and then relied on (definitions, context, acknowledgements), for as long as it is in
  // no segment: should the journal be lost, the next one begins with it.
  struct Record {
    format::RecordType type;
    int64_t step = 0;
    std::string json;
    uint64_t end_pos = 0;  ///< of the commit that it belongs to
  };
  std::vector<Record> open_records_;
  std::deque<Record> unsealed_records_;
  std::vector<Record> again_;  // for the next journal: the first `again_in_ring_` lie in the open step
  size_t again_in_ring_ = 0;
  uint64_t unsealed_bytes_ = 0;
};

}  // namespace tdbg::store
