// What a segment says about itself, from its JSON header or from its index.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_fields.h"
#include "format/records.h"
#include "tdbg/status.h"

namespace tdbg::store {

struct SegmentMeta {
  uint64_t first_sequence = 0, last_sequence = 0, writer_id = 0;
  std::vector<format::TensorDef> tensors;  ///< those that the caller did not know
  std::vector<format::ContextRecord> context;
  uint64_t damaged_contexts = 0;  ///< left out
  std::vector<std::string> acks;
  std::string end_json;  ///< empty: not ended
  std::vector<format::Drop> dropped;
  int64_t last_seen_step = -1, last_seen_wall_nanos = 0;
};

/// Definitions that the caller has already. Every segment of a run repeats them, and decoding them each time
/// would take most of the time to open the run.
struct KnownTensors {
  uint64_t writer = 0;
  uint64_t count = 0;  ///< ids below this are known, if the segment is by the same writer

  uint64_t Of(uint64_t segment_writer) const { return segment_writer == writer ? count : 0; }
};

/// \param json  the metadata "tdbg", or an index's copy of it, which has no tensors
/// \error kDataLoss; kUnimplemented  a newer major version
Result<SegmentMeta> ParseSegmentMeta(const format::Json& json, std::string_view file_name,
                                     const KnownTensors& known);

}  // namespace tdbg::store
