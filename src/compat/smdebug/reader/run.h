// An smdebug run's directory: its workers as they appear, their index files as they come, and whether it has
// ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compat/smdebug/reader/collections_file.h"
#include "compat/smdebug/reader/part.h"
#include "compat/smdebug/reader/root.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"

namespace tdbg::compat::smdebug {

/// Shared by the readers of its workers. Refresh is the only call that looks for news. Never writes, reads no
/// event file. \threadsafety one thread
class Run : public std::enable_shared_from_this<Run> {
 public:
  /// Is there anything that only smdebug makes? A path that does not exist is none.
  static bool IsAt(const std::string& path);
  /// \error kNotFound
  static Result<std::shared_ptr<Run>> Open(const std::string& path);

  /// Takes in index files that came since. Costs a look at each folder of a thousand steps, and reading what
  /// is new.
  Result<bool> Refresh();

  /// In order of first sight: those with a collections file or an index file.
  size_t worker_count() const { return parts_.size(); }
  const Part& part(size_t worker) const { return *parts_[worker]; }
  std::unique_ptr<store::WorkerReader> OpenWorker(size_t worker);

  /// As the collections files say; at least those seen.
  int64_t world_size() const;
  /// smdebug's end marker is written by whoever ends first. A worker has ended when the marker is there and
  /// it has as many steps as the furthest, or when nothing has come for a minute.
  bool ended(size_t worker) const;
  /// Without the marker nothing but time tells a run that goes on from one whose processes were killed: this
  /// one is taken for dead. Nothing has come for twenty times the longest pause between two steps of a
  /// worker, and for ten minutes at least; for six hours where too few steps are there to tell their pace.
  /// Should something come all the same, it is alive again.
  bool silent() const { return silent_; }
  bool end_marker() const { return end_marker_; }
  const Root& root() const { return root_; }
  const Collections& collections() const { return collections_; }
  /// Files that could not be taken in; one that is good later is taken off.
  std::vector<store::Damage> damage() const;
  uint64_t index_bytes() const { return index_bytes_; }
  /// Folders and files whose change means news. Grows with the run.
  std::vector<std::string> doorbells() const;

 private:
  struct Folder {
    Signature signature;
    int64_t listed_nanos = 0;
  };
  struct Rejected {
    Signature signature;
    std::string what;
  };

  explicit Run(Root root) : root_(std::move(root)) {}

  bool ReadCollections();
  Status ReadIndex(const std::string& folder, int depth, bool* news);
  bool ReadIndexFile(const std::string& folder, const std::string& name);
  bool LookSilent() const;
  /// What killed writers left: event files that no index file speaks of. Each gives its whole records as a
  /// step, and is named by damage().
  bool Salvage();
  bool SalvageFile(const std::string& file, int64_t step, size_t part);
  void Reject(const std::string& file, const Signature& signature, std::string what);
  /// The part of whoever wrote an index file, or a collections file, under that name.
  size_t PartOfIndex(std::string_view name_in_files);
  size_t PartOfCollections(std::string_view name_in_files);
  size_t NewPart(std::string_view name_in_files);
  bool TooEarly() const;

  Root root_;
  std::vector<std::unique_ptr<Part>> parts_;
  // As in names of index files, and of collections files: smdebug's FileWriter takes any name, and only
  // their number says that a worker of the ones is one of the others.
  std::map<std::string, size_t, std::less<>> parts_by_name_, described_;
  Collections collections_;
  std::map<std::string, Signature> collections_files_;
  int64_t num_workers_ = 0;
  std::map<std::string, Folder> folders_;
  std::map<std::string, Rejected> rejected_;
  std::vector<std::string> complaints_;  // about patterns
  IndexDecoder decoder_;
  std::vector<char> buffer_;
  uint64_t index_bytes_ = 0;
  bool end_marker_ = false;
  bool silent_ = false, salvaged_ = false;
  int64_t newest_nanos_ = 0;  // of whatever changed last
  int64_t longest_pause_nanos_ = 0;
  size_t pauses_ = 0;
  std::set<std::pair<size_t, int64_t>> salvaged_steps_;  // (part, step)
};

}  // namespace tdbg::compat::smdebug
