#include "format/events.h"

#include <algorithm>
#include <cstdint>

namespace tdbg::format {
namespace {

// A field's name has one type, in lines of every kind.
constexpr std::string_view kIntegers[] = {
    "wall_nanos",   "attempt",          "pid",    "exit_code", "signal",     "global_step",
    "steps_judged", "steps_incomplete", "millis", "from_step", "after_step",
};
constexpr std::string_view kTexts[] = {
    "kind",    "to",     "path",   "text",   "stop",  "stopped_by", "name",  "rule",
    "details", "status", "output", "action", "error", "target",     "asked", "worker",
};
constexpr std::string_view kTruths[] = {"ok", "killed"};

template <size_t N>
bool IsAmong(const std::string_view (&names)[N], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool HasItsType(const Json& event, const std::string& name, const Json& value) {
  int64_t integer;
  if (IsAmong(kIntegers, name)) return GetField(event, name.c_str(), &integer);
  if (IsAmong(kTexts, name)) return value.is_string();
  if (IsAmong(kTruths, name)) return value.is_boolean();
  return true;
}

}  // namespace

std::optional<Json> ParseEvent(std::string_view line) {
  Json event = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!event.is_object() || !event.contains("kind")) return std::nullopt;
  for (const auto& [name, value] : event.items()) {
    if (!HasItsType(event, name, value)) return std::nullopt;
  }
  return event;
}

}  // namespace tdbg::format
