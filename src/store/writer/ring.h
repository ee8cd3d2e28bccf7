// The mapped journal as both threads see it, and what they tell each other about it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "format/journal.h"
#include "format/records.h"
#include "store/writer/commit_mark.h"
#include "store/writer/signal.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// Borrows all it points to. Positions are logical, see format/journal.h.
///
/// The header is kept twice. `header` lies in memory of the process alone and is what is believed; `shared`,
/// the mapping's, is only ever written: others can write there, too, and whoever read it back would believe
/// them.
struct Ring {
  format::JournalHeader* header = nullptr;
  format::JournalHeader* shared = nullptr;  ///< null: there is no journal at the moment
  std::byte* data = nullptr;
  uint64_t bytes = 0;

  /// \pre `own` is what a journal of this mapping's size says of itself (NewHeader), or a copy that
  /// CheckJournalHeader and CheckPositions accepted.
  static Ring Over(std::span<std::byte> mapping, format::JournalHeader* own);
  std::byte* At(uint64_t position) const { return data + position % bytes; }
  /// Bytes from `position` to the ring's end: records never wrap.
  uint64_t Contiguous(uint64_t position) const { return bytes - position % bytes; }
  uint64_t committed() const { return header->committed_pos.load(std::memory_order_acquire); }
  uint64_t sealed() const { return header->sealed_pos.load(std::memory_order_acquire); }
  /// Sets a field of the header, in our own copy and in the one that readers see.
  template <typename T>
  void Set(std::atomic<T> format::JournalHeader::* field, T value) const {
    if (shared != nullptr) (shared->*field).store(value, std::memory_order_release);
    (header->*field).store(value, std::memory_order_release);
  }
  /// Adds to the counters. Lock-free; any thread.
  void CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                    uint64_t dropped_bytes) const;
  void CountDropped(const format::Drop& drop) const;
  void CountDropped(std::span<const format::Drop> dropped) const;
  /// Makes a fresh mapping a valid journal that says what `header` says. The magic goes last: a process that
  /// dies here leaves no journal.
  void Publish() const;
  /// Whether `shared` still says what the drain and Publish wrote there, apart from what the training thread
  /// may be writing at this moment. \threadsafety The drain's.
  bool SaysWhatWeWrote() const;
  /// Gives the ring's blocks back to the disk; the header stays, in which readers find its counters and
  /// heartbeat. A journal in which damage was counted keeps its ring. Ignored where the file system cannot.
  /// \pre everything is sealed and nobody writes.
  void Release() const;

 private:
  void PublishDrop(size_t cause, size_t kind) const;
};

/// What a new journal's header says. `own` is set up anew; `mapping_bytes`: the file's.
void NewHeader(format::JournalHeader* own, uint64_t mapping_bytes, uint64_t writer_id, uint64_t next_sequence,
               std::span<const format::Drop> dropped_so_far);
/// The header of the next journal of the same writer, which keeps counters and heartbeat. Everything up to
/// the last commit is in a segment or counted as dropped.
void RenewHeader(format::JournalHeader* own, uint64_t mapping_bytes);

/// The non-zero counters.
std::vector<format::Drop> DropsIn(const format::JournalHeader& header);

/// How the two threads change to another journal (Drain::Tend). Each state is left by one of them.
enum class Renewal : uint32_t {
  kNone = 0,    ///< left by the drain: the journal is not what we wrote any more
  kWanted = 1,  ///< left by the training thread, which lets go of the ring between two calls
  kLetGo = 2,   ///< left by the drain: it has made another one
  kReady = 3,   ///< left by the training thread, which takes it
};

/// Between the training thread and the drain.
struct Handoff {
  // Drain -> training.
  std::atomic<uint32_t> drain_cause{0};   ///< DropCause while sealing fails; 0: all is well
  std::atomic<uint64_t> progress{0};      ///< one more for each write that the disk took
  std::atomic<uint64_t> bytes_sealed{0};  ///< of all segments in the worker's directory
  Signal sealed;                          ///< sealed_pos moved, or drain_cause or renewal changed
  Ring fresh;                             ///< \pre renewal is kReady
  bool fresh_has_all = false;             ///< the same: what was committed before is all in segments
  std::atomic<Renewal> renewal{Renewal::kNone};
  /// While it is kWanted: the journal in memory is good, so the open step may be brought to its end.
  std::atomic<bool> renewal_is_patient{false};
  /// A segment lacks something of what the journal had: definitions and the like are to be written again.
  std::atomic<bool> records_damaged{false};
  // Training -> drain.
  CommitMark committed;                     ///< set by the drain where it starts a journal
  std::atomic<bool> producer_waits{false};  ///< seal what is committed, whatever its size
  std::atomic<bool> seal_all{false};        ///< the same, asked for by End
  std::atomic<bool> stop{false};
  std::atomic<int64_t> sync_until{-1};  ///< monotonic: segments are to be synced by then; -1: not said
  Signal work;    ///< something was committed or asked for; nobody waits here while the drain naps
  Signal urgent;  ///< something was asked for that does not wait for the end of a nap

  /// Wakes the drain whatever it is doing. Not for commits: see Drain::Rest.
  void Urge() {
    urgent.Notify();
    work.Notify();
  }

  /// A definition on its way into the journal: segments repeat all of them, and go by these.
  void TellDefinition(std::string json);
  std::vector<std::string> TakeDefinitions();

  /// Keeps the first; for one line in the log.
  void NoteError(Status status) noexcept;
  Status first_error() const;

 private:
  mutable std::mutex mutex_;
  Status first_error_;                    // guarded by mutex_
  std::vector<std::string> definitions_;  // the same
};

}  // namespace tdbg::store
