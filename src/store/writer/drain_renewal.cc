// The drain's care for its journal: whether it and the lock are still ours, and the change to another one.
#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <string_view>

#include "base/bus_guard.h"
#include "base/catching.h"
#include "base/posix.h"
#include "store/writer/drain_files.h"

namespace tdbg::store {
namespace {

constexpr std::string_view kNextJournalSuffix = ".new";
// Something that cuts the journal short every minute gets a new one of 256 MiB each time, but not every
// second.
constexpr int64_t kFirstRenewalPauseNanos = 1'000'000'000;
constexpr int64_t kLastRenewalPauseNanos = 60'000'000'000;

}  // namespace

/// \error kDataLoss  what lies in the journal is not what we wrote
Status Drain::CheckJournal() const {
  if (!files_->journal->intact()) return DataLoss("the journal was cut short while it was written");
  if (!ring_.SaysWhatWeWrote()) return DataLoss("the journal was overwritten while it was written");
  return OkStatus();
}

void Drain::LookAtLock() {
  const bool in_place = InPlace();  // takes it again where a script has closed its descriptor
  const int retaken = files_->lock->times_retaken();
  if (retaken == times_retaken_) return;
  times_retaken_ = retaken;
  handoff_->NoteError(
      FailedPrecondition("the script closed a descriptor that was not its own: the lock on the run's files "
                         "was lost and taken again"));
  // A process that took the lock in between has sealed our journal and made one of its own.
  if (in_place && !files_->journal->IsAt(options_.journal_path)) files_->lock->Disown();
}

/// Checks that the journal is still ours. If it is not, the drain makes a new one; the training thread leaves
/// the old one between two of its calls and then takes the new one.
/// \return whether there is a journal to seal from
bool Drain::Tend(int64_t now, bool stop) {
  Renewal state = handoff_->renewal.load(std::memory_order_acquire);
  if (state == Renewal::kReady) return true;
  if (state == Renewal::kNone) {
    base::ArmBusGuard();
    LookAtLock();
    Status trouble = CheckJournal();
    only_moved_ = trouble.ok();
    if (only_moved_) {
      if (files_->journal->IsAt(options_.journal_path) || !InPlace()) return true;
      trouble = NotFound("the journal was removed while it was written");
    }
    handoff_->NoteError(trouble.Annotate("recording goes on in a new one"));
    if (!PrepareRenewal(now)) return only_moved_;
    handoff_->renewal_is_patient.store(only_moved_, std::memory_order_relaxed);
    handoff_->renewal.store(state = Renewal::kWanted, std::memory_order_release);
    handoff_->sealed.Notify();
  }
  // Once it says stop, the training thread has nothing in hand any more.
  if (state == Renewal::kWanted && !stop) return false;
  Renew();
  return true;
}

bool Drain::PrepareRenewal(int64_t now) {
  if (files_->next_journal != nullptr) return true;
  if (now < renew_at_) return false;
  renewal_pause_ = std::clamp(renewal_pause_ * 2, kFirstRenewalPauseNanos, kLastRenewalPauseNanos);
  renew_at_ = now + renewal_pause_;
  Status prepared = base::Catching([this]() -> Status {
    TDBG_RETURN_IF_ERROR(files_->lock->CheckInPlace());
    const std::string path = options_.journal_path + std::string(kNextJournalSuffix);
    if (options_.files->Exists(path)) TDBG_RETURN_IF_ERROR(options_.files->Remove(path));
    TDBG_ASSIGN_OR_RETURN(files_->next_journal, MapJournal(path));
    return OkStatus();
  });
  if (prepared.ok()) return true;
  TellError(std::move(prepared));
  return false;
}

void Drain::Renew() {
  while (only_moved_ && Pending() != 0 && SealOne()) {
  }
  const CommitMark::Mark last = handoff_->committed.Get();
  const uint64_t lost_bytes = last.position - ring_.sealed();
  files_->journal = std::move(files_->next_journal);
  RenewHeader(own_header_.get(), files_->journal->bytes().size());
  handoff_->committed.StartJournal(last.sequence);
  ring_ = Ring::Over(files_->journal->bytes(), own_header_.get());
  CountLostCommits(last.count, lost_bytes);
  ring_.Publish();
  NothingWritten();
  Status published = base::Catching([this]() -> Status {
    TDBG_RETURN_IF_ERROR(files_->lock->CheckInPlace());
    const std::string path = options_.journal_path + std::string(kNextJournalSuffix);
    if (::rename(path.c_str(), options_.journal_path.c_str()) != 0) {
      return base::PathError(errno, "cannot put the new journal in its place", options_.journal_path);
    }
    // If another run was copied over this one, worker.json, which leads to the journal, was replaced, too.
    return files_->own->WriteFileAtomic(base::JoinPath(options_.worker_directory, format::kWorkerFile),
                                        files_->worker_json);
  });
  // Then it is in memory that nobody finds, and Tend tries again.
  if (!published.ok()) handoff_->NoteError(std::move(published));
  handoff_->fresh = ring_;
  handoff_->fresh_has_all = lost_bytes == 0;
  handoff_->renewal.store(Renewal::kReady, std::memory_order_release);
  handoff_->sealed.Notify();
}

}  // namespace tdbg::store
