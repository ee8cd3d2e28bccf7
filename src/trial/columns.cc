#include "trial/columns.h"

namespace tdbg::columns {

std::string Names(uint64_t columns) {
  std::string names;
  const auto add = [&names](std::string_view name) {
    if (!names.empty()) names += ", ";
    names += name;
  };
  for (size_t c = 0; c < format::kSummaryColumns.size(); ++c) {
    if ((columns & Bit(static_cast<format::SummaryColumn>(c))) != 0) add(format::kSummaryColumns[c].name);
  }
  if ((columns & kMeanAbs) != 0) add("mean_abs");
  return names;
}

}  // namespace tdbg::columns
