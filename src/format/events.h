// Lines of events.jsonl as their readers meet them. Several programs append to that file, and anybody may
// edit it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "format/json_fields.h"

namespace tdbg::format {

/// One line, or nothing where it is torn, no JSON object, without a kind, or has a field of another type than
/// docs/format.md gives that field: whoever takes it for an event would have to guess what it says.
std::optional<Json> ParseEvent(std::string_view line);

/// Calls f(kind, event) for every event of `text` in order. \param word  lines that do not hold it are not
/// looked at; empty: all are
template <typename F>
void ForEachEvent(std::string_view text, std::string_view word, F&& f) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find(word) == std::string_view::npos) continue;
    if (const auto event = ParseEvent(line)) f((*event)["kind"].get_ref<const std::string&>(), *event);
  }
}

}  // namespace tdbg::format
