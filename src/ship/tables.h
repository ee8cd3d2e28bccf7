// A run's numbers as rows (CSV), and its numbers or values as named arrays (NPZ, safetensors).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ship/archive.h"
#include "ship/destination.h"
#include "ship/output.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::ship {

struct TableOptions {
  Choice::Options choice;
  std::vector<std::string> fields;  ///< as Trial::frame takes them; empty: DefaultFields()
  bool raw = false;                 ///< values instead of statistics
};

/// What people look at, in the order of the columns.
const std::vector<std::string>& DefaultFields();

/// Called with (done, in all) now and then; an error from it ends the export with that error.
using TableProgress = std::function<Status(size_t done, size_t total)>;

/// `global_step,mode,mode_step,worker,tensor` and one column a field, one row per tensor, step and worker, by
/// tensor, then step. What a row does not have (statistics of a plain number) is "nan", as are recorded NaNs.
/// With raw: `...,tensor,index,value`, one row an element, `index` counting in C order. RFC 4180, with line
/// feeds. \error kInvalidArgument  the choice, here and below
Result<Shipped> WriteCsv(const Trial& trial, const TableOptions& options, OutputFile& file,
                         const TableProgress& progress);
bool IsOurCsv(const std::string& path);  ///< did it write this file?

enum class ArchiveFormat { kNpz, kSafetensors };

/// With raw: `<tensor>@<global step>`, the value. Otherwise for each tensor `<tensor>/global_step` (int64)
/// and
/// `<tensor>/<field>` (float64), of equal length. Where several workers are chosen, `<worker>/` is in front.
Result<Shipped> WriteArchive(const Trial& trial, const TableOptions& options, ArchiveFormat format,
                             OutputFile& file, const TableProgress& progress);
bool IsOurArchive(const std::string& path, ArchiveFormat format);  ///< did it write this file?

}  // namespace tdbg::ship
