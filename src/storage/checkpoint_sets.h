// Sets of checkpoints in a run's prefix: a directory of checkpoints as it was at one instant. docs/storage.md
// lists the names and the fields. Written by CheckpointSender, read by RestoreCheckpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/object_store.h"
#include "tdbg/status.h"

namespace tdbg::storage {

/// Where they are below a run's prefix.
inline constexpr std::string_view kCheckpointSets = "checkpoints/sets/";
inline constexpr std::string_view kCheckpointFiles = "checkpoints/files/";
/// What a restore that goes on, or was killed, names its own folders; never part of a set.
inline constexpr std::string_view kRestoreMark = ".tdbg-restore";
/// In the root of a disk that is mounted there: not the user's, and the directory is empty for all that.
inline constexpr std::string_view kLostAndFound = "lost+found";

struct CheckpointFile {
  std::string name;  ///< below the directory; any bytes that a path may have
  uint64_t bytes = 0;
  std::string sha256;  ///< of its content, lower-case hexadecimal; its object's name
  int64_t modified_nanos = 0;
  bool operator==(const CheckpointFile&) const = default;
};
/// A symbolic link that stays in the directory.
struct CheckpointLink {
  std::string name, target;
  bool operator==(const CheckpointLink&) const = default;
};
struct CheckpointFolder {
  std::string name;
  int64_t modified_nanos = 0;
};

struct CheckpointSet {
  std::string id;   ///< random: of two senders that write one number, each knows its own
  std::string run;  ///< RunInfo::id
  std::string host;
  int64_t wall_nanos = 0;  ///< when the directory was like that
  int64_t attempt = -1;    ///< the one that trained then; -1: not known
  int64_t step = -1;       ///< what its metadata.json says that the checkpoints hold; -1: there is none
  int64_t seen_step = -1;  ///< the step that the training had reached by then; -1: not known
  std::vector<CheckpointFile> files;  ///< by name, as are the next two
  std::vector<CheckpointLink> links;
  std::vector<CheckpointFolder> folders;  ///< all of them, empty ones included

  uint64_t Bytes() const;
  /// The same files and links. Times of folders do not count: a temporary file changes them.
  bool SameContent(const CheckpointSet& other) const;
  std::string ToJson() const;
  /// Whatever a bucket says, the names in the result lead to places below a directory, and no link leads out
  /// of it.
  /// \error kDataLoss  no set; kUnimplemented  of a newer major version
  static Result<CheckpointSet> FromJson(std::string_view text, std::string_view what);
};

/// May a link of this name lead there? Only to places below the directory that the name is relative to,
/// whatever other such links there are.
bool LinkStaysInside(std::string_view name, std::string_view target);

std::string CheckpointSetKey(const Location& run, uint64_t number);
std::string CheckpointFileKey(const Location& run, const std::string& sha256);

/// Numbers of the sets that are there, the newest first. A set that is listed is not whole for that: its
/// objects may have been deleted since.
Result<std::vector<uint64_t>> ListCheckpointSets(ObjectStore* store, const Location& run);
/// \error as CheckpointSet::FromJson, and ObjectStore's
Result<CheckpointSet> ReadCheckpointSet(ObjectStore* store, const Location& run, uint64_t number);

}  // namespace tdbg::storage
