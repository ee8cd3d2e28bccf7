// What a training printed: a file with the bytes, and an index that says when they came and at which step
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
  uint64_t offset;      ///< of its first byte, counted from the attempt's beginning
  int64_t wall_nanos;   ///< when it came
  int64_t global_step;  ///< the last step that the first worker had passed at that time; -1: none yet
  uint32_t stream;      ///< OutputStream
  uint32_t flags;       ///< 1: bytes before it were lost (a full disk)
};
static_assert(sizeof(OutputEntry) == 32);
inline constexpr uint32_t kOutputLost = 1;

/// Appends output. Never fails: what cannot be written is lost, and the next entry says so.
///
/// The two files together stay below `limit_bytes`: at half of it they are renamed to ".1", replacing those,
/// and started anew. So at least the last limit / 2 bytes are always there.
class OutputWriter {
 public:
  /// Goes on behind what is there. \error  as of the file system: there will be no log
  /// \param node  of several; the first one's output is where that of a job on one machine is
  static Result<OutputWriter> Open(const std::string& run_directory, int64_t attempt, uint64_t limit_bytes,
                                   int64_t node = 0);
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
  std::string text;  ///< without its line end, and without what a carriage return overwrote
  int64_t wall_nanos = 0;
  int64_t global_step = -1;
  OutputStream stream = OutputStream::kBoth;
  bool lost_before = false;  ///< output before this line is missing
};

/// Follows one attempt's output. Damaged files give fewer lines, never an error.
class OutputReader {
 public:
  OutputReader(std::string run_directory, int64_t attempt, int64_t node = 0);
  /// Is there any?
  bool Exists() const;
  /// Lines that came since the last call, at most some megabytes; empty: none. \param at_end  nothing more
  /// will come, so a last line without a line feed counts
  std::vector<OutputLine> Next(bool at_end);

 private:
  std::string base_;
  uint64_t position_ = 0;
  std::string rest_;  ///< the beginning of an unfinished line
  std::optional<OutputLine> rest_line_;
};

}  // namespace tdbg::jobs
