// What a training printed: a file with the bytes, and an index that says when they came and at which step
// (docs/format.md, "The training's output").
#pragma once

#include <array>
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
  uint32_t flags;       ///< kOutputLost, and above kLostShift how many KiB were lost, rounded up
};
static_assert(sizeof(OutputEntry) == 32);
inline constexpr uint32_t kOutputLost = 1;  ///< bytes before it were lost (a full disk, or one that stalls)
inline constexpr uint32_t kLostShift = 8;
/// How large a log may become where nothing else is said.
inline constexpr uint64_t kDefaultLogBytes = 256u << 20;

/// Appends output. Never fails: what cannot be written is lost, and the next entry says so.
///
/// All files together stay below `limit_bytes`, and below a quarter of what their disk would have free
/// without any log of the run. The first eighth is the beginning, which stays (".0"). The rest is the newest:
/// at 7/16 files are renamed to ".1", replacing those, and started anew. What lay between is missing.
///
/// Each call may wait for the disk, as long as that lets it.
class OutputWriter {
 public:
  /// Goes on behind what is there. \error  as of the file system: there will be no log
  /// \param node  of several; the first one's output is where that of a job on one machine is
  static Result<OutputWriter> Open(const std::string& run_directory, int64_t attempt, uint64_t limit_bytes,
                                   int64_t node = 0);
  OutputWriter(OutputWriter&&) = default;
  OutputWriter& operator=(OutputWriter&&) = default;
  ~OutputWriter() { SayLost(); }
  void Append(std::string_view bytes, OutputStream stream, int64_t wall_nanos, int64_t global_step);
  /// So many bytes came here that will not be appended.
  void Lose(uint64_t bytes) { lost_bytes_ += bytes; }
  /// Writes down what was lost since the last output that was kept, though nothing may follow.
  void SayLost();
  /// Of all that came, how much could not be kept. Not what gave way to newer output.
  uint64_t all_lost() const { return all_lost_ + lost_bytes_; }

 private:
  OutputWriter() = default;
  Status Begin();
  int ReadOrWriteHeader();
  void Rotate();
  void MeasureDisk();
  bool AddEntry(OutputEntry entry);

  std::string directory_, name_;
  uint64_t limit_bytes_ = 0, allowed_bytes_ = 0, unmeasured_bytes_ = 0;
  base::UniqueFd folder_, text_, index_;
  uint64_t offset_ = 0, text_bytes_ = 0, index_bytes_ = 0;
  uint64_t first_bytes_ = 0, previous_bytes_ = 0;  ///< of the pairs ".0" and ".1"
  uint64_t other_bytes_ = 0;                       ///< of other logs of the run
  uint64_t lost_bytes_ = 0, all_lost_ = 0;         ///< since the last entry, and before it
  std::optional<OutputEntry> last_;
};

struct OutputLine {
  std::string text;  ///< without its line end, and without what a carriage return overwrote
  int64_t wall_nanos = 0;
  int64_t global_step = -1;
  OutputStream stream = OutputStream::kBoth;
  bool lost_before = false;  ///< output before this line is missing
  uint64_t lost_bytes = 0;   ///< how much, to a KiB; 0: that is not known
};

/// Follows one attempt's output. Damaged files give fewer lines, never an error.
class OutputReader {
 public:
  OutputReader(std::string run_directory, int64_t attempt, int64_t node = 0);
  /// Is there any?
  bool Exists() const;
  /// Lines that came since the last call, at most some megabytes; empty: none. \param at_end  nothing more
  /// will come, so a last line without a line feed counts. If the very end is missing, an empty line says so.
  std::vector<OutputLine> Next(bool at_end);

 private:
  /// The beginning of a line. Each stream has its own: what a command prints without a buffer is written in
  /// pieces, and pieces of two streams lie in the file as they came.
  struct Unfinished {
    std::string text;
    std::optional<OutputLine> line;
  };

  void Lost(uint64_t bytes);
  void FinishAll(std::vector<OutputLine>* lines);

  std::string base_;
  uint64_t position_ = 0;
  std::array<Unfinished, 3> unfinished_;  ///< by stream
  bool lost_ = false;
  uint64_t lost_bytes_ = 0;
  bool told_end_ = false;
};

}  // namespace tdbg::jobs
