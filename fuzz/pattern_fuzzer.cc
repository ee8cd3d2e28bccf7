// A pattern of a handler's file and an event of somebody else's run: the first line and the rest.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "events/pattern.h"
#include "format/json_fields.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tdbg::format::Json;
  if (size > 8192) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return 0;
  const std::string_view first = text.substr(0, end), second = text.substr(end + 1);
  if (!tdbg::format::IsJson(first) || !tdbg::format::IsJson(second)) return 0;
  const Json pattern = Json::parse(first), event = Json::parse(second);
  tdbg::plan::Source source;
  source.name = "fuzz";
  const auto parsed = tdbg::events::Pattern::Parse(pattern, source);
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  if (parsed->Matches(event) != parsed->Matches(event)) std::abort();
  return 0;
}
