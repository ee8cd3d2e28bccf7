#include "cli/json_output.h"

#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "base/printable.h"
#include "cli/output.h"

namespace tdbg::cli {

Json JsonOf(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

void PrintJson(const Json& document) {
  Print("{}\n", base::PrintableJson(document.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

Json JsonTime(int64_t wall_nanos) {
  if (wall_nanos == 0) return nullptr;
  char buffer[32];
  return base::FormatUtc(wall_nanos, buffer);
}

}  // namespace tdbg::cli
