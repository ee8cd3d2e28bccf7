// The drain thread: everything that touches a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "format/journal.h"
#include "store/writer/ring.h"
#include "store/writer/segment_builder.h"
#include "store/writer/tensor_table.h"
#include "store/writer/worker_writer.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// Opens the worker's files on its own thread, then seals what the training thread commits until told to
/// stop.
///
/// Errors of the disk are told to the training thread by cause (Handoff::drain_cause) and retried with
/// growing pauses; nothing sealed or committed is ever given up while the process lives. Exceptions (most
/// likely out of memory) are handled the same way: one that left the thread would end the
/// training.
class Drain {
 public:
  /// Starts the thread and waits until it has the lock, the journal and worker.json.
  static Result<std::unique_ptr<Drain>> Start(const WriterOptions& options, Handoff* handoff);
  /// Seals what is committed (one last attempt if the disk refuses), waits for the syncs until
  /// Handoff::sync_until, unlocks.
  ~Drain();

  /// The one that Start made. \pre nothing is written yet
  Ring ring() const { return ring_; }
  format::TensorId id_base() const { return id_base_; }
  /// Whether the worker's directory is still the one that Start found. Any thread, until the destructor.
  bool InPlace() const;

 private:
  Drain(const WriterOptions& options, Handoff* handoff);
  struct Files;  // lives on the drain thread
  Status OpenFiles();
  void GiveUpFiles() noexcept;
  Result<std::unique_ptr<base::MappedFile>> MapJournal(const std::string& path) const;
  void Run();
  bool Tend(int64_t now, bool stop);
  Status CheckJournal() const;
  void LookAtLock();
  bool PrepareRenewal(int64_t now);
  void Renew();
  void TakeDamage(const SealResult& sealed);
  void CountLostCommits(uint64_t commits, uint64_t bytes);
  uint64_t Pending() const;  // bytes
  void Rest(uint32_t ticket, uint32_t urgent_ticket, int64_t now, int64_t timeout_nanos);
  void RingDoorbell();
  int64_t SyncPatience() const;
  bool WantsSeal(int64_t now) const;
  bool SealOne();
  Status TrySealOne();
  void CountSealed(uint64_t file_bytes);
  void LookForFreedRoom(int64_t now);
  void TellError(Status status) noexcept;
  void NothingWritten();  // into the ring: how far its pages have been touched
  void TouchAhead();

  // Constant after Start returned.
  const WriterOptions options_;
  Handoff* const handoff_;
  const std::unique_ptr<format::JournalHeader> own_header_;
  format::TensorId id_base_ = 0;

  // Drain thread's. (The ring is the training thread's, too: it has a copy, and see Renewal.)
  Ring ring_;
  std::unique_ptr<Files> files_;
  uint64_t segment_bytes_ = 0;
  int64_t retry_nanos_ = 0;       // pause before the next attempt; 0: the last one succeeded
  int64_t retry_at_ = 0;          // monotonic
  int64_t pending_since_ = -1;    // monotonic; -1: nothing waits
  uint64_t rested_sequence_ = 0;  // committed when it last rested
  int64_t lively_until_ = 0;      // monotonic; naps instead of sleep until then
  uint64_t touched_pos_ = 0;
  uint64_t previous_committed_ = 0;
  uint64_t known_commits_ = 0;   // in segments, or told as lost
  bool end_asked_ = false;       // the end's request to seal all was seen
  bool commits_hidden_ = false;  // damage was found, and with it there may be commits that nothing tells of
  int64_t sealed_step_ = -1;     // the last one
  int64_t undamaged_step_ = -1;  // the last one before that damage
  bool only_moved_ = false;      // the journal in our memory is good, its path leads elsewhere
  int64_t renew_at_ = 0;         // monotonic
  int64_t renewal_pause_ = 0;    // before the next one
  int times_retaken_ = 0;        // the lock, as far as that was looked at
  int64_t recount_at_ = 0;       // monotonic

  std::thread thread_;
};

}  // namespace tdbg::store
