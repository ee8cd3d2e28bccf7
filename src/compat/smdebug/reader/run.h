// An smdebug run's directory: its workers as they appear, their index files as they come, and whether it has
// ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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
  void Reject(const std::string& file, const Signature& signature, std::string what);
  size_t PartOf(std::string_view name_in_files);
  bool TooEarly() const;

  Root root_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::map<std::string, size_t, std::less<>> parts_by_name_;  // as in file names
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
  int64_t newest_nanos_ = 0;  // of whatever changed last
};

}  // namespace tdbg::compat::smdebug
