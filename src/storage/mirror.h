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
  std::function<void(const std::string&)> say = {};  ///< gets sentences for people; may be empty
};

/// \threadsafety One thread.
class Mirror {
 public:
  /// Looks for a run and copies what is needed to open it.
  /// \error kNotFound  there is none (yet)
  static Result<std::unique_ptr<Mirror>> Open(ObjectStore* store, MirrorOptions options);
  ~Mirror();

  /// The run's directory in the cache.
  const std::string& directory() const { return directory_; }
  /// Fetches what is new, as Open does.
  Status Refresh();
  /// Makes sure that the bytes [offset, offset + bytes) of a file of directory() were fetched.
  Status Need(const std::string& name, uint64_t offset, uint64_t bytes);
  uint64_t bytes_fetched() const { return bytes_fetched_; }
  uint64_t requests() const { return requests_; }

 private:
  struct Segment;
  Mirror(ObjectStore* store, MirrorOptions options);

  Result<std::vector<ObjectInfo>> List(const std::optional<UploadState>& state);
  void SayLeftOut(const std::vector<ObjectInfo>& objects);
  Status CopyWhole(const std::vector<ObjectInfo>& objects);
  Status CopyOne(const ObjectInfo& object);
  Status TakeSegments(const std::vector<ObjectInfo>& objects);
  Status Prefetch(Segment* segment);
  Status TakeJournals(const std::map<std::string, std::vector<JournalPart>>& parts);
  Status LayJournal(const std::string& worker, const std::vector<JournalPart>& parts);
  bool MayGoOn(const UploadState& state, int64_t age_nanos);
  void HoldLocks(const UploadState* state, bool alive);
  Status Fill(Segment* segment, uint64_t offset, uint64_t bytes);
  Result<Object> Fetch(const std::string& name, std::optional<Range> range = {});
  std::string Key(const std::string& name) const { return KeyBelow(options_.from.KeyPrefix(), name); }
  std::string PathOf(const std::string& name) const;

  ObjectStore* const store_;
  const MirrorOptions options_;
  std::string run_, directory_;
  bool lazy_ = true;  ///< a run of ours; of smdebug's runs everything is copied
  base::UniqueFd in_use_, sync_lock_;
  std::mutex etags_mutex_;
  std::map<std::string, std::string> etags_;  ///< of files that were copied whole; guarded by etags_mutex_
  std::map<std::string, std::unique_ptr<Segment>> segments_;
  std::map<std::string, JournalPart> laid_;  ///< by worker: the newest part in its local journal
  std::map<std::string, base::UniqueFd> held_;
  std::set<std::string> left_out_;  ///< said to be too long
  bool said_late_ = false, said_gone_ = false;
  std::atomic<uint64_t> bytes_fetched_{0}, requests_{0};
};

}  // namespace tdbg::storage
