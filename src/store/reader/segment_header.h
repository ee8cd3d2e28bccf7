// A segment's JSON header: used for segments without an index, and where the index is damaged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/segment.h"
#include "store/reader/segment_meta.h"
#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::store {

/// Decoded as a whole: its cost is that of all the segment's raw values, some 300 bytes of JSON each.
class HeaderTable {
 public:
  /// What the header says about one raw value.
  struct Raw {
    uint32_t entry = 0;
    std::optional<uint32_t> id;  ///< the writer's
    int64_t commit = -1;         ///< index into the segment's step table
    DType dtype = DType::kInvalid;
    std::vector<int64_t> shape;
  };

  /// \param meta  filled in, if it is not null
  /// \error kDataLoss, kUnimplemented
  static Result<HeaderTable> Decode(std::span<const std::byte> file, std::string_view file_name,
                                    const KnownTensors& known, SegmentMeta* meta);

  const format::SegmentHeader& header() const { return header_; }
  const format::SegmentEntry& entry(uint32_t entry) const { return header_.entries[entry]; }
  std::optional<uint64_t> checksum(uint32_t entry) const { return checksums_[entry]; }
  std::optional<uint32_t> Find(std::string_view key) const;
  std::span<const Raw> raws() const { return raws_; }  ///< ascending by entry
  const Raw* RawOf(uint32_t entry) const;

 private:
  format::SegmentHeader header_;
  std::vector<std::optional<uint64_t>> checksums_;  // by entry
  std::vector<Raw> raws_;
};

}  // namespace tdbg::store
