// Keeps the newest state of a directory of checkpoints in a run's prefix, as sets that are whole or absent
// (checkpoint_sets.h). The training does not know of it and never waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/checkpoint_directory.h"
#include "storage/checkpoint_sets.h"
#include "storage/object_store.h"
#include "tdbg/status.h"

namespace tdbg::storage {

struct CheckpointOptions {
  std::string directory;
  Location run;                    ///< the run's prefix
  std::string run_id;              ///< whose prefix it has to be
  std::string run_directory;       ///< says which attempt trains and how far it is; empty: neither is known
  int64_t every_millis = 1'000;    ///< between two looks; two have to agree
  int64_t grace_millis = 600'000;  ///< at the end, for how long the last state is tried if the store fails
  /// A state that has waited for so long need not stay as it is for long any more: a script that saves every
  /// second is never quiet for one.
  int64_t hurry_millis = 10'000;
  int files_at_once = 4;
  size_t kept_sets = 2;
  std::function<void(const std::string&)> say;  ///< gets sentences for people; must not be empty
};

/// \threadsafety One thread, except Stop.
class CheckpointSender {
 public:
  CheckpointSender(ObjectStore* store, CheckpointOptions options);

  /// Sends each state of the directory that stays as it is for a moment, until Stop; then the last one.
  /// \error kAlreadyExists  the prefix is another run's, or another machine's by now; else the last state is
  /// not in the store, and why
  Status Follow();
  /// The state that it has now. OK if it is empty: then there is nothing to keep. \error as Follow
  Status SendLast();
  /// The job is over.
  void Stop() { stopping_ = true; }
  /// The number of the newest set that this sender has put there, or has found to be what the directory
  /// holds; 0: none.
  uint64_t newest() const { return newest_; }
  /// How many looks have failed so far. \threadsafety Any thread
  uint64_t failures() const { return failures_; }

 private:
  /// A file, and from where its bytes are read.
  struct Held {
    const DirectoryEntry* entry;
    base::UniqueFd fd;
    bool copied = false;
  };
  struct Known {
    DirectoryEntry entry;
    std::string sha256;
  };

  /// Looks at the directory, and takes it where it is due. \error  of the store, or it cannot be read
  Status Look();
  bool IsDue(const DirectoryState& now);
  /// How long it has to stay as it is. Shorter the longer no set could be taken.
  int64_t QuietMillis() const;
  /// Sends the directory as it was seen. \return false: it has changed meanwhile, or is being written (why_)
  Result<bool> Take(const DirectoryState& state);
  Result<bool> Hold(const DirectoryState& state, std::vector<Held>* held);
  Result<bool> Copy(std::vector<Held>* held);
  Result<bool> SendFiles(std::vector<Held>* held, CheckpointSet* set);
  /// \return its sum; empty: it has changed
  Result<std::string> SendFile(Held* held);
  Result<std::string> SendSmall(const Held& held);
  Result<std::string> SendLarge(const Held& held);
  CheckpointSet Describe(const DirectoryState& state) const;
  bool IsThere(const std::string& sha256, uint64_t bytes);
  /// What the store has by now. Only files that a set names count: any other may be half of what it is
  /// called.
  Status LookAtStore();
  Status CheckOurs();
  Status PutSet(CheckpointSet* set);
  void DeleteOld();
  void SayOnce(const std::string& what);
  std::string KeyOf(const std::string& sha256) const { return CheckpointFileKey(options_.run, sha256); }

  ObjectStore* const store_;
  const CheckpointOptions options_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> failures_ = 0;

  DirectoryState seen_, sent_;
  bool has_seen_ = false, has_sent_ = false;
  int64_t seen_nanos_ = 0;      ///< since when it has been as it was seen
  int64_t waiting_nanos_ = -1;  ///< since when a state waits to be sent; -1: none does
  bool copies_ = false;         ///< files changed while they were sent: they are copied first
  std::string why_;             ///< the last Take did not take it
  bool may_delete_ = true, looked_ = false, all_readable_ = true;
  std::string uploader_;                    ///< who filled the prefix when we began
  std::map<uint64_t, CheckpointSet> sets_;  ///< that are in the store, as far as they can be read
  uint64_t highest_ = 0;                    ///< number of any set, readable or not
  uint64_t newest_ = 0;
  std::map<std::string, uint64_t> listed_;  ///< objects of files: sum -> size
  std::mutex mutex_;
  std::set<std::string>
      verified_;  ///< guarded by mutex_, as is the next: sums of objects that are what they are called
  std::map<std::string, Known> known_;  ///< sums of files, by name
  std::set<std::string> said_;
};

}  // namespace tdbg::storage
