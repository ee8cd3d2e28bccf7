#include "store/writer/worker_writer.h"

#include <algorithm>

#include "store/writer/drain.h"
#include "store/writer/journal_writer.h"

namespace tdbg::store {
namespace {

// A full disk is seldom empty again while somebody waits for the end of a training. What is committed stays
// in the journal, from which `tdbg run` or the next start seals it.
constexpr int64_t kPatienceWithARefusal = 1'000'000'000;
// For the journal that replaces one which was cut short; the disk may be slow.
constexpr int64_t kPatienceWithANewJournal = 5'000'000'000;

}  // namespace

// In this order: the drain uses the handoff, the journal writer uses the drain's mapping.
struct WorkerWriter::Impl {
  explicit Impl(const WriterOptions& options) : clock(options.clock) {}
  const base::Clock* const clock;
  Handoff handoff;
  std::unique_ptr<Drain> drain;
  std::unique_ptr<JournalWriter> journal;
  const format::JournalHeader* header = nullptr;  // the drain thread's: private memory of this process
  bool all_sealed() const {
    return header->sealed_pos.load(std::memory_order_acquire) ==
           header->committed_pos.load(std::memory_order_acquire);
  }
  int64_t last_step = 0;
};

WorkerWriter::WorkerWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<WorkerWriter>> WorkerWriter::Open(WriterOptions options) {
  auto impl = std::make_unique<Impl>(options);
  TDBG_ASSIGN_OR_RETURN(impl->drain, Drain::Start(options, &impl->handoff));
  impl->header = impl->drain->ring().header;
  impl->journal =
      std::make_unique<JournalWriter>(impl->drain->ring(), &impl->handoff, options.when_full,
                                      options.budget_bytes, impl->drain->id_base(), options.clock);
  return std::unique_ptr<WorkerWriter>(new WorkerWriter(std::move(impl)));
}

WorkerWriter::~WorkerWriter() {
  if (impl_ == nullptr) return;
  impl_->journal->Rollback();
}

// After Close or Abandon impl_ is null, and every call does nothing: a script that has ended its run, or the
// child of a fork, may still hold the object.

void WorkerWriter::AppendTensorDef(const format::TensorDef& def) {
  if (impl_ != nullptr) impl_->journal->AppendTensorDef(def);
}

void WorkerWriter::AppendSummaries(int64_t step, std::span<const format::SummaryRow> rows,
                                   std::span<const uint8_t> histograms) {
  if (impl_ != nullptr) impl_->journal->AppendSummaries(step, rows, histograms);
}

void WorkerWriter::AppendScalars(int64_t step, std::span<const format::ScalarRow> rows) {
  if (impl_ != nullptr) impl_->journal->AppendScalars(step, rows);
}

bool WorkerWriter::AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub,
                             const TensorView& view, format::DropKind worth) {
  return impl_ != nullptr && impl_->journal->AppendRaw(step, tensor, sub, view, worth);
}

void WorkerWriter::AppendContext(const format::ContextRecord& record) {
  if (impl_ == nullptr) return;
  impl_->journal->AppendJson(format::RecordType::kContext, record.global_step, format::ContextToJson(record));
}

void WorkerWriter::AppendAck(int64_t step, std::string_view json) {
  if (impl_ != nullptr) impl_->journal->AppendJson(format::RecordType::kAck, step, json);
}

void WorkerWriter::Discard() {
  if (impl_ != nullptr) impl_->journal->Discard();
}

void WorkerWriter::Commit(format::Commit commit) {
  if (impl_ == nullptr) return;
  impl_->last_step = commit.global_step;
  (void)impl_->journal->Commit(commit);  // what does not fit is counted there
  // Also for a step that was lost: on a full disk StalledTrainingRule must not take the training for stalled.
  Heartbeat(commit.global_step, commit.wall_nanos);
  impl_->handoff.work.Notify();
}

void WorkerWriter::Heartbeat(int64_t step, int64_t wall_nanos) {
  if (impl_ == nullptr) return;
  impl_->journal->Heartbeat(step, wall_nanos);
}

