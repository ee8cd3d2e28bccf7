// A run in a store, mirrored as a local directory that readers open like any other. Small files are copied;
// segments are sparse files, of which only the ranges that are read are fetched.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/posix.h"
#include "storage/object_store.h"
#include "storage/upload_state.h"

namespace tdbg::storage {

struct MirrorOptions {
  Location from;
  std::string cache_root;  ///< a directory of ours; made with mode 0700 if it does not exist
  int requests_at_once = 12;
  /// Everything is fetched, and nothing is taken for alive: for a directory that becomes a run of this
  /// machine.
  bool whole = false;
  std::string run_id = {};  ///< with `whole`: of a run whose run.json may not be there yet
  std::function<void(const std::string&)> say = {};  ///< gets sentences for people; may be empty
};

struct SparseFile;

struct FetchedBytes {
  std::atomic<uint64_t> done{0}, all{0};
};

/// \threadsafety One thread.
class Mirror {
 public:
  /// Looks for a run and copies what is needed to open it.
  /// \error kNotFound  there is none (yet)
  /// \param bytes  with `whole`, may be null: {fetched, to fetch} so far, for another thread to look at
  static Result<std::unique_ptr<Mirror>> Open(ObjectStore* store, MirrorOptions options,
                                              FetchedBytes* bytes = nullptr);
  ~Mirror();

  /// The run's directory in the cache.
  const std::string& directory() const { return directory_; }
  /// Fetches what is new, as Open does.
  Status Refresh();
  /// Makes sure that the bytes [offset, offset + bytes) of a file of directory() were fetched.
  Status Need(const std::string& name, uint64_t offset, uint64_t bytes);
  /// From now on this folder of the run is copied, too ("logs"): what opens without it is not asked to wait
  /// for it. \error kInvalidArgument  it is none of a run's
  Status Include(const std::string& folder);
  uint64_t bytes_fetched() const { return bytes_fetched_; }
  uint64_t requests() const { return requests_; }

 private:
  Mirror(ObjectStore* store, MirrorOptions options);

  Result<std::vector<ObjectInfo>> List(const std::optional<UploadState>& state);
  void SayLeftOut(const std::vector<ObjectInfo>& objects);
  Status CopyWhole(const std::vector<ObjectInfo>& objects);
  Status CopyOne(const ObjectInfo& object);
  Status TakeSegments(const std::vector<ObjectInfo>& objects);
  Status Prefetch(SparseFile* segment);
  Status FetchAll(const std::vector<std::unique_ptr<SparseFile>>& segments);
  Status FillRange(const SparseFile& segment, const Range& range);
  Status TakeJournals(const std::map<std::string, std::vector<JournalPart>>& parts);
  Status LayJournal(const std::string& worker, const std::vector<JournalPart>& parts);
  bool MayGoOn(const UploadState& state, int64_t age_nanos);
  void HoldLocks(const UploadState* state, bool alive);
  Status Fill(SparseFile* segment, uint64_t offset, uint64_t bytes);
  Result<Object> Fetch(const std::string& name, std::optional<Range> range = {});
  std::string Key(const std::string& name) const { return KeyBelow(options_.from.KeyPrefix(), name); }
  std::string PathOf(const std::string& name) const;

  ObjectStore* const store_;
  const MirrorOptions options_;
  std::string run_, directory_;
  bool has_run_file_ = true;
  FetchedBytes* bytes_ = nullptr;  ///< not ours
  bool lazy_ = true;               ///< a run of ours; of smdebug's runs everything is copied
  base::UniqueFd in_use_, sync_lock_;
  std::mutex etags_mutex_;
  std::map<std::string, std::string> etags_;  ///< of files that were copied whole; guarded by etags_mutex_
  std::map<std::string, std::unique_ptr<SparseFile>> segments_;
  std::map<std::string, JournalPart> laid_;  ///< by worker: the newest part in its local journal
  std::map<std::string, base::UniqueFd> held_;
  std::set<std::string> left_out_;  ///< said to be too long
  std::set<std::string> included_;  ///< folders that are copied, besides what is needed to open the run
  bool said_late_ = false, said_gone_ = false;
  std::atomic<uint64_t> bytes_fetched_{0}, requests_{0};
};

}  // namespace tdbg::storage
