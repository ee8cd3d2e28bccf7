// What a dead process left in a worker's directory, and what its successor must know of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/records.h"
#include "format/run_files.h"
#include "store/writer/tensor_table.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// The state after everything is sealed. A fresh directory gives the defaults.
struct Inheritance {
  TensorTable tensors;                ///< every definition so far: a successor's ids start behind them
  uint64_t next_sequence = 1;         ///< segments of one directory never share a sequence
  uint64_t segment_bytes = 0;         ///< of all segments
  std::vector<format::Drop> dropped;  ///< cumulative
};

/// What a journal outside of its run is called, before something random.
inline constexpr std::string_view kJournalElsewhere = "tdbg-journal-";

/// worker.json, which says where the journal is, may be somebody else's: only a journal in its worker's
/// directory, or a file of ours that is called as journals elsewhere are, is sealed, given back to the disk
/// and removed.
bool MayTouchJournal(const std::string& worker_directory, const std::string& journal_path);

/// Seals the journal of `journal_path`, if there is one. Kill-safe: each segment is complete or absent, and
/// what is in a segment already is recognised by its sequence, so doing it again adds nothing.
/// \pre the caller holds the worker's lock.
Result<Inheritance> SealLeftoversLocked(base::FileSystem& files, const std::string& worker_directory,
                                        const format::WorkerInfo& info, const std::string& journal_path);

}  // namespace tdbg::store
