#include "trial/columns.h"

namespace tdbg::columns {

std::string Names(uint64_t columns) {
  std::string names;
  const auto add = [&names](const char* name) {
    if (!names.empty()) names += ", ";
    names += name;
  };
  for (int c = 0; c < static_cast<int>(store::SummaryColumn::kCount); ++c) {
    const auto column = static_cast<store::SummaryColumn>(c);
    if ((columns & Bit(column)) != 0) add(store::ColumnName(column));
  }
  if ((columns & kMeanAbs) != 0) add("mean_abs");
  return names;
}

}  // namespace tdbg::columns
