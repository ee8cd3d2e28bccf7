// The header of a file of coarse rows. Most of it are the definitions of its tensors, and the files of a
// worker state the same ones: they are read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/level.h"
#include "format/segment.h"

namespace tdbg::format {

struct LevelHeader {
  SegmentHeader segment;  ///< its `tdbg_json` may have "[]" for the tensors
  Json json;              ///< `tdbg_json`, parsed
  LevelMeta meta;         ///< without tensors
  std::shared_ptr<const std::vector<TensorDef>> tensors;
};

/// Decodes headers, and remembers the definitions in the last few that differed. A header that states
/// definitions which are known, byte for byte, costs its hash and a comparison instead of 16 us for each of
/// them.
/// \threadsafety One thread.
class LevelHeaders {
 public:
  /// \param file  the whole file, or its first bytes as far as the header goes; `file_bytes` long
  /// \error kDataLoss; kUnimplemented  a newer major version
  Result<LevelHeader> Decode(std::span<const std::byte> file, uint64_t file_bytes,
                             std::string_view file_name);
  /// How many definitions were parsed so far.
  uint64_t parsed() const { return parsed_; }

 private:
  struct Known {
    std::string text;  // as it stands in a header
    std::shared_ptr<const std::vector<TensorDef>> tensors;
  };
  std::list<Known> known_;  // the last one that was used comes first
  uint64_t parsed_ = 0;
};

}  // namespace tdbg::format
