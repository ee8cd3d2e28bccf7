#include "query/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace tdbg::query {

std::string_view Question::Text(std::string_view key) const {
  const auto at = parameters.find(key);
  return at == parameters.end() ? std::string_view() : std::string_view(at->second);
}

Result<int64_t> Question::Integer(std::string_view key, int64_t otherwise, int64_t least,
                                  int64_t most) const {
  const auto at = parameters.find(key);
  if (at == parameters.end()) return otherwise;
  const auto value = base::ParseInt(at->second);
  if (!value || *value < least || *value > most) {
    return InvalidArgument(
        fmt::format("{}: '{}' is no whole number from {} to {}", key, at->second.substr(0, 40), least, most));
  }
  return *value;
}

Result<double> Question::FiniteFrom0(std::string_view key, double otherwise) const {
  const auto at = parameters.find(key);
  if (at == parameters.end()) return otherwise;
  const auto value = base::ParseDouble(at->second);
  if (!value || !std::isfinite(*value) || *value < 0) {
    return InvalidArgument(
        fmt::format("{}: '{}' is no finite number from 0 on", key, at->second.substr(0, 40)));
  }
  return *value;
}

Status Question::CheckKeys(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : parameters) {
    if (std::ranges::find(known, key) == known.end()) {
      return InvalidArgument(fmt::format("{}: no parameter '{}'; there are: {}", name, key.substr(0, 40),
                                         fmt::join(known, ", ")));
    }
  }
  return OkStatus();
}

Result<std::vector<std::vector<uint32_t>>> ParseRows(std::string_view text, size_t tensors,
                                                     size_t most_rows) {
  std::vector<std::vector<uint32_t>> rows;
  const auto bad = [](std::string_view part) {
    return InvalidArgument(
        fmt::format("rows: '{}' is no tensor's id, nor a range of them such as 3-17", part.substr(0, 40)));
  };
  size_t members = 0;
  while (!text.empty()) {
    const size_t end = text.find(';');
    std::string_view row = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (rows.size() == most_rows) return InvalidArgument(fmt::format("rows: more than {}", most_rows));
    rows.emplace_back();
    while (!row.empty()) {
      const size_t comma = row.find(',');
      const std::string_view part = row.substr(0, comma);
      row.remove_prefix(comma == std::string_view::npos ? row.size() : comma + 1);
      const size_t dash = part.find('-');
      const auto first = base::ParseInt(part.substr(0, dash));
      const auto last = dash == std::string_view::npos ? first : base::ParseInt(part.substr(dash + 1));
      if (!first || !last || *first < 0 || *last < *first || static_cast<uint64_t>(*last) >= tensors)
        return bad(part);
      // Keep a tensor once, even if a row names it a thousand times.
      members += static_cast<size_t>(*last - *first + 1);
      if (members > tensors + 4 * most_rows + (size_t{1} << 16))
        return InvalidArgument("rows: too many members");
      for (int64_t id = *first; id <= *last; ++id) rows.back().push_back(static_cast<uint32_t>(id));
    }
  }
  return rows;
}

}  // namespace tdbg::query
