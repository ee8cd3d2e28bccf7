// One sealed segment, mapped: its header decoded once, its columns verified when first used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/records.h"
#include "format/segment.h"
#include "store/reader/columns.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// \threadsafety One thread. Damage found later than Open is appended to the list that the call is given.
class SegmentReader {
 public:
  struct Meta {
    uint64_t first_sequence = 0, last_sequence = 0, writer_id = 0;
    std::vector<format::TensorDef> tensors;  ///< those with id >= `known_tensors` (see Open)
    uint64_t tensor_count = 0;               ///< all that the segment lists
    std::vector<format::ContextRecord> context;
    std::vector<std::string> acks;
    std::string end_json;  ///< empty: not ended
    std::vector<format::Loss> losses;
    int64_t last_seen_step = -1, last_seen_wall_nanos = 0;
  };

  /// \param known_tensors  definitions of `known_writer` that the caller has already: a run of many segments
  ///     repeats them in each, and decoding them again would be most of the time it takes to open.
  /// \error kDataLoss  the header or the step table cannot be believed; kUnimplemented  a newer major
  /// version.
  static Result<std::unique_ptr<SegmentReader>> Open(const std::string& path, uint64_t known_writer,
                                                     uint64_t known_tensors, std::vector<Damage>* damage);

  const Meta& meta() const { return meta_; }
  const std::string& file_name() const { return file_name_; }
  uint64_t file_bytes() const { return mapping_->bytes().size(); }
  std::span<const format::Commit> commits() const { return commits_; }
  const format::SegmentHeader& header() const { return header_; }
  std::string_view tdbg_json() const { return header_.tdbg_json; }

  static constexpr uint32_t kUnknownTensor = ~uint32_t{0};
  /// Reader's id of each of the writer's ids; call before what follows. Rows of other ids are damage.
  void SetIdMap(std::vector<uint32_t> map) { id_map_ = std::move(map); }

  /// Verified on the first call. Without rows if a key column is damaged. first_commit is the caller's
  /// business.
  const SummaryBatch& Summaries(std::vector<Damage>* damage);
  Result<Histogram> HistogramOf(uint32_t row, std::vector<Damage>* damage);

  struct ScalarRow {
    uint32_t tensor = 0;
    WorkerReader::ScalarPoint point;
  };
  std::vector<ScalarRow> Scalars(std::vector<Damage>* damage);

  /// Raw entries in step order; `commit` counts from the segment's first, `source` is the caller's business.
  std::vector<RawRef> Raws(std::span<const format::TensorDef> tensors, std::vector<Damage>* damage);
  std::optional<uint32_t> FindEntry(std::string_view key) const;
  const std::vector<int64_t>& shape_of(uint32_t entry) const;
  Result<RawValue> ReadRaw(uint32_t entry, std::vector<Damage>* damage);
  /// Without verifying: no byte of it is touched.
  Result<RawValue> MapRaw(uint32_t entry) const;

  /// Verifies an entry against its checksum, once; false is damage.
  bool Verify(uint32_t entry, std::vector<Damage>* damage);
  std::optional<uint64_t> checksum(uint32_t entry) const { return checksums_[entry]; }

 private:
  struct RawMeta {
    std::optional<uint32_t> id;  ///< the writer's
    int64_t commit = -1;         ///< index into the segment's step table
    DType dtype = DType::kInvalid;
    std::vector<int64_t> shape;
  };

  SegmentReader() = default;
  Status DecodeMeta(uint64_t known_writer, uint64_t known_tensors);
  Status DecodeSteps(std::vector<Damage>* damage);
  std::span<const std::byte> BytesOf(uint32_t entry) const;
  /// The column's first byte if it has `rows` elements of `dtype`, is aligned and verified.
  const void* Column(std::string_view key, std::string_view dtype, size_t item_bytes, uint64_t rows,
                     std::vector<Damage>* damage);
  uint64_t RowsOfColumn(std::string_view key) const;
  const void* Fallback(uint64_t rows, bool is_double);
  bool MapTensorColumn(std::vector<Damage>* damage);
  void Report(std::vector<Damage>* damage, std::string what, uint64_t bytes) const;

  std::string file_name_;
  std::shared_ptr<const base::ReadOnlyMapping> mapping_;
  format::SegmentHeader header_;
  Meta meta_;
  std::vector<format::Commit> commits_;
  std::vector<std::optional<uint64_t>> checksums_;  // by entry
  enum class Trust : uint8_t { kUnknown, kGood, kBad };
  std::vector<Trust> trust_;                       // by entry
  std::vector<std::pair<uint32_t, RawMeta>> raw_;  // by entry, ascending; entries with '@' only
  std::vector<uint32_t> id_map_;

  bool summaries_done_ = false;
  SummaryBatch summaries_;
  std::vector<uint32_t> mapped_tensors_;  // where the writer's ids are not the reader's
  std::vector<double> nan_fallback_;
  std::vector<uint64_t> zero_fallback_;
};

}  // namespace tdbg::store
