// Segment headers (ours and foreign safetensors files), file names and keys.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "format/keys.h"
#include "format/segment.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckDecoded(const tdbg::format::SegmentHeader& header, uint64_t file_bytes) {
  uint64_t at = 0;
  for (const auto& entry : header.entries) {
    Require(entry.begin == at && entry.end >= entry.begin);
    at = entry.end;
  }
  Require(header.data_offset + at == file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg::format;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto header = DecodeSegmentHeader(bytes, size); header.ok()) {
    CheckDecoded(*header, size);
    const std::string again = EncodeSegmentHeader(header->entries, header->tdbg_json);
    const uint64_t data_bytes = size - header->data_offset;
    const auto read = DecodeSegmentHeader(std::as_bytes(std::span(again)), again.size() + data_bytes);
    Require(read.ok() && read->entries.size() == header->entries.size());
    // Metadata without a version that can be read are not believed, whatever their hash.
    if (header->tdbg_json.starts_with("{\"format\":{\"major\":1,")) Require(read->hash_ok);
    Require(read->tdbg_json == header->tdbg_json);
  }
  // The same bytes as the JSON itself: the length prefix alone hides most inputs from the parser.
  std::string file(8, '\0');
  file.append(reinterpret_cast<const char*>(data), size);
  const uint64_t length = size;
  std::memcpy(file.data(), &length, 8);
  for (const uint64_t data_bytes : {0, 4, 64}) {
    if (const auto header = DecodeSegmentHeader(std::as_bytes(std::span(file)), file.size() + data_bytes);
        header.ok()) {
      CheckDecoded(*header, file.size() + data_bytes);
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto key = ParseRawKey(text))
    Require(RawKey(key->tensor_name, key->global_step, key->sub) == text);
  if (const auto range = ParseSegmentFileName(text))
    Require(SegmentFileName(range->first, range->second) == text);
  return 0;
}
