// The small JSON files of a run directory, and the control file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/version.h"
#include "tdbg/status.h"

namespace tdbg::format {

/// run.json: written once by whoever creates the run (launcher, attach, or the first worker).
struct RunInfo {
  std::string id;    ///< 32 hex digits, random
  std::string name;  ///< the directory's name when it was made
  std::string tdbg_version;
  std::vector<std::string> command;
  std::string working_directory;
  int64_t created_wall_nanos = 0;
  std::string ToJson() const;
  static Result<RunInfo> FromJson(std::string_view json);  ///< \error kUnimplemented for a newer major
};

/// <attempt>/attempt.json: one start of the job. Directories are named "0", "1", ... Written once, by whoever
/// is there first: a launcher, which knows neither of the two optional numbers, or a worker, which knows
/// both.
struct AttemptInfo {
  int64_t attempt = 0;
  std::optional<int64_t> step_base;  ///< global step at which this attempt begins
  std::optional<int64_t> parent;     ///< the attempt it continues
  std::optional<int64_t> world_size;
  int64_t started_wall_nanos = 0;
  std::string ToJson() const;
  static Result<AttemptInfo> FromJson(std::string_view json);
};

/// What `step_base_from` is where nobody said where the attempt goes on, so that it begins behind all that
/// earlier attempts have reached.
inline constexpr std::string_view kBehind = "behind";

/// <attempt>/<worker>/worker.json
struct WorkerInfo {
  std::string worker;  ///< "worker_0"
  int64_t rank = 0;
  std::optional<int64_t> world_size;  ///< how many workers it knows of, itself included
  std::optional<int64_t> step_base;   ///< the global step it begins at
  std::string
      step_base_from;  ///< who says so: "script", "metadata.json", "optimizer"; kBehind, empty: nobody
  std::map<std::string, int64_t> mode_step_bases;  ///< mode's name -> its own step at which it begins
  /// What this worker was told instead, where another worker of the attempt had begun elsewhere before it.
  std::optional<int64_t> step_base_said;
  std::optional<int64_t> optimizer_step;  ///< of the optimizer when it began
  uint32_t pid = 0;
  std::string host;
  std::string boot_id;
  uint64_t writer_id = 0;    ///< below 2^53 (JSON); the same in the journal's header and in every segment
  std::string journal_path;  ///< "journal", or an absolute path where the run is not on a local disk
  int64_t started_wall_nanos = 0;
  std::string adaptor;  ///< "torch 2.13.0", ...
  std::string run_id;   ///< RunInfo::id
  int64_t attempt = 0;
  std::string ToJson() const;
  static Result<WorkerInfo> FromJson(std::string_view json);
};

/// How a job ended, as its launcher saw it: launcher's line in run's events, see docs/format.md.

/// The control file: 4096-byte page {char magic[8] "TDBGCTRL", u16 major, minor, u32 0, u64 generation},
/// then JSON lines, one request each. Requests are appended (O_APPEND), then the generation is raised.
struct ControlRequest {
  std::string id;      ///< unique in the run
  std::string action;  ///< "stop", "capture", ...
  std::string by;      ///< who asked: a rule's name, "user"
  std::string json;    ///< the whole line: further fields by action
};
inline constexpr char kControlMagic[8] = {'T', 'D', 'B', 'G', 'C', 'T', 'R', 'L'};
inline constexpr uint64_t kControlPageBytes = 4096;
inline constexpr uint64_t kControlGenerationOffset = 16;
std::string EncodeControlPage();
/// A last line without its newline is not complete yet and is left for the next look. A line that is not an
/// object with "id" and "action" is skipped: a requester that died while writing must not silence the others.
/// \error kDataLoss  bytes that no requester can have written (NUL: the page was handed in, too).
Result<std::vector<ControlRequest>> DecodeControlLines(std::string_view bytes_after_page);

}  // namespace tdbg::format
