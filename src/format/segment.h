// A sealed segment: a valid safetensors file. docs/format.md, "Segments".
//
//   u64 header length | JSON header (padded with spaces so that data start 64-aligned) | data
//
// Keys without '@' are ours, keys with '@' are raw tensors (format/keys.h):
//   step/, summary/, scalar/   columns (format/columns.h): one row per commit, summary and scalar, in order
//   summary/histogram: U8      the histograms, concatenated
// Metadata (all strings): "tdbg" = JSON object {format:{major,minor}, kind:"segment", run, attempt, worker,
// first_sequence, last_sequence, writer_id, tensors:[TensorDef...] (all of the worker so far), context:[...],
// acks:[...], end:{...}|absent, losses:[Loss as objects, cumulative],
// checksums:{key: hex XXH3-64 of its bytes}, raw:{key:{id,dtype,shape,commit}} (dtype and shape are the
// logical ones, which safetensors cannot always say; commit: row of step/)}; "tdbg_hash" = hex XXH3-64 of the
// header JSON text, padding included, in which these 16 digits are '0'.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/records.h"
#include "tdbg/status.h"

namespace tdbg::format {

/// One safetensors entry. Encoded in descending item size, so that every entry is naturally aligned
/// without fillers (safetensors allows no holes).
struct SegmentEntry {
  std::string key;
  std::string dtype;  ///< safetensors' name: F32 BF16 U8 ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< relative to the data region
};

/// What an entry of this type is called: U32 for texts, U8 where safetensors has no name (the type itself is
/// in the metadata "raw").
std::string_view SegmentDType(DType dtype);

/// A file begins with the length of its header, in so many bytes.
inline constexpr uint64_t kSegmentLengthBytes = 8;

struct SegmentHeader {
  uint64_t data_offset = 0;           ///< of the data region in the file
  std::vector<SegmentEntry> entries;  ///< in file order
  std::string tdbg_json;              ///< metadata "tdbg", empty for a foreign safetensors file
  bool hash_ok = true;
};

/// `entries` must be laid out already (begin/end contiguous). Returns length prefix + padded JSON.
std::string EncodeSegmentHeader(std::span<const SegmentEntry> entries, std::string_view tdbg_json);
/// A piece of a header's JSON that the caller knows already, and what is read in its place.
struct HeaderCut {
  size_t begin = 0, end = 0;  ///< in the JSON, which lies behind the length
  std::string_view instead;
};
/// \param file_prefix  the file's first bytes, at least the header
/// \param cut  null: all is read. The hash is that of the whole header in any case
/// \error kDataLoss, kUnimplemented
Result<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> file_prefix, uint64_t file_bytes,
                                          const HeaderCut* cut = nullptr);

/// "<20 digits first>-<20 digits last>.safetensors" and back.
std::string SegmentFileName(uint64_t first_sequence, uint64_t last_sequence);
std::optional<std::pair<uint64_t, uint64_t>> ParseSegmentFileName(std::string_view name);

}  // namespace tdbg::format
