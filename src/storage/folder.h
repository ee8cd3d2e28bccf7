// Plain folders: a prefix into a directory, and a directory that grows into a prefix. What a service's job is
// given and what it leaves; runs have an uploader and a mirror of their own, which know what a run is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "storage/object_store.h"
#include "tdbg/status.h"

namespace tdbg::storage {

/// All objects whose keys begin with the prefix, as S3Prefix means it: "data/train" is that object, all below
/// "data/train/", and "data/train.csv". Their names are what follows "data/train/", else what follows
/// "data/".
/// \error kNotFound  there are none; kInvalidArgument  a key that would lead out of the directory
Status FetchFolder(ObjectStore* store, const Location& from, const std::string& directory);

struct FolderOptions {
  std::string directory;
  Location to;
  int64_t every_millis = 1000;
  int64_t grace_millis = 300'000;  ///< for how long the rest is tried if the store fails
  bool deletes = false;            ///< what is deleted here is deleted there, if it was sent from here
  std::function<void(const std::string&)> say;
};

/// Sends regular files that are new or have changed, in the order in which they were last written: of files
/// that speak of each other, whoever finds the later one finds the earlier one. Names that end in ".tmp" are
/// not finished.
class FolderSender {
 public:
  FolderSender(ObjectStore* store, FolderOptions options) : store_(store), options_(std::move(options)) {}
  /// What is due now. \error  the first failure; the rest was tried
  Status SendDue();
  /// Until Stop, then all that is left. A failure is said once, and tried again with the next look.
  Status Follow();
  void Stop() { stop_ = true; }

 private:
  struct Sent {
    uint64_t bytes = 0;
    int64_t modified_nanos = 0;
    bool operator==(const Sent&) const = default;
  };
  ObjectStore* store_;
  FolderOptions options_;
  std::map<std::string, Sent> sent_;
  std::atomic<bool> stop_ = false;
};

}  // namespace tdbg::storage