void WorkerWriter::CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                                uint64_t bytes) {
  if (impl_ != nullptr) impl_->journal->CountDropped(cause, kind, step, count, bytes);
}

void WorkerWriter::End(std::string_view json, int64_t timeout_nanos) {
  if (impl_ == nullptr) return;
  JournalWriter& journal = *impl_->journal;
  // An open step was never promised to anybody, and the end must not make half of one visible.
  if (journal.Rollback()) {
    journal.CountDropped(format::DropCause::kCrashed, format::DropKind::kStep, impl_->last_step, 1, 0);
  }
  format::Commit commit;
  commit.global_step = impl_->last_step;
  commit.flags = format::kCommitOutside;
  commit.wall_nanos = impl_->clock->WallNanos();
  commit.monotonic_nanos = impl_->clock->MonotonicNanos();

  Handoff& handoff = impl_->handoff;
  handoff.seal_all.store(true, std::memory_order_release);
  const int64_t begin = impl_->clock->MonotonicNanos();
  handoff.sync_until.store(begin + timeout_nanos, std::memory_order_relaxed);
  const auto renewing = [&] { return handoff.renewal.load(std::memory_order_acquire) != Renewal::kNone; };
  // Again where the last segment tells that somebody has overwritten what it was to take, and where the drain
  // finds only now that the journal was cut short: before the end is written, after it, or in the middle.
  bool missed = false;
  for (int round = 0; round < 3; ++round) {
    journal.AwaitJournal(std::min(timeout_nanos, kPatienceWithANewJournal));
    const bool written = journal.CommitEnd(json, commit);
    if (written) journal.SayEnded();
    missed = !written && journal.refused_by_renewal();
    // What was refused before is tried again now: only a refusal of that is one to have little patience with.
    handoff.drain_cause.store(0, std::memory_order_release);
    handoff.Urge();
    for (;;) {
      const uint32_t ticket = handoff.sealed.Ticket();
      const bool refused = handoff.drain_cause.load(std::memory_order_acquire) != 0;
      const int64_t patience = refused ? std::min(timeout_nanos, kPatienceWithARefusal) : timeout_nanos;
      const int64_t left = begin + patience - impl_->clock->MonotonicNanos();
      if (renewing() || impl_->all_sealed() || left <= 0) break;
      handoff.sealed.Wait(ticket, left);
    }
    if (!renewing() && !missed && !journal.RepairRecords()) break;
  }
  if (missed) {
    journal.CountDropped(format::DropCause::kDamaged, format::DropKind::kSummary, impl_->last_step, 1,
                         json.size());
  }
}

void WorkerWriter::Close() {
  if (impl_ == nullptr) return;
  if (impl_->header->ended.load(std::memory_order_relaxed) == 0 || !impl_->all_sealed()) return;
  last_ = {dropped(), last_error(), bytes_sealed()};
  const std::lock_guard guard(closing_);
  impl_.reset();
}

void WorkerWriter::Abandon() {
  // Leaked on purpose: destructors would join a thread that does not exist in this process, and unlock and
  // write files that belong to the parent.
  (void)impl_.release();
}

bool WorkerWriter::InPlace() const { return impl_ != nullptr && impl_->drain->InPlace(); }

bool WorkerWriter::RoomForRaw(uint64_t bytes) const {
  return impl_ != nullptr && impl_->journal->RoomForRaw(bytes);
}

std::vector<format::Drop> WorkerWriter::dropped() const {
  const std::lock_guard guard(closing_);
  return impl_ != nullptr ? DropsIn(*impl_->header) : last_.dropped;
}

Status WorkerWriter::last_error() const {
  const std::lock_guard guard(closing_);
  return impl_ != nullptr ? impl_->handoff.first_error() : last_.error;
}

uint64_t WorkerWriter::bytes_sealed() const {
  const std::lock_guard guard(closing_);
  return impl_ != nullptr ? impl_->handoff.bytes_sealed.load(std::memory_order_relaxed) : last_.bytes_sealed;
}

}  // namespace tdbg::store
