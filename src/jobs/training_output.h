// What a training printed: a file of the bytes and one that says of them when they came and at which step
// (docs/format.md, "The training's output").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Stored; never renumber.
enum class OutputStream : uint32_t { kBoth = 0, kOut = 1, kErr = 2 };

/// 32 bytes, behind a header of the same size.
struct OutputEntry {
  uint64_t offset;      ///< of the first byte it stands for, counted from the attempt's first
  int64_t wall_nanos;   ///< when it came
  int64_t global_step;  ///< the last step that the first worker had passed then; -1: none yet
  uint32_t stream;      ///< OutputStream
  uint32_t flags;       ///< 1: bytes in front of it were lost (a full disk)
};
static_assert(sizeof(OutputEntry) == 32);
inline constexpr uint32_t kOutputLost = 1;

/// Appends. Never fails: what cannot be written is lost, and the next entry says so.
///
/// The two files together stay below `limit_bytes`: at half of it they are renamed to ".1", over the ones
/// that were, and begun again. So the end is always there, and at least limit / 2 of it.
class OutputWriter {
 public:
  /// Goes on behind what is there. \error  as of the file system: there will be no log
  static Result<OutputWriter> Open(const std::string& run_directory, int64_t attempt, uint64_t limit_bytes);
  void Append(std::string_view bytes, OutputStream stream, int64_t wall_nanos, int64_t global_step);

 private:
  Status Begin();
  void Rotate();

  std::string directory_, name_;
  uint64_t limit_bytes_ = 0;
  base::UniqueFd folder_, text_, index_;
  uint64_t offset_ = 0, text_bytes_ = 0, index_bytes_ = 0;
  std::optional<OutputEntry> last_;
  bool lost_ = false;
};

struct OutputLine {
  std::string text;  ///< without its end; what a carriage return made invisible is left out
  int64_t wall_nanos = 0;
  int64_t global_step = -1;
  OutputStream stream = OutputStream::kBoth;
  bool lost_before = false;  ///< something is missing in front of it
};

/// Follows one attempt's output. Whatever the files hold, it gives lines.
class OutputReader {
 public:
  OutputReader(std::string run_directory, int64_t attempt);
  /// Is there any?
  bool Exists() const;
  /// Lines that came since the last call, some megabytes of them; empty: none. \param at_end  nothing more
  /// will come: a last line without its end counts.
  std::vector<OutputLine> Next(bool at_end);

 private:
  std::string base_;
  uint64_t position_ = 0;
  std::string rest_;  ///< a line's begin
  std::optional<OutputLine> rest_line_;
};

}  // namespace tdbg::jobs
