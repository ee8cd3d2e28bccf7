// Keeps a prefix of a store the same as a run's directory, while the run trains and until it is complete. It
// is an ordinary reader of the run: the training does not know of it and never waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "storage/journal_sender.h"
#include "storage/object_store.h"
#include "storage/run_directory_files.h"
#include "storage/upload_state.h"

namespace tdbg::storage {

struct UploadOptions {
  std::string run_directory;
  Location to;
  /// Uploader::id of a process that is known to be gone: its prefix is taken over at once. Empty: an id of
  /// its own.
  std::string predecessor;
  int64_t every_millis = 1'000;  ///< time between two looks at the directory
  int64_t beat_millis = 5'000;   ///< so often the store hears who lives, if nothing else changes
  int files_at_once = 4;
  /// How long the rest is tried at the end of the job if the store fails.
  int64_t grace_millis = 600'000;
  std::function<void(const std::string&)> say;  ///< gets sentences for people; must not be empty
};

struct UploadTotals {
  uint64_t files = 0, bytes = 0;  ///< uploaded, journal parts included
  uint64_t failed_passes = 0;
  uint64_t files_left = 0, bytes_left = 0;  ///< not uploaded yet, as of the last look
  /// Of the run, at the end, as the store lists them; nothing before.
  uint64_t files_there = 0, bytes_there = 0;
};

/// \threadsafety One thread, except Stop.
class Uploader {
 public:
  Uploader(ObjectStore* store, UploadOptions options);

  /// Whether this run may be uploaded to the prefix: it is empty, or holds this run and no other uploader is
  /// active. Writes nothing. \param run  empty: the run does not exist yet
  /// \error kAlreadyExists  something else is there; and ObjectStore's errors
  Status Check(const std::string& run);
  /// Check, then claims the prefix for this run in the store. Of two that do so at once, one succeeds. A run
  /// that goes on takes back what told smdebug's readers that it was over, where its directory does so no
  /// more.
  Status Claim();
  /// Uploads what is new until Stop is called, then the rest. \error what is left, and why
  Status Follow();
  /// Uploads everything once. Marks the prefix as complete if nothing can come any more.
  Status SendAll();
  /// The job is over: Follow uploads the rest and returns.
  void Stop() { stopping_ = true; }
  /// After Follow or SendAll: processes of the run live, more will come, and nobody sends it.
  bool goes_on() const { return goes_on_; }
  const UploadTotals& totals() const { return totals_; }
  /// What the claimed prefix says of whose it is.
  const std::string& id() const { return uploader_; }

 private:
  struct Sent {
    RunFile file;
    ObjectInfo object;
    uint64_t bytes = 0;      ///< that were sent of it
    bool was_there = false;  ///< so nothing was
    std::string end;         ///< the last bytes that were sent, of a file that may grow
    int64_t monotonic_nanos = 0;
  };
  Status Pass(bool last);
  Status LookAtStore();
  Status TakeBackEnds();
  bool Due(const RunFile& file, bool last) const;
  Status SendFiles(const std::vector<RunFile>& files);
  /// \error kNotFound  it is another one by now; kInvalidArgument  this file cannot go, others may
  Result<Sent> SendFile(const RunFile& file, const Sent* before);
  /// Compares what the store lists with what was sent. \error kUnavailable  not all of it is there; that is
  /// due again
  Status CompareWithStore(const std::vector<RunFile>& files);
  /// Whether the object is what was sent of a file, by us or before us.
  bool IsAsSent(const std::string& name, const ObjectInfo& object) const;
  /// Which locks of processes are held: the launcher's and these workers'.
  std::vector<std::string> HeldLocks(const std::vector<std::string>& workers) const;
  bool IsLast();
  /// Writes the state if it differs from what was written last, or a beat is due.
  Status WriteState(UploadState state);
  /// Under state_mutex_. \error kAlreadyExists  the prefix is another uploader's by now
  Status PutState(const UploadState& state);
  void Beat(const std::stop_token& stop);
  std::string Key(const std::string& name) const { return KeyBelow(options_.to.KeyPrefix(), name); }

  ObjectStore* const store_;
  const UploadOptions options_;
  std::string run_;
  const std::string uploader_;
  bool looked_ = false, once_ = false, goes_on_ = false;
  std::optional<bool> launcher_gone_;  ///< once told that the job is over: by a launcher's death
  int64_t listing_nanos_ = 0;          ///< how long the last listing of the directory took
  std::mutex state_mutex_;
  std::condition_variable_any beats_;
  std::string state_etag_;   ///< guarded by state_mutex_, as are the two below
  UploadState state_;        ///< as it was written last
  int64_t state_nanos_ = 0;  ///< when it was tried last
  std::map<std::string, Sent> sent_;
  std::map<std::string, ObjectInfo> there_;  ///< what the store had before, by name
  JournalSender journals_;
  bool changed_ = false;  ///< in the last pass: a file that is there became shorter while it was sent
  Status refused_;        ///< of the last pass: the first file that will never go, whatever is tried
  UploadTotals totals_;
  std::atomic<bool> stopping_{false};
};

}  // namespace tdbg::storage
