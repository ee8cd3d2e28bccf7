// One record of an event file as a value: opened below the run's directory, read with one pread, held against
// what the index said of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compat/smdebug/reader/root.h"
#include "format/keys.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"

namespace tdbg::compat::smdebug {

struct Record {
  std::string tag;  ///< the tensor's name in the file
  double wall_time = 0;
  int64_t step = 0;
  /// What the record itself says; the index may say otherwise (of scalars it does), and is right then.
  format::Mode mode = format::Mode::kGlobal;
  int64_t mode_step = 0;
  store::RawValue value;
};

/// Keeps the last event file open: a step's tensors lie in one. \threadsafety one thread
class RecordReader {
 public:
  explicit RecordReader(const Root& root) : root_(root) {}

  /// Memory: the record's bytes, which the file must hold. Texts come as kText.
  /// \error kNotFound  no such file; kDataLoss  the bytes are not there, or are no record or tensor;
  /// kUnimplemented
  ///     a type without counterpart; kInvalidArgument  the path leads out of the run's directory
  Result<Record> Read(const std::string& event_file, uint64_t offset, uint64_t bytes);
  /// For files without an index: how many bytes the record at `offset` has. 0 at the end of the file.
  /// \error kDataLoss  cut short, or no record; the others as above
  Result<uint64_t> BytesAt(const std::string& event_file, uint64_t offset);

 private:
  Status Open(const std::string& event_file);

  const Root& root_;
  std::string open_name_;
  OpenFile open_;
};

}  // namespace tdbg::compat::smdebug
