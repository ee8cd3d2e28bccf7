#include "jobs/exact_words.h"

#include <optional>

#include "base/sha256.h"
#include "base/text.h"
#include "format/json_fields.h"

namespace tdbg::jobs {
namespace {

using format::Json;

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::optional<std::string> BytesOf(const std::string& hexadecimal) {
  if (hexadecimal.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < hexadecimal.size(); i += 2) {
    const int high = Digit(hexadecimal[i]), low = Digit(hexadecimal[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

}  // namespace

std::string OtherBytes(std::string_view text) {
  return base::ToValidUtf8(text) == text ? std::string() : base::HexOf(text);
}

std::map<std::string, std::string> OtherBytes(const std::vector<std::string>& words) {
  std::map<std::string, std::string> bytes;
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::string other = OtherBytes(words[i]); !other.empty()) bytes[std::to_string(i)] = std::move(other);
  }
  return bytes;
}

std::string WordsText(const std::vector<std::string>& words) {
  Json json = {{"words", words}};
  if (const auto bytes = OtherBytes(words); !bytes.empty()) json["bytes"] = bytes;
  return format::DumpJson(json);
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words;
  const auto json = format::ParseJsonObject(text, "words");
  if (!json.ok()) return words;
  format::GetField(*json, "words", &words);
  const auto bytes = json->find("bytes");
  if (bytes == json->end() || !bytes->is_object()) return words;
  for (const auto& [index, hexadecimal] : bytes->items()) {
    const auto at = base::ParseInt(index);
    const auto word = hexadecimal.is_string() ? BytesOf(hexadecimal.get<std::string>()) : std::nullopt;
    if (at && *at >= 0 && *at < static_cast<int64_t>(words.size()) && word)
      words[static_cast<size_t>(*at)] = *word;
  }
  return words;
}

}  // namespace tdbg::jobs
