// Steps that somebody marked, to be kept at full resolution. docs/format.md, "Levels".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tdbg::format {

/// <run>/marks.jsonl: one JSON object a line, appended.
inline constexpr std::string_view kMarksFile = "marks.jsonl";

struct Mark {
  int64_t first = 0, last = 0;  ///< global steps, both included
  int64_t wall_nanos = 0;       ///< when it was set

  std::string ToJson() const;
};

/// Lines that are no mark are skipped; a last line without newline is not complete yet.
std::vector<Mark> ParseMarks(std::string_view text);

}  // namespace tdbg::format
