#include "format/level_header.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"

namespace tdbg::format {
namespace {

/// Texts that are remembered. Files of one worker differ where some tensors are looked at more rarely than
/// others.
constexpr size_t kMostKnown = 8;
// The metadata is JSON within a JSON string.
constexpr std::string_view kTensors = R"(\"tensors\":)";
constexpr std::string_view kNone = "[]";

/// The header's JSON; empty where it does not lie in `file`.
std::string_view TextOf(std::span<const std::byte> file) {
  if (file.size() < kSegmentLengthBytes) return {};
  const auto length = base::Load<uint64_t>(file.data());
  if (length > file.size() - kSegmentLengthBytes) return {};
  return {reinterpret_cast<const char*>(file.data()) + kSegmentLengthBytes, length};
}

/// How long the array at the beginning of `text` is, which is JSON within a JSON string. 0: it has no end, or
/// is not written as EncodeLevel would.
size_t ArrayLength(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') return 0;  // the end of the string
    if (c == '\\') {
      if (++at == text.size()) return 0;
      if (text[at] == '"') quoted = !quoted;
      if (text[at] == 'u') return 0;  // of the outer string: it may stand for a quote
      if (text[at] != '\\') continue;
      // A backslash of the inner JSON, and what follows it there.
      if (++at == text.size()) return 0;
      if (text[at] == '\\' && ++at == text.size()) return 0;
      continue;
    }
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && --depth == 0) return at + 1;
  }
  return 0;
}

}  // namespace

Result<LevelHeader> LevelHeaders::Decode(std::span<const std::byte> file, uint64_t file_bytes,
                                         std::string_view file_name) {
  const std::string_view text = TextOf(file);
  size_t begin = text.find(kTensors);
  begin = begin == std::string_view::npos ? text.size() : begin + kTensors.size();
  const auto known =
      std::find_if(known_.begin(), known_.end(),
                   [stated = text.substr(begin)](const Known& one) { return stated.starts_with(one.text); });
  std::optional<HeaderCut> cut;
  if (known != known_.end()) cut = HeaderCut{begin, begin + known->text.size(), kNone};

  LevelHeader header;
  TDBG_ASSIGN_OR_RETURN(header.segment, DecodeSegmentHeader(file, file_bytes, cut ? &*cut : nullptr));
  if (!header.segment.hash_ok || header.segment.tdbg_json.empty()) return DataLoss("level header: hash");
  TDBG_ASSIGN_OR_RETURN(header.json,
                        ParseJsonObject(header.segment.tdbg_json, "level metadata", kMaxMetadataDepth));
  TDBG_ASSIGN_OR_RETURN(header.meta, ParseLevelMeta(header.json, file_name));
  if (cut) {
    header.tensors = known->tensors;
    known_.splice(known_.begin(), known_, known);
    return header;
  }
  header.tensors = std::make_shared<const std::vector<TensorDef>>(std::move(header.meta.tensors));
  header.meta.tensors.clear();
  parsed_ += header.tensors->size();
  const size_t length = ArrayLength(text.substr(begin));
  // Without it the rest must be a header that lacks nothing else: then it was the tensors' array.
  const HeaderCut rest{begin, begin + length, kNone};
  const auto short_header = DecodeSegmentHeader(file, file_bytes, length > 0 ? &rest : nullptr);
  Json without = header.json;
  without["tensors"] = Json::array();
  if (length == 0 || !short_header.ok() ||
      Json::parse(short_header->tdbg_json, nullptr, /*allow_exceptions=*/false) != without) {
    return header;
  }
  known_.push_front({std::string(text.substr(begin, length)), header.tensors});
  if (known_.size() > kMostKnown) known_.pop_back();
  return header;
}

}  // namespace tdbg::format
