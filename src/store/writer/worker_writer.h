// Writes one worker's part of a run: the journal on the caller's thread, segments on a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "format/journal.h"
#include "format/records.h"
#include "format/run_files.h"
#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::store {

/// When the journal has no room. Correctness is the same; what differs is who waits.
enum class WhenFull : uint8_t {
  kDropRaw = 0,  ///< the default: training never waits; raw goes first, then histograms, then statistics
  kBlock = 1,    ///< training waits for the drain, for as long as it makes progress; nothing is dropped
};

/// The longest JSON of an end record (how the worker ended).
constexpr uint64_t kMaxEndBytes = 2048;

struct WriterOptions {
  std::string worker_directory;  ///< <run>/<attempt>/<worker>, exists
  std::string journal_path;      ///< where the journal lies; usually <worker_directory>/journal
  format::WorkerInfo worker;     ///< written to worker.json (writer_id and journal_path filled in)
  std::string run_id;
  int64_t attempt = 0;
  /// Directories of this worker in other attempts. What it left there as it died is sealed in the background.
  std::vector<std::string> earlier_directories;
  WhenFull when_full = WhenFull::kDropRaw;
  uint64_t journal_bytes = 256u << 20;  ///< file size; halved until it fits the disk, at least 1 MiB
  uint64_t segment_bytes =
      0;  ///< seal at this many journal bytes; 0: a quarter of the journal, at most 32 MiB
  uint64_t budget_bytes =
      8ull << 30;  ///< of segments for this worker; 0: no limit. Thins raw, then histograms
  int64_t seal_interval_nanos =
      0;                ///< also seal when the oldest unsealed commit is this old; 0: by size only
  bool durable = true;  ///< fdatasync each segment (off the training thread)
  base::FileSystem* files = &base::LocalFileSystem();
  const base::Clock* clock = &base::SystemClock();
};

/// One worker, one training thread (or several under the caller's lock), one drain thread inside.
///
/// Between commits, Append* calls belong to the open step. Nothing of a step is visible to readers before
/// Commit. None of these calls throws, signals, or fails: what does not fit is counted (dropped()).
/// \threadsafety All calls from one thread at a time, except dropped(), last_error().
class WorkerWriter {
 public:
  /// Takes the worker's lock, seals what a dead predecessor left in this directory, pre-allocates and maps
  /// the journal, starts the drain thread. All file operations happen on that thread, with every signal
  /// blocked.
  /// \error kFailedPrecondition  the lock is held; kResourceExhausted  no room for even the smallest journal.
  static Result<std::unique_ptr<WorkerWriter>> Open(WriterOptions options);
  /// Commits nothing; seals what is committed; ends the drain thread; releases the lock.
  ~WorkerWriter();

  /// Definitions survive in the journal and in every later segment. Cheap enough for the hot path's first
  /// sight only.
  void AppendTensorDef(const format::TensorDef& def);
  /// `histograms` holds the bytes that the rows' histogram_offset/bytes refer to.
  /// Sheds histograms, then rows, when the journal is full (never under kBlock).
  void AppendSummaries(int64_t step, std::span<const format::SummaryRow> rows,
                       std::span<const uint8_t> histograms);
  void AppendScalars(int64_t step, std::span<const format::ScalarRow> rows);
  /// Copies the tensor (C order). False if it was shed; the drop is counted. `worth` says when it is shed and
  /// as what: kRaw before, or kSummary together with statistics (tensors that are statistics themselves).
  bool AppendRaw(int64_t step, format::TensorId tensor, format::SubKey sub, const TensorView& view,
                 format::DropKind worth = format::DropKind::kRaw);
  void AppendContext(const format::ContextRecord& record);
  void AppendAck(int64_t step, std::string_view json);

  /// Publishes the open step. Row counts and `shed` are filled in here. When it returns, the step survives
  /// the death of the process. Rings the drain thread, which rings the doorbell.
  void Commit(format::Commit commit);
  /// Forgets the open step, which is none after all. Definitions, context and acknowledgements of it are in
  /// the next commit.
  void Discard();
  /// "We were looking": no record is written. A few instructions.
  void Heartbeat(int64_t step, int64_t wall_nanos);
  /// Counts something the caller lost (adaptor errors, unsupported dtypes).
  void CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                    uint64_t bytes);

  /// Records why the job ended, for which room is kept if it takes at most kMaxEndBytes, and seals
  /// everything. Waits for the drain, at most `timeout_nanos`; where the disk refuses, a second.
  /// Close may wait for what is left of that time.
  void End(std::string_view json, int64_t timeout_nanos);
  /// After End: ends the drain thread, gives the journal's disk space and memory back, releases the lock. The
  /// counters stay; other calls do nothing from then on. Waits for segments to be synced as long as End was
  /// given; those that take longer are synced while the process lives, and the journal's space stays taken.
  /// Where something is unsealed (a disk that refuses), nothing happens: the drain goes on trying for as long
  /// as the object lives.
  void Close();
  /// Whether its directory is still where it was: false once that was removed or moved, whoever is there now.
  bool InPlace() const;
  /// Forgets everything without touching files or threads: for the child after fork().
  void Abandon();

  /// Would a raw tensor of this size be kept now? (Budget and journal; an estimate.)
  bool RoomForRaw(uint64_t bytes) const;
  /// A snapshot of the counters.
  std::vector<format::Drop> dropped() const;
  /// First error of the drain thread, for one line in the log; OK if none.
  Status last_error() const;
  uint64_t bytes_sealed() const;

 private:
  struct Impl;
  /// What is left to ask of a closed one.
  struct Counters {
    std::vector<format::Drop> dropped;
    Status error;
    uint64_t bytes_sealed = 0;
  };
  explicit WorkerWriter(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;  // null once closed or abandoned
  mutable std::mutex closing_;  // held while impl_ goes and while another thread may look at the counters
  Counters last_;               // of a closed one
};

/// Seals what a dead process left in `worker_directory`'s journal into segments, leaves the journal empty of
/// sealed records, and counts an uncommitted step as lost. No-op if the lock is held or nothing is left.
/// Used by the same worker's next attempt and by `tdbg run` when its job is gone.
/// \param stop  looked at between two segments; the rest is left to the next one
Status SealLeftovers(base::FileSystem& files, const std::string& worker_directory,
                     const std::atomic<bool>* stop = nullptr);

}  // namespace tdbg::store
