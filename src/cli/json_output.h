// Numbers and documents as our --json flags print them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tdbg::cli {

/// Keys stay in the order in which they were written: people read it, too.
using Json = nlohmann::ordered_json;

/// JSON has no NaN and no infinities: those become the strings "NaN", "Infinity", "-Infinity".
Json JsonOf(double value);
/// One line per document on stdout. Text that is no UTF-8 is repaired.
void PrintJson(const Json& document);
/// "2026-11-21T15:20:03.123Z"; null for 0.
Json JsonTime(int64_t wall_nanos);

}  // namespace tdbg::cli
