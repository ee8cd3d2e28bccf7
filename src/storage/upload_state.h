// tdbg-upload.json: which run a prefix belongs to, and its uploader's last state (docs/storage.md lists the
// fields). Also the names of the pieces in which a journal is uploaded. Written by Uploader, read by Mirror.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/object_store.h"
#include "tdbg/status.h"

namespace tdbg::storage {

inline constexpr std::string_view kStateFile = "tdbg-upload.json";
inline constexpr std::string_view kJournalParts = "journal.parts";

/// An uploader that was silent for this long, or for six of its beats, may be replaced by another one.
inline constexpr int64_t kReplacedNanos = 30'000'000'000;
/// A run whose uploader was silent for less than this may go on: its news are late. An uploader comes back
/// after minutes: it gets no processor, or its store fails, where one request alone is tried for two of them.
/// It gives up itself after this time (UploadOptions::grace_millis), and no reader does so sooner. What that
/// costs: where a machine is gone, and with it all who could say so, the run is called crashed that much
/// later. A training that dies alone is called so at its uploader's next look.
inline constexpr int64_t kGoneNanos = 600'000'000'000;

struct UploadState {
  std::string run;       ///< RunInfo::id
  std::string uploader;  ///< random id of the uploading process
  std::string host;
  bool complete = false;    ///< everything is uploaded, and nothing more will come
  bool following = false;   ///< more will come
  int64_t beat_millis = 0;  ///< the next one comes after this time at the latest
  int64_t files = 0;        ///< once complete: how many of the run's files are there
  std::vector<std::string>
      held;                  ///< locks that were held when it was written: "launcher.lock", "0/worker_0/lock"
  std::string process = {};  ///< of the uploader, as ThisProcess says it; empty: an earlier tdbg wrote this
  int64_t bytes = 0;         ///< of those files
  bool left = false;         ///< more will come, and nobody sends it: the run was sent once while it trained

  /// How long its uploader is silent before it is replaced, or taken for gone.
  /// \param least_nanos  kReplacedNanos, kGoneNanos
  int64_t SilenceNanos(int64_t least_nanos) const;
  /// Whether readers learn the same of both: all but counts.
  bool SaysAs(const UploadState& other) const;
  /// Whether its uploader was a process of this machine and is one no more: then nobody need wait for a sign
  /// of life. False where that is not known.
  bool UploaderIsGone() const;
  std::string ToJson() const;
  static Result<UploadState> FromJson(std::string_view text);
};

/// This process among all that ever ran: the machine's boot, the namespace of process numbers, the number,
/// and when it was started.
std::string ThisProcess();

/// Of an uploader, or of a set of checkpoints.
std::string RandomId();

/// How old an object is, by the store's clock; by ours if the store does not say its time.
int64_t AgeNanos(const Object& object);

/// A piece of a journal as an object: the header's page, then the ring's bytes of positions [from, to).
struct JournalPart {
  uint64_t epoch = 0;    ///< raised when positions may start over: a new journal, a new uploader
  uint64_t counter = 0;  ///< counts from 1 within an epoch; the highest has the newest header
  uint64_t from = 0, to = 0;

  /// "00000001-00000004-<from>-<to>", numbers with leading zeros
  std::string Name() const;
  static std::optional<JournalPart> Parse(std::string_view name);
  bool operator==(const JournalPart&) const = default;
};

/// The parts that together hold what the newest header has not sealed, the newest first; empty if one is
/// missing.
/// \param sealed  the newest header's sealed_pos
std::vector<JournalPart> CoverOf(const std::vector<JournalPart>& parts, uint64_t sealed);

}  // namespace tdbg::storage
