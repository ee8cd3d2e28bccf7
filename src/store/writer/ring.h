// The mapped journal as both threads see it, and what they tell each other about it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "format/journal.h"
#include "format/records.h"
#include "store/writer/signal.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// Borrows the mapping. Positions are logical, see format/journal.h.
struct Ring {
  format::JournalHeader* header = nullptr;
  std::byte* data = nullptr;
  uint64_t bytes = 0;

  /// \pre CheckJournalHeader accepted `mapping`.
  static Ring Over(std::span<std::byte> mapping);
  std::byte* At(uint64_t position) const { return data + position % bytes; }
  /// Bytes from `position` to the ring's end: records never wrap.
  uint64_t Contiguous(uint64_t position) const { return bytes - position % bytes; }
  uint64_t committed() const { return header->committed_pos.load(std::memory_order_acquire); }
  uint64_t sealed() const { return header->sealed_pos.load(std::memory_order_acquire); }
  /// Gives the ring's blocks back to the disk; the header stays, in which readers find losses and heartbeat.
  /// A journal in which damage was counted keeps its ring. Ignored where the file system cannot.
  /// \pre everything is sealed and nobody writes.
  void Release() const;
};

/// Makes a fresh, zeroed mapping a valid journal. The magic goes last: a process that dies here leaves no
/// journal.
void InitJournal(std::span<std::byte> mapping, uint64_t writer_id, uint64_t next_sequence,
                 std::span<const format::Loss> losses_so_far);

/// Adds to the counters in the journal's header. Lock-free; any thread.
void CountLossIn(format::JournalHeader* header, format::LossCause cause, format::LossKind kind, int64_t step,
                 uint64_t count, uint64_t bytes);
/// Counts what sealing found damaged.
void CountDamageIn(format::JournalHeader* header, std::span<const format::Loss> damage);
/// The non-zero counters.
std::vector<format::Loss> LossesIn(const format::JournalHeader& header);

/// Between the training thread and the drain.
struct Handoff {
  // Drain -> training.
  std::atomic<uint32_t> drain_cause{0};   ///< LossCause while sealing fails; 0: all is well
  std::atomic<uint64_t> progress{0};      ///< one more for each write that the disk took
  std::atomic<uint64_t> bytes_sealed{0};  ///< of all segments in the worker's directory
  Signal sealed;                          ///< sealed_pos moved, or drain_cause changed
  // Training -> drain.
  std::atomic<bool> producer_waits{false};  ///< seal what is committed, whatever its size
  std::atomic<bool> seal_all{false};        ///< the same, asked for by End
  std::atomic<bool> stop{false};
  std::atomic<int64_t> sync_until{
      -1};        ///< monotonic: how long to wait for segments to be synced; -1: not said
  Signal work;    ///< something was committed or asked for; nobody waits here while the drain naps
  Signal urgent;  ///< something was asked for that does not wait for the end of a nap

  /// Wakes the drain whatever it is doing. Not for commits: see Drain::Rest.
  void Urge() {
    urgent.Notify();
    work.Notify();
  }

  /// Keeps the first; for one line in the log.
  void NoteError(Status status) noexcept;
  Status first_error() const;

 private:
  mutable std::mutex mutex_;
  Status first_error_;  // guarded by mutex_
};

}  // namespace tdbg::store
