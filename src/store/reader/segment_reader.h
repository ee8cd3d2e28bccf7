// One sealed segment, mapped into memory. Its index says what it holds, or its JSON header if there is none;
// columns and raw tensors are verified when first used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/filled_files.h"
#include "format/columns.h"
#include "format/records.h"
#include "format/segment_index.h"
#include "store/reader/commits.h"
#include "store/reader/layouts.h"
#include "store/reader/places.h"
#include "store/reader/segment_header.h"
#include "store/reader/segment_meta.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"

namespace tdbg::store {

/// \threadsafety One thread. Damage found later than Open is appended to the list that the call is given.
class SegmentReader {
 public:
  /// \error kDataLoss  neither index nor header, or the step table, can be believed; kUnimplemented  a newer
  /// major version.
  static Result<std::unique_ptr<SegmentReader>> Open(const std::string& path, const KnownTensors& known,
                                                     std::vector<Damage>* damage);

  const SegmentMeta& meta() const { return meta_; }
  const std::string& file_name() const { return file_name_; }
  uint64_t file_bytes() const { return mapping_->bytes().size(); }
  /// The commits, read in place and verified.
  const CommitColumns& commits() const { return commits_; }

  static constexpr uint32_t kUnknownTensor = ~uint32_t{0};
  /// Reader's id of each of the writer's ids; call before what follows. Rows of other ids are damage.
  /// \param pool     outlives this
  /// \param scratch  outlives this; used within single calls
  void SetTensors(std::vector<uint32_t> id_map, LayoutPool* pool, std::vector<Spot>* scratch) {
    id_map_ = std::move(id_map);
    pool_ = pool;
    spots_ = scratch;
  }

  /// The columns, in place; not verified until Verify. The caller sets first_commit.
  const SummaryBatch& Summaries(std::vector<Damage>* damage);
  /// Verifies these columns of the summaries (a mask of format::ColumnBit) and marks damaged ones. False if
  /// all of them had been verified before.
  bool Verify(uint64_t columns, std::vector<Damage>* damage);
  Result<Histogram> HistogramOf(uint32_t row, std::vector<Damage>* damage);

  /// How many rows AppendRows appends of all steps.
  size_t CountRows(uint32_t tensor, std::vector<Damage>* damage) {
    return PlacesOf(PlaceKind::kSummary, {}, damage).CountOf(PlaceKind::kSummary, tensor);
  }
  // Of one tensor, in commit order; of all its steps or of one.
  void AppendRows(uint32_t tensor, std::optional<int64_t> global_step, uint32_t batch,
                  std::vector<WorkerReader::RowRef>* out, std::vector<Damage>* damage);
  void AppendScalars(uint32_t tensor, std::vector<WorkerReader::ScalarPoint>* out,
                     std::vector<Damage>* damage);
  /// Those of one step, of all tensors that are known.
  void AppendScalarsAt(int64_t global_step, std::vector<WorkerReader::TensorScalar>* out,
                       std::vector<Damage>* damage);
  /// `commit` counts from the segment's first; the caller sets `source`.
  /// \param tensors  the reader's: values that nothing but a key describes are found by name
  void AppendRaws(uint32_t tensor, std::optional<int64_t> global_step,
                  std::span<const format::TensorDef> tensors, std::vector<RawRef>* out,
                  std::vector<Damage>* damage);
  /// Those of all steps, without most that lie beside a row of the tensor's summaries.
  void AppendLoneRaws(uint32_t tensor, std::span<const format::TensorDef> tensors, std::vector<RawRef>* out,
                      std::vector<Damage>* damage);
  /// \param def  the tensor's definition. Costs a look at 4 KiB of the index and a hash of the value.
  Result<RawValue> ReadRaw(const RawRef& ref, const format::TensorDef& def, std::vector<Damage>* damage);
  /// Without verifying: no byte of the value is touched.
  Result<RawValue> MapRaw(const RawRef& ref, const format::TensorDef& def, std::vector<Damage>* damage);
  std::span<const int64_t> ShapeOf(const RawRef& ref) const;

