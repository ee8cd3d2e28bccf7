// Everything in base that is handed text by strangers: names, numbers, patterns.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/regex.h"
#include "base/text.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg::base;
  if (size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  const std::string repaired = ToValidUtf8(text);
  Require(ToValidUtf8(repaired) == repaired);
  if (IsValidName(text)) Require(repaired == text);

  if (const auto number = ParseDouble(text)) {
    const std::string json = JsonNumber(*number);
    if (json[0] != '"') Require(ParseDouble(json) == number);
  }
  if (const auto number = ParseInt(text)) Require(ParseInt(std::to_string(*number)) == number);
  (void)ParseBytes(text);
  uint64_t hash;
  if (ParseHex64(std::string(text), &hash)) Require(Hex64(hash) == text);
  for (const std::string& item : SplitList(text)) Require(!item.empty() && Trim(item) == item);

  // The first line is a pattern, the rest what it is searched in.
  const size_t end = text.find('\n');
  const std::string_view pattern = text.substr(0, end);
  if (const auto regex = Regex::Compile(pattern); regex.ok() && end != std::string_view::npos) {
    (void)regex->Search(text.substr(end + 1));
  }
  return 0;
}
