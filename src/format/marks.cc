#include "format/marks.h"

#include "format/json_fields.h"

namespace tdbg::format {

std::string Mark::ToJson() const {
  return DumpJson({{"first", first}, {"last", last}, {"wall_nanos", wall_nanos}});
}

std::vector<Mark> ParseMarks(std::string_view text) {
  std::vector<Mark> marks;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const auto line = ParseJsonObject(text.substr(0, end), "mark");
    Mark mark;
    if (!line.ok() || !GetField(*line, "first", &mark.first) || !GetField(*line, "last", &mark.last) ||
        mark.first < 0 || mark.last < mark.first) {
      continue;
    }
    GetField(*line, "wall_nanos", &mark.wall_nanos);
    marks.push_back(mark);
  }
  return marks;
}

}  // namespace tdbg::format
