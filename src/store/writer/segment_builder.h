// Turns a range of committed journal records into one segment file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "store/writer/ring.h"
#include "store/writer/tensor_table.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// What a segment records about its origin.
struct SegmentOrigin {
  std::string directory;  ///< <worker>/segments
  std::string run_id;
  int64_t attempt = 0;
  std::string worker;
  uint64_t writer_id = 0;
};

struct SealLimits {
  uint64_t journal_bytes = 64 << 20;  ///< cut at the first commit that reaches this
  /// Rows are copied and become columns in memory before they are written (raw tensors are not); with the
  /// header this keeps the drain's memory under some 32 MiB.
  uint64_t row_bytes = 12 << 20;
  uint64_t header_bytes = 8 << 20;  ///< estimated; safetensors refuses headers beyond 100 MB
};

/// Callbacks while a segment is written. Empty ones are skipped.
struct SealHooks {
  std::function<void()> tick = {};  ///< between writes: the doorbell must not wait for a slow disk
  /// Called after everything is read and before anything is published: is the ring still the one that was
  /// committed? Another process may have written valid records of another run there.
  std::function<Status()> check = {};
  /// As for format::SkipHoles. Called only behind damage.
  std::function<uint64_t(uint64_t)> data_from = [](uint64_t offset) { return offset; };
};

struct SealResult {
  uint64_t end_pos = 0;  ///< sealed up to here
  uint64_t last_sequence = 0;
  uint64_t file_bytes = 0;  ///< 0: the range held nothing but damage, and there is no file
  std::string path;
  std::vector<format::Drop> damage;  ///< what could not be read, each with its kind and step
  uint64_t repeated_keys = 0;        ///< raw values given twice for one key; the last is kept
  uint64_t repeated_bytes = 0;
  int64_t first_step = -1, last_step = -1;
  uint64_t commits = 0;
};

/// Keeps its scratch memory from segment to segment. \threadsafety One thread.
class SegmentBuilder {
 public:
  SegmentBuilder(base::FileSystem* files, SegmentOrigin origin);
  ~SegmentBuilder();

  /// Seals committed records from `begin_pos` on, up to `limits` or `committed_pos`, whichever comes first.
  /// Publishes by rename; the caller then moves sealed_pos. Nothing of a failed attempt stays behind.
  /// A record with a damaged header is lost; if it is a commit, so is its step. The search goes on behind it,
  /// as in a reader.
  /// \param verify  check the hashes of raw tensors' values, too (a dead process's journal). In a living one
  /// these go to the segment as they are, with the hash that they had when they were recorded: a reader finds
  /// damage there.
  /// \param skip_through_sequence  records up to this one are in a segment already
  /// \error those of the file system, and of the check
  Result<SealResult> SealNext(const Ring& ring, uint64_t begin_pos, uint64_t committed_pos,
                              const SealLimits& limits, bool verify, uint64_t skip_through_sequence,
                              TensorTable* tensors, const SealHooks& hooks);

 private:
  struct Content;
  struct Piece;
  void Collect(const Ring& ring, uint64_t begin_pos, uint64_t committed_pos, const SealLimits& limits,
               bool verify, uint64_t skip_through_sequence, TensorTable* tensors, const SealHooks& hooks,
               SealResult* result);
  /// Closes the open step with what there is of it; what its commit counts beyond that is lost.
  void CloseStep(format::Commit commit, SealResult* result);
  /// \error kInternal  a column has other rows than were counted; nothing was written beyond it
  Status LayColumns();
  void LayRaws(const TensorTable& tensors, SealResult* result);
  /// Appends the index, the last of the pieces; all others have their places.
  void LayIndex(std::string_view meta, const TensorTable& tensors, uint64_t begin);
  /// What the segment says about itself, without its tensors: a JSON object that is not closed yet.
  std::string OpenMetaJson(const Ring& ring) const;
  std::string MetadataJson(std::string open_meta, const TensorTable& tensors) const;
  Status WriteFile(const std::string& header, const std::string& path, const SealHooks& hooks);

  base::FileSystem* const files_;
  const SegmentOrigin origin_;
  std::unique_ptr<Content> content_;
  format::TensorId sealed_definitions_ = 0;  ///< an index repeats none that an earlier one has
};

}  // namespace tdbg::store
