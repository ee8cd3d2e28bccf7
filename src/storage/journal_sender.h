// A growing journal, in pieces (JournalPart): what a worker has committed and not sealed yet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "storage/object_store.h"
#include "storage/upload_state.h"

namespace tdbg::storage {

/// \threadsafety One thread.
class JournalSender {
 public:
  JournalSender(ObjectStore* store, std::string run_directory, Location to);

  /// A piece that was in the store before: ours begin a new epoch, and it is removed once they are there.
  void Found(const std::string& worker, const JournalPart& part);
  /// A consistent copy of the page in front of a worker's journal; none if there is no journal.
  std::optional<std::string> HeaderOf(const std::string& worker) const;
  /// Sends what came since the last call, up to where `header` says; the files that the header refers to
  /// must be in the store. Returns how many bytes were sent. \error  as of ObjectStore::Put
  Result<uint64_t> Send(const std::string& worker, const std::string& header);

 private:
  struct Journal {
    uint64_t epoch = 0, counter = 0, inode = 0, writer_id = 0;
    uint64_t committed_pos = 0, sealed_pos = 0, ended = 0;
    std::vector<JournalPart> parts;  ///< in the store, of this epoch
    std::vector<JournalPart> stale;  ///< in the store, no longer needed
  };
  std::string PathOf(const std::string& worker) const;
  std::string KeyOf(const std::string& worker, const JournalPart& part) const;
  void TidyUp(const std::string& worker, Journal* journal);

  ObjectStore* const store_;
  const std::string run_directory_;
  const Location to_;
  std::map<std::string, Journal> journals_;
};

}  // namespace tdbg::storage
