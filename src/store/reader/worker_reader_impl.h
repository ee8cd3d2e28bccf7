// What the reader of our own format holds. For worker_reader.cc (questions) and refresh.cc (news).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "format/records.h"
#include "store/reader/index.h"
#include "store/reader/journal_reader.h"
#include "store/reader/layouts.h"
#include "store/reader/live_tail.h"
#include "store/reader/segment_reader.h"
#include "store/reader/worker_reader.h"

namespace tdbg::store {

inline constexpr uint32_t kJournalSource = ~uint32_t{0};

/// A list of what sealed segments hold, followed by what only the journal has yet (the tail).
template <typename T>
struct SealedTailList {
  std::vector<T> items;
  size_t sealed = 0;
  void CutTail() { items.resize(sealed); }
  void Seal() { sealed = items.size(); }
};

struct WorkerState {
  using RowRef = WorkerReader::RowRef;
  using ScalarPoint = WorkerReader::ScalarPoint;

  std::string directory;
  std::string worker_json;
  format::WorkerInfo info;
  bool opened = false;

  std::unique_ptr<JournalReader> journal;
  JournalSnapshot snapshot;
  bool has_snapshot = false;
  uint64_t listed_pos = ~uint64_t{0}, listed_seq = ~uint64_t{0};  // sealed_* at the last listing
  bool alive = false;
  bool ended = false;
  std::string end_json;
  int64_t last_seen_step = -1, last_seen_wall_nanos = 0;

  std::vector<std::unique_ptr<SegmentReader>> segments;
  std::vector<size_t> segment_commits;        // index of each segment's first commit
  std::vector<CommitColumns> sealed_commits;  // each segment's
  std::vector<format::Commit> tail_commits;   // the journal's, behind them
  std::set<std::string> seen_files;
  uint64_t segment_bytes = 0;
  uint64_t covered_seq = 0;             // segments tell everything up to here
  uint64_t tail_pos = 0, tail_seq = 0;  // the journal has been read up to here
  uint64_t untold_until_seq =
      0;  // records up to here were neither in the journal as read nor, then, in segments
  uint64_t resealed = 0, rewrites = 0;
  LiveTail live;
  std::map<uint64_t, std::unique_ptr<SegmentReader>>
      side_segments;  // opened for a raw value before their turn

  SealedTailList<format::ContextRecord> context;
  SealedTailList<std::string> acks;
  std::unordered_set<uint64_t> seen_context;  // of the sealed prefix: segments may repeat themselves
  std::vector<format::TensorDef> tensors;
  std::multimap<std::string, uint32_t> tensors_by_name;
  std::vector<uint32_t> id_map;  // the current writer's ids
  uint64_t id_map_writer = 0;

  std::vector<Damage> damage;
  std::unordered_set<std::string> damage_seen;

  LayoutPool layouts;
  std::vector<Spot> spots;  // the segments' scratch
  std::vector<SummaryBatch> batches;
  IndexProgress batches_progress;
  TensorLists<RowRef> rows;
  TensorLists<ScalarPoint> scalars;
  TensorLists<RawRef> raws, lone_raws;
  std::vector<RowRef> rows_found;  // the last RowsAt's
  std::vector<RawRef> raws_found;
  std::vector<WorkerReader::TensorScalar> scalars_found;

  void Report(Damage d) {
    // The same bytes are looked at again by every Refresh: say it once.
    if (damage_seen.insert(d.file + '\0' + d.what).second) damage.push_back(std::move(d));
  }
  void ReportAll(std::vector<Damage> list) {
    for (Damage& d : list) Report(std::move(d));
  }

  Status ReadWorkerJson();
  std::string JournalPath() const;
  void OpenJournal();
  bool TakeSnapshot();
  Status AdoptSegments(bool* news);
  Status AdoptSegment(const std::string& name, uint64_t last, bool* news);
  void TakeThinned(std::span<const base::DirEntry> entries, bool* news);
  uint32_t Intern(format::TensorDef def);
  void LearnTensors(uint64_t writer, std::vector<format::TensorDef> defs);
  void RebuildTail();
  Status TakeIn(bool* news);
  void ReadDeadJournalByItsRecords(bool* news);
  void MissJournal();
  Result<bool> Refresh();

  template <typename Index, typename FromSegment, typename FromLive>
  void BringUpToDate(IndexProgress* progress, Index* index, FromSegment from_segment, FromLive from_live);
  CommitList commits() const { return {sealed_commits, segment_commits, tail_commits}; }
  void EnsureBatches();
  void Prepare(uint32_t batch, uint64_t columns);
  std::span<const RowRef> RowsOf(uint32_t tensor);
  std::span<const ScalarPoint> ScalarsOf(uint32_t tensor);
  std::span<const RawRef> RawsOf(uint32_t tensor);
  std::span<const RawRef> LoneRawsOf(uint32_t tensor);
  std::span<const RowRef> RowsAt(uint32_t tensor, int64_t global_step);
  std::span<const RawRef> RawsAt(uint32_t tensor, int64_t global_step);
  std::span<const WorkerReader::TensorScalar> ScalarsAt(int64_t global_step);
  template <typename FromSegment, typename FromLive>
  void EachSourceOf(int64_t global_step, FromSegment from_segment, FromLive from_live) const;
  /// Of one tensor, in commit order; of all steps or of one. \param i  the batch's place in `live`
  void AppendLiveRows(size_t i, const LiveBatch& batch, uint32_t tensor, std::optional<int64_t> global_step,
                      std::vector<RowRef>* out) const;
  /// \param commit  index of the batch's first commit
  void AppendLiveRaws(const LiveBatch& batch, size_t commit, uint32_t tensor,
                      std::optional<int64_t> global_step, std::vector<RawRef>* out) const;
  void AppendRawsOf(size_t segment, uint32_t tensor, std::optional<int64_t> global_step,
                    std::vector<RawRef>* out, std::vector<Damage>* found);
  void SayWhere(size_t segment, size_t from, std::vector<RawRef>* refs) const;
  template <typename FromSegment>
  std::span<const RawRef> BringRawsUpToDate(TensorLists<RawRef>* lists, uint32_t tensor,
                                            FromSegment from_segment);
  Result<Histogram> HistogramOf(RowRef row);
  Result<RawValue> ReadRaw(const RawRef& ref);
  Result<RawValue> MapRaw(const RawRef& ref);
  Result<RawValue> ReadSealedRaw(const RawRef& ref);
};

}  // namespace tdbg::store
