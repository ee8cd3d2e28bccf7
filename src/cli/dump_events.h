// The records of an event file, TensorBoard's or smdebug's, for `tdbg dump`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Does the file begin like a file of records (a length and its checksum)?
bool IsEventFile(const std::string& path);

/// Each record with its place, its footer's kind, and what it holds; of a tensor at most `max_elements` (-1:
/// all). Damage ends the list, is told, and is appended to `damage`. \error kNotFound
Result<std::string> DumpEvents(const std::string& path, bool json, int64_t max_elements,
                               std::vector<std::string>* damage);

}  // namespace tdbg::cli
