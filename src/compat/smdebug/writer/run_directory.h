// Writes the run directory of smdebug 1.0.34, so that its own reader finds everything equal.
//
//   <run>/collections/000000000/<worker>_collections.json
//   <run>/events/<step>/<step>_<worker>.tfevents    records, one tensor each
//   <run>/index/<step / 1000>/<step>_<worker>.json  where in the event file each tensor lies
//   <run>/training_job_end.ts                       empty: no more will come
//
// Every file appears by rename, an index file after its event file: a reader sees a step whole or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::smdebug {

/// smdebug's numbers and names of modes: 1 TRAIN, 2 EVAL, 3 PREDICT, 4 GLOBAL.
std::string_view ModeName(int mode);

/// smdebug's SaveConfigMode.
struct SaveSchedule {
  int64_t interval = 500, start = 0;
  std::optional<int64_t> end;
  std::vector<int64_t> steps;
};

struct CollectionEntry {
  std::string name;
  std::vector<std::string> include_regex;
  std::vector<std::string> tensor_names;  ///< sorted
  bool save_raw = true;
  bool save_shape = false;
  std::vector<std::string> reductions;   ///< as in its configuration: "mean", "abs_l2_norm"
  std::optional<SaveSchedule> modes[5];  ///< by the mode's number; 0 unused. One that is missing beside
                                         ///< others is smdebug's default
  bool save_histogram = true;
};

/// Where in the run a record stands. The index file of a step has one of these, the first record's; smdebug's
/// reader takes that one for all.
struct Moment {
  int mode = 4;
  int64_t mode_step = 0;
  double wall_seconds = 0;  ///< since the Unix epoch
  bool indexed = true;      ///< false: in the event file only, where nobody looks who reads the run
};

/// One step of one worker, being written. Nothing is to be seen of it before Close; dropped unclosed, it
/// never was.
class StepFiles {
 public:
  ~StepFiles();
  StepFiles(StepFiles&&) noexcept;
  StepFiles& operator=(StepFiles&&) noexcept;

  /// The moment of the records and shapes that follow. \pre mode_step >= 0
  void SetMoment(const Moment& moment);

  /// One tensor, in the nearest type that smdebug's reader knows (docs/smdebug.md): every value stays equal,
  /// except uint64 beyond int64's range, which becomes float64; texts become one list. Empty tensors, which
  /// it cannot read, are skipped. A name may be given once.
  /// \return whether it was written
  Result<bool> AddTensor(std::string_view name, const TensorView& value);
  /// A list of UTF-8 texts; an empty one is skipped.
  Result<bool> AddTexts(std::string_view name, std::span<const std::string> texts);
  /// The shape alone. Beside a value of the same name and step, smdebug's reader loses the value.
  void AddShape(std::string_view name, std::string_view original_name, std::span<const int64_t> shape);
  /// \param reduction  "mean", "abs_l2", ...: one of min max mean std variance sum prod l1 l2, or abs_ and
  /// one
  Status AddReduction(std::string_view reduction, std::string_view name, DType dtype, double value);
  size_t records() const;
  uint64_t bytes() const;
  /// Where the event file will lie.
  std::string event_path() const;
  /// Publishes the event file, then its index. With no record there is no event file, with no shape either
  /// no index.
  Status Close();

 private:
  friend class RunDirectory;
  struct Impl;
  explicit StepFiles(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class RunDirectory {
 public:
  /// Makes the directories. Nothing in it is taken away.
  static Result<RunDirectory> Create(const std::string& path,
                                     base::FileSystem& files = base::LocalFileSystem());

  /// Replaces the worker's collections file. A reader waits for as many of them as `workers` says, and for
  /// the first before it opens at all.
  Status WriteCollections(std::string_view worker, const std::vector<CollectionEntry>& collections,
                          int64_t workers);
  /// \pre step, mode_step >= 0
  Result<StepFiles> OpenStep(int64_t step, int mode, int64_t mode_step, std::string_view worker,
                             double wall_seconds);
  /// Before a job goes on at `step`: takes away the end marker and all steps from there on.
  Status Rewind(int64_t step);
  const std::string& path() const { return path_; }

 private:
  RunDirectory(std::string path, base::FileSystem& files) : path_(std::move(path)), files_(&files) {}

  std::string path_;
  base::FileSystem* files_;
};

/// Tells readers of this run directory that no more will come. Only after the last attempt's last step.
Status WriteEnd(const std::string& path, base::FileSystem& files = base::LocalFileSystem());
/// Before more comes: takes that back, where it was said.
Status RemoveEnd(const std::string& path, base::FileSystem& files = base::LocalFileSystem());

}  // namespace tdbg::smdebug
