// Every field of a segment or a journal, named as docs/format.md names it: for people who doubt.
#pragma once

#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::store {

struct DumpOptions {
  bool json = false;        ///< one JSON document, else lines of text
  int64_t max_rows = 1000;  ///< rows of a column shown; -1: all. What is cut off is counted
};

/// The file's kind is told from its first bytes: a segment, a journal, a control file, or JSON, which is
/// repeated. Damaged parts are shown as such, and what can still be read is.
/// \param damage  if given, gets a line for each such part
/// \error kNotFound, kDataLoss (none of these)
Result<std::string> Dump(const std::string& path, const DumpOptions& options = {},
                         std::vector<std::string>* damage = nullptr);

}  // namespace tdbg::store
