// What a run had to leave out, as whoever writes it and whoever reads it are told.
#pragma once

#include <cstdint>
#include <string>

namespace tdbg {

/// What was due and was dropped, by cause, in words and numbers.
struct DroppedInfo {
  std::string worker, cause, kind, text;
  uint64_t count = 0, bytes = 0;
  int64_t first_step = -1, last_step = -1;
};

}  // namespace tdbg