 private:
  enum class Trust : uint8_t { kUnknown, kGood, kBad };
  struct Column {
    std::string_view key;
    uint64_t begin = 0, bytes = 0;  // in the data region
    DType dtype = DType::kInvalid;
    std::optional<uint64_t> hash;
    Trust trust = Trust::kUnknown;
  };
  struct RawPlace {
    uint64_t begin = 0, bytes = 0;  // in the data region
    DType dtype = DType::kInvalid;
    std::vector<int64_t> shape;
    std::optional<uint64_t> hash;
    Trust* trust = nullptr;
  };

  SegmentReader() = default;
  Status OpenIndex(const KnownTensors& known, std::vector<Damage>* damage);
  Status OpenHeader(const KnownTensors& known);
  Status DecodeSteps(std::vector<Damage>* damage);
  /// The header of a segment that was opened by its index.
  Result<const HeaderTable*> Header();
  Column* FindColumn(std::string_view key);
  std::span<const std::byte> BytesAt(uint64_t begin, uint64_t bytes) const;
  /// Brings these bytes of the file here, where the run lies elsewhere. Offsets of the file.
  Status Need(uint64_t offset, uint64_t bytes) const;
  Status NeedHeader() const;
  bool Verify(Column& column, std::vector<Damage>* damage);
  /// The column's first byte if it has `rows` elements of `dtype` and is aligned; not verified. Null for an
  /// optional column that is absent, which is not reported as damage.
  const void* Laid(const format::Column& stored, DType dtype, uint64_t rows, std::vector<Damage>* damage);
  /// The same, verified.
  const void* Verified(const format::Column& stored, DType dtype, uint64_t rows, std::vector<Damage>* damage);
  uint64_t RowsOfColumn(std::string_view key);
  /// A column that is not there: NaN or 0 in each row.
  template <typename T>
  const T* Fallback();
  const double* ScalarValues(std::vector<Damage>* damage);  ///< verified, or null
  void MapTensorColumn(std::vector<Damage>* damage);
  Places& PlacesOf(PlaceKind kind, std::span<const format::TensorDef> tensors, std::vector<Damage>* damage);
  void ListSummaries(ListedPlaces* list, std::vector<Damage>* damage);
  void ListScalars(ListedPlaces* list, std::vector<Damage>* damage);
  void ListRaws(ListedPlaces* list, std::span<const format::TensorDef> tensors, std::vector<Damage>* damage);
  void AppendSpots(uint32_t tensor, std::vector<RawRef>* out) const;
  Result<RawPlace> LocateRaw(const RawRef& ref, const format::TensorDef& def, std::vector<Damage>* damage);
  Result<RawPlace> LocateByHeader(uint32_t entry);
  Result<RawValue> Map(RawPlace place, const std::string& key) const;
  void Report(std::vector<Damage>* damage, std::string what, uint64_t bytes) const;

  std::string file_name_;
  std::shared_ptr<const base::ReadOnlyMapping> mapping_;
  std::shared_ptr<base::Filler> filler_;  ///< of a file with holes; null, mostly
  std::string path_;
  uint64_t data_offset_ = 0, data_bytes_ = 0;
  std::optional<format::SegmentIndex> index_;
  std::optional<HeaderTable> header_;  // without an index; else when it has to step in
  SegmentMeta meta_;
  CommitColumns commits_;
  std::vector<Column> columns_;
  std::vector<Trust> raw_trust_;     // by row of the index's raw table, or by entry of the header
  std::vector<Trust> header_trust_;  // by entry, where the header has to step in
  std::vector<Trust> block_trust_;   // of the index's raw table
  std::vector<uint32_t> id_map_;
  LayoutPool* pool_ = nullptr;

  std::unique_ptr<IndexedPlaces> indexed_;
  std::unique_ptr<ListedPlaces> listed_;
  bool listed_kinds_[3] = {};
  std::vector<Spot>* spots_ = nullptr;  // all segments': one for each would stay as long as they do

  bool laid_ = false;
  uint64_t verified_ = 0;
  SummaryBatch summaries_;
  std::vector<uint32_t> mapped_tensors_;  // where the writer's ids are not the reader's
  const double* scalar_values_ = nullptr;
  std::vector<std::pair<uint32_t, Spot>> tensor_spots_;  // scratch: as many as a step has scalars
  bool scalars_laid_ = false;
  std::vector<double> nan_fallback_;
  std::vector<uint64_t> zero_fallback_;
};

}  // namespace tdbg::store
