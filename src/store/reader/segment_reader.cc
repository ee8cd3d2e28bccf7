#include "store/reader/segment_reader.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/stable_sort.h"
#include "format/json_fields.h"

namespace tdbg::store {

using format::ColumnBit;
using format::ColumnOf;
using format::DTypeOf;
using format::kKeyColumns;
using format::SummaryColumn;

namespace {

// Of the types that columns have.
DType ColumnDType(std::string_view safetensors_name) {
  for (const DType dtype :
       {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64, DType::kInt64, DType::kFloat64}) {
    if (format::SegmentDType(dtype) == safetensors_name) return dtype;
  }
  return DType::kInvalid;
}

/// Bytes of a value; nothing where no value can be of that shape.
std::optional<uint64_t> BytesOf(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = ItemSize(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
      return std::nullopt;
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<SegmentReader>> SegmentReader::Open(const std::string& path, const KnownTensors& known,
                                                           std::vector<Damage>* damage) {
  std::unique_ptr<SegmentReader> segment(new SegmentReader());
  segment->file_name_ = base::BaseName(path);
  segment->path_ = path;
  segment->filler_ = base::FillerOf(path);
  TDBG_ASSIGN_OR_RETURN(segment->mapping_, base::ReadOnlyMapping::Open(path));
  const Status by_index = segment->OpenIndex(known, damage);
  if (!by_index.ok()) {
    segment->index_.reset();
    TDBG_RETURN_IF_ERROR(segment->OpenHeader(known));
    // An index that is there and was not used costs time, nothing else. Its footer may be what is damaged.
    if (segment->FindColumn(format::kIndexKey) != nullptr)
      segment->Report(damage, by_index.message() + "; read without it", 0);
  }
  if (segment->meta_.damaged_contexts != 0) {
    segment->Report(damage,
                    std::to_string(segment->meta_.damaged_contexts) + " of its context records are none", 0);
  }
  TDBG_RETURN_IF_ERROR(segment->DecodeSteps(damage));
  if (by_index.ok() && segment->commits_.size() != segment->index_->commits.size()) {
    return DataLoss("step table is damaged");
  }
  return segment;
}

Status SegmentReader::Need(uint64_t offset, uint64_t bytes) const {
  return filler_ ? filler_->Need(path_, offset, bytes) : OkStatus();
}

Status SegmentReader::NeedHeader() const {
  if (!filler_ || mapping_->bytes().size() < sizeof(uint64_t)) return OkStatus();
  TDBG_RETURN_IF_ERROR(Need(0, sizeof(uint64_t)));
  const auto header_bytes = base::Load<uint64_t>(mapping_->bytes().data());
  return Need(0, std::min<uint64_t>(header_bytes, mapping_->bytes().size()) + sizeof(uint64_t));
}

Status SegmentReader::OpenIndex(const KnownTensors& known, std::vector<Damage>* damage) {
  TDBG_ASSIGN_OR_RETURN(index_, format::DecodeSegmentIndex(mapping_->bytes()));
  TDBG_ASSIGN_OR_RETURN(
      const format::Json json,
      format::ParseJsonObject(index_->meta, "index: segment metadata", format::kMaxMetadataDepth));
  TDBG_ASSIGN_OR_RETURN(meta_, ParseSegmentMeta(json, file_name_, known));
  data_offset_ = index_->data_offset;
  data_bytes_ = index_->data_bytes;
  const uint64_t known_count = known.Of(meta_.writer_id);
  if (known_count >= index_->first_definition) {
    for (uint64_t i = known_count - index_->first_definition; i < index_->definition_ends.size(); ++i) {
      TDBG_ASSIGN_OR_RETURN(format::TensorDef def, format::TensorDef::FromJson(index_->Definition(i)));
      meta_.tensors.push_back(std::move(def));
    }
  } else {
    // The segment that has the others is not there. The header repeats them all.
    SegmentMeta all;
    TDBG_RETURN_IF_ERROR(NeedHeader());
    const auto header = HeaderTable::Decode(mapping_->bytes(), file_name_, known, &all);
    if (header.ok()) {
      meta_.tensors = std::move(all.tensors);
    } else {
      Report(damage, header.status().message(), 0);
    }
  }
  for (size_t i = 0; i < index_->columns.size(); ++i) {
    const format::IndexColumn& column = index_->columns[i];
    columns_.push_back(
        {index_->ColumnName(i), column.begin, column.bytes, static_cast<DType>(column.dtype), column.hash});
  }
  return OkStatus();
}

Status SegmentReader::OpenHeader(const KnownTensors& known) {
  const std::span<const std::byte> file = mapping_->bytes();
  meta_ = {};
  columns_.clear();
  TDBG_RETURN_IF_ERROR(NeedHeader());
  TDBG_ASSIGN_OR_RETURN(header_, HeaderTable::Decode(file, file_name_, known, &meta_));
  data_offset_ = header_->header().data_offset;
  data_bytes_ = file.size() - data_offset_;
  const std::span<const format::SegmentEntry> entries = header_->header().entries;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const format::SegmentEntry& entry = entries[i];
    if (entry.key.find('@') != std::string::npos) continue;
    const DType dtype = entry.shape.size() == 1 ? ColumnDType(entry.dtype) : DType::kInvalid;
    columns_.push_back({entry.key, entry.begin, entry.end - entry.begin, dtype, header_->checksum(i)});
  }
  return OkStatus();
}

Status SegmentReader::DecodeSteps(std::vector<Damage>* damage) {
  if (FindColumn("step/global") == nullptr) return DataLoss("step table is missing");
  const uint64_t rows = RowsOfColumn("step/global");
  if (rows == 0) return OkStatus();
  CommitColumns commits;
  bool readable = true;
  const auto take = [&]<typename T>(const format::Column& column, const T** to) {
    *to = static_cast<const T*>(Verified(column, DTypeOf<T>(), rows, damage));
    readable &= *to != nullptr || column.need != format::ColumnNeed::kKey;
  };
  const format::Column* column = format::kStepColumns.data();
#define TDBG_COLUMN(name, type, need, field, says) take(*column++, &commits.field);
  TDBG_STEP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  if (!readable) return DataLoss("step table is damaged");
  commits.rows = rows;
  commits_ = commits;
  return OkStatus();
}

void SegmentReader::Report(std::vector<Damage>* damage, std::string what, uint64_t bytes) const {
  if (damage) damage->push_back({file_name_, std::move(what), bytes});
}

Result<const HeaderTable*> SegmentReader::Header() {
  if (!header_) {
    TDBG_RETURN_IF_ERROR(NeedHeader());
    TDBG_ASSIGN_OR_RETURN(header_, HeaderTable::Decode(mapping_->bytes(), file_name_, {}, nullptr));
  }
  return &*header_;
}

// ---- Columns

SegmentReader::Column* SegmentReader::FindColumn(std::string_view key) {
  for (Column& column : columns_) {
    if (column.key == key) return &column;
  }
  return nullptr;
}

uint64_t SegmentReader::RowsOfColumn(std::string_view key) {
  const Column* const column = FindColumn(key);
  const size_t item = column == nullptr ? 0 : ItemSize(column->dtype);
  return item == 0 ? 0 : column->bytes / item;
}

std::span<const std::byte> SegmentReader::BytesAt(uint64_t begin, uint64_t bytes) const {
  return mapping_->bytes().subspan(data_offset_ + begin, bytes);
}

bool SegmentReader::Verify(Column& column, std::vector<Damage>* damage) {
  if (column.trust == Trust::kUnknown) {
    if (const Status there = Need(data_offset_ + column.begin, column.bytes); !there.ok()) {
      Report(damage, std::string(column.key) + ": " + there.message(), column.bytes);
      return false;  // not known to be damaged: it is asked for again
    }
    const bool good = !column.hash || base::Hash64(BytesAt(column.begin, column.bytes)) == *column.hash;
    column.trust = good ? Trust::kGood : Trust::kBad;
    if (!good) Report(damage, std::string(column.key) + ": checksum", column.bytes);
  }
  return column.trust == Trust::kGood;
}

const void* SegmentReader::Laid(const format::Column& stored, DType dtype, uint64_t rows,
                                std::vector<Damage>* damage) {
  const Column* const column = FindColumn(stored.key);
  if (column == nullptr) {
    if (stored.need != format::ColumnNeed::kOptional)
      Report(damage, std::string(stored.key) + ": missing", 0);
    return nullptr;
  }
  const std::span<const std::byte> bytes = BytesAt(column->begin, column->bytes);
  const size_t item = ItemSize(dtype);
  const bool fits = column->dtype == dtype && bytes.size() / item == rows && bytes.size() % item == 0 &&
                    reinterpret_cast<uintptr_t>(bytes.data()) % item == 0;
  if (!fits) Report(damage, std::string(stored.key) + ": type or length", bytes.size());
  return fits ? bytes.data() : nullptr;
}

const void* SegmentReader::Verified(const format::Column& stored, DType dtype, uint64_t rows,
                                    std::vector<Damage>* damage) {
  const void* const laid = Laid(stored, dtype, rows, damage);
  return laid != nullptr && Verify(*FindColumn(stored.key), damage) ? laid : nullptr;
}

template <typename T>
const T* SegmentReader::Fallback() {
  if constexpr (std::is_same_v<T, double>) {
    nan_fallback_.resize(summaries_.rows, std::numeric_limits<double>::quiet_NaN());
    return nan_fallback_.data();
  } else {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    zero_fallback_.resize(summaries_.rows, 0);
    return reinterpret_cast<const T*>(zero_fallback_.data());
  }
}

const SummaryBatch& SegmentReader::Summaries(std::vector<Damage>* damage) {
  if (laid_) return summaries_;
  laid_ = true;
  // Columns are there even where they are empty.
  const uint64_t rows = RowsOfColumn("summary/tensor");
  if (FindColumn("summary/tensor") == nullptr) Report(damage, "summary/tensor: missing", 0);
  if (rows > std::numeric_limits<uint32_t>::max()) {
    Report(damage, "summary/tensor: more rows than can be indexed", 0);
    return summaries_;
  }
  if (rows == 0) return summaries_;
  summaries_.rows = rows;
  const auto lay = [&]<typename T>(SummaryColumn which, const T*& column) {
    column = static_cast<const T*>(Laid(ColumnOf(which), DTypeOf<T>(), rows, damage));
    if (column != nullptr) return;
    column = Fallback<T>();
    // One that may be missing, and is, has nothing to verify.
    const bool is_missing = FindColumn(ColumnOf(which).key) == nullptr;
    const bool is_damage = !is_missing || ColumnOf(which).need != format::ColumnNeed::kOptional;
    (is_damage ? summaries_.damaged : verified_) |= ColumnBit(which);
  };
  format::ForEachSummaryColumn(lay, summaries_);
  if (const Column* const column = FindColumn(format::kHistogramsKey)) {
    const std::span<const std::byte> bytes = BytesAt(column->begin, column->bytes);
    summaries_.histograms = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  return summaries_;
}

bool SegmentReader::Verify(uint64_t columns, std::vector<Damage>* damage) {
  if ((columns & ~verified_) == 0) return false;
  Summaries(damage);
  const uint64_t missing = columns & ~verified_ & ~summaries_.damaged;
  verified_ |= columns;
  if (summaries_.rows == 0) return true;
  const auto verify = [&]<typename T>(SummaryColumn which, const T*& column) {
    if ((missing & ColumnBit(which)) == 0 || Verify(*FindColumn(ColumnOf(which).key), damage)) return;
    summaries_.damaged |= ColumnBit(which);
    column = Fallback<T>();
  };
  format::ForEachSummaryColumn(verify, summaries_);
  constexpr uint64_t kTensor = ColumnBit(SummaryColumn::k_tensor);
  if ((missing & kTensor) != 0 && (summaries_.damaged & kTensor) == 0) MapTensorColumn(damage);
  return true;
}

void SegmentReader::MapTensorColumn(std::vector<Damage>* damage) {
  bool identity = true;
  for (uint32_t i = 0; i < id_map_.size(); ++i) identity &= id_map_[i] == i;
  const auto known = static_cast<uint32_t>(id_map_.size());
  bool defined = true;
  for (size_t i = 0; i < summaries_.rows && defined; ++i) {
    defined = summaries_.tensor[i] < known && id_map_[summaries_.tensor[i]] != kUnknownTensor;
  }
  if (!defined) {
    Report(damage, "summary/tensor: rows of a tensor that is not defined",
           summaries_.rows * sizeof(uint32_t));
    summaries_.damaged |= ColumnBit(SummaryColumn::k_tensor);
    summaries_.tensor = Fallback<uint32_t>();
    return;
  }
  if (identity) return;
  mapped_tensors_.resize(summaries_.rows);
  for (size_t i = 0; i < summaries_.rows; ++i) mapped_tensors_[i] = id_map_[summaries_.tensor[i]];
  summaries_.tensor = mapped_tensors_.data();
}

Result<Histogram> SegmentReader::HistogramOf(uint32_t row, std::vector<Damage>* damage) {
  constexpr uint64_t kNeeded =
      ColumnBit(SummaryColumn::k_histogram_offset) | ColumnBit(SummaryColumn::k_histogram_bytes);
  Verify(kNeeded, damage);
  const SummaryBatch& batch = summaries_;
  if (row >= batch.rows) return Internal("histogram of a row that does not exist");
  if ((batch.damaged & kNeeded) != 0)
    return DataLoss("where the histograms lie is damaged, in " + file_name_);
  if (batch.histogram_bytes[row] == 0) return NotFound("no histogram was kept");
  Column* const column = FindColumn(format::kHistogramsKey);
  if (column == nullptr || !Verify(*column, damage))
    return DataLoss("the histograms are damaged, in " + file_name_);
  const uint64_t offset = batch.histogram_offset[row], bytes = batch.histogram_bytes[row];
  if (offset > batch.histograms.size() || bytes > batch.histograms.size() - offset) {
    return DataLoss("a histogram lies outside its column, in " + file_name_);
  }
  return DecodeHistogram(batch.histograms.subspan(offset, bytes));
}

// ---- Whose value lies where

Places& SegmentReader::PlacesOf(PlaceKind kind, std::span<const format::TensorDef> tensors,
                                std::vector<Damage>* damage) {
  if (index_) {
    if (!indexed_) {
      indexed_ = std::make_unique<IndexedPlaces>(*index_, commits_.steps(), id_map_, pool_);
      const bool defined = std::all_of(
          index_->layout_rows.begin(), index_->layout_rows.end(), [&](const format::IndexRow& row) {
            return row.tensor < id_map_.size() && id_map_[row.tensor] != kUnknownTensor;
          });
      if (!defined) Report(damage, "index: values of a tensor that is not defined", 0);
    }
    return *indexed_;
  }
  if (!listed_) listed_ = std::make_unique<ListedPlaces>();
  if (!listed_kinds_[static_cast<int>(kind)]) {
    listed_kinds_[static_cast<int>(kind)] = true;
    if (kind == PlaceKind::kSummary) ListSummaries(listed_.get(), damage);
    if (kind == PlaceKind::kScalar) ListScalars(listed_.get(), damage);
    if (kind == PlaceKind::kRaw) ListRaws(listed_.get(), tensors, damage);
  }
  return *listed_;
}

void SegmentReader::ListSummaries(ListedPlaces* list, std::vector<Damage>* damage) {
  Verify(kKeyColumns, damage);
  const SummaryBatch& batch = summaries_;
  if ((batch.damaged & kKeyColumns) != 0) return;  // no row can be told from its neighbour
  for (uint32_t i = 0; i < batch.rows; ++i) {
    list->Add(PlaceKind::kSummary, batch.tensor[i],
              {batch.step_last[i], 0, i, {batch.sub[i], static_cast<format::Point>(batch.point[i])}});
  }
}

void SegmentReader::ListScalars(ListedPlaces* list, std::vector<Damage>* damage) {
  const uint64_t rows = RowsOfColumn("scalar/tensor");
  if (FindColumn("scalar/tensor") == nullptr) Report(damage, "scalar/tensor: missing", 0);
  if (rows == 0 || rows > std::numeric_limits<uint32_t>::max()) return;
  const auto column = [&]<typename T>(format::ScalarColumn which, T) {
    return static_cast<const T*>(Verified(ColumnOf(which), DTypeOf<T>(), rows, damage));
  };
  using enum format::ScalarColumn;
  const uint32_t* const tensor = column(k_tensor, uint32_t());
  const int64_t* const step = column(k_step, int64_t());
  const uint16_t* const sub = column(k_sub, uint16_t());
  const uint16_t* const point = column(k_point, uint16_t());
  if (!tensor || !step || !sub || !point) return;
  for (uint32_t i = 0; i < rows; ++i) {
    const uint32_t id = tensor[i] < id_map_.size() ? id_map_[tensor[i]] : kUnknownTensor;
    if (id == kUnknownTensor) {
      Report(damage, "scalar/tensor: a row of a tensor that is not defined", 1);
      continue;
    }
    list->Add(PlaceKind::kScalar, id, {step[i], 0, i, {sub[i], static_cast<format::Point>(point[i])}});
  }
}

void SegmentReader::ListRaws(ListedPlaces* list, std::span<const format::TensorDef> tensors,
                             std::vector<Damage>* damage) {
  std::vector<std::pair<uint32_t, Spot>> found;
  for (const HeaderTable::Raw& raw : header_->raws()) {
    const format::SegmentEntry& entry = header_->entry(raw.entry);
    const auto key = format::ParseRawKey(entry.key);
    uint32_t id = kUnknownTensor;
    if (key && raw.id && *raw.id < id_map_.size()) id = id_map_[*raw.id];
    if (key && !raw.id) {
      for (uint32_t i = 0; i < tensors.size() && id == kUnknownTensor; ++i) {
        if (tensors[i].name == key->tensor_name && tensors[i].dtype == raw.dtype &&
            tensors[i].shape == raw.shape) {
          id = i;
        }
      }
      for (uint32_t i = 0; i < tensors.size() && id == kUnknownTensor; ++i) {
        if (tensors[i].name == key->tensor_name) id = i;
      }
    }
    if (id == kUnknownTensor) {
      Report(damage, entry.key + ": a tensor that is not defined", entry.end - entry.begin);
      continue;
    }
    int64_t commit = raw.commit;
    if (commit < 0 || static_cast<size_t>(commit) >= commits_.size()) {
      const bool outside = key->sub.point == format::Point::kEnd;
      const std::span<const int64_t> steps = commits_.steps();
      auto at =
          static_cast<size_t>(std::lower_bound(steps.begin(), steps.end(), key->global_step) - steps.begin());
      while (at + 1 < steps.size() && steps[at + 1] == key->global_step &&
             ((commits_.flags[at] & format::kCommitOutside) != 0) != outside) {
        ++at;
      }
      commit = static_cast<int64_t>(at);
    }
    found.emplace_back(id, Spot{key->global_step, static_cast<uint32_t>(commit), raw.entry, key->sub});
  }
  // Entries lie in descending item size: put them back into the order in which they happened.
  base::StableSort(&found, [](const auto& a, const auto& b) { return a.second.commit < b.second.commit; });
  for (const auto& [id, spot] : found) list->Add(PlaceKind::kRaw, id, spot);
}

void SegmentReader::AppendRows(uint32_t tensor, std::optional<int64_t> global_step, uint32_t batch,
                               std::vector<WorkerReader::RowRef>* out, std::vector<Damage>* damage) {
  Places& places = PlacesOf(PlaceKind::kSummary, {}, damage);
  spots_->clear();
  if (global_step) {
    places.AppendAt(PlaceKind::kSummary, tensor, *global_step, spots_);
  } else {
    places.AppendOf(PlaceKind::kSummary, tensor, spots_);
  }
  for (const Spot& spot : *spots_) out->push_back({batch, spot.index, spot.global_step, spot.sub});
}

void SegmentReader::AppendScalars(uint32_t tensor, std::vector<WorkerReader::ScalarPoint>* out,
                                  std::vector<Damage>* damage) {
  spots_->clear();
  PlacesOf(PlaceKind::kScalar, {}, damage).AppendOf(PlaceKind::kScalar, tensor, spots_);
  if (spots_->empty()) return;
  const double* const values = ScalarValues(damage);
  if (values == nullptr) return;
  for (const Spot& spot : *spots_) out->push_back({spot.global_step, spot.sub, values[spot.index]});
}

void SegmentReader::AppendScalarsAt(int64_t global_step, std::vector<WorkerReader::TensorScalar>* out,
                                    std::vector<Damage>* damage) {
  tensor_spots_.clear();
  PlacesOf(PlaceKind::kScalar, {}, damage).AppendAllAt(PlaceKind::kScalar, global_step, &tensor_spots_);
  if (tensor_spots_.empty()) return;
  const double* const values = ScalarValues(damage);
  if (values == nullptr) return;
  for (const auto& [tensor, spot] : tensor_spots_) {
    if (tensor != kUnknownTensor) out->push_back({tensor, spot.sub, values[spot.index]});
  }
}

const double* SegmentReader::ScalarValues(std::vector<Damage>* damage) {
  if (!scalars_laid_) {
    scalars_laid_ = true;
    scalar_values_ = static_cast<const double*>(Verified(
        ColumnOf(format::ScalarColumn::k_value), DType::kFloat64, RowsOfColumn("scalar/tensor"), damage));
  }
  return scalar_values_;
}

void SegmentReader::AppendRaws(uint32_t tensor, std::optional<int64_t> global_step,
                               std::span<const format::TensorDef> tensors, std::vector<RawRef>* out,
                               std::vector<Damage>* damage) {
  Places& places = PlacesOf(PlaceKind::kRaw, tensors, damage);
  spots_->clear();
  if (global_step) {
    places.AppendAt(PlaceKind::kRaw, tensor, *global_step, spots_);
  } else {
    places.AppendOf(PlaceKind::kRaw, tensor, spots_);
  }
  AppendSpots(tensor, out);
}

void SegmentReader::AppendLoneRaws(uint32_t tensor, std::span<const format::TensorDef> tensors,
                                   std::vector<RawRef>* out, std::vector<Damage>* damage) {
  spots_->clear();
  PlacesOf(PlaceKind::kRaw, tensors, damage).AppendLoneRaws(tensor, spots_);
  AppendSpots(tensor, out);
}

void SegmentReader::AppendSpots(uint32_t tensor, std::vector<RawRef>* out) const {
  for (const Spot& spot : *spots_) {
    RawRef& ref = out->emplace_back();
    ref.tensor = tensor;
    ref.sub = spot.sub;
    ref.global_step = spot.global_step;
    ref.commit = spot.commit;
    ref.entry = spot.index;
    ref.shape_index = spot.form;
    if (index_) {
      if (spot.form < index_->forms.size()) ref.dtype = static_cast<DType>(index_->forms[spot.form].dtype);
    } else if (const HeaderTable::Raw* const raw = header_->RawOf(spot.index)) {
      ref.dtype = raw->dtype;
    }
  }
}

// ---- Raw values

std::span<const int64_t> SegmentReader::ShapeOf(const RawRef& ref) const {
  if (index_) {
    const auto shape = index_->ShapeOf(ref.shape_index);
    return shape.ok() ? *shape : std::span<const int64_t>();
  }
  const HeaderTable::Raw* const raw = header_->RawOf(ref.entry);
  return raw != nullptr ? std::span<const int64_t>(raw->shape) : std::span<const int64_t>();
}

Result<SegmentReader::RawPlace> SegmentReader::LocateRaw(const RawRef& ref, const format::TensorDef& def,
                                                         std::vector<Damage>* damage) {
  if (!index_) return LocateByHeader(ref.entry);
  const uint64_t row = ref.entry, block = row / format::kIndexBlockRows;
  if (row >= index_->raws.size()) return Internal("not a raw value of this segment");
  block_trust_.resize(index_->block_hashes.size(), Trust::kUnknown);
  if (block_trust_[block] == Trust::kUnknown) {
    const std::span<const format::IndexRaw> rows = index_->raws.subspan(block * format::kIndexBlockRows);
    const std::byte* const begin = std::as_bytes(rows).data();
    TDBG_RETURN_IF_ERROR(
        Need(static_cast<uint64_t>(begin - mapping_->bytes().data()),
             std::min<uint64_t>(rows.size(), format::kIndexBlockRows) * sizeof(format::IndexRaw)));
    block_trust_[block] = index_->Intact(row) ? Trust::kGood : Trust::kBad;
    if (block_trust_[block] == Trust::kBad) {
      Report(damage, "index: where raw values lie, block " + std::to_string(block) + "; the header tells", 0);
    }
  }
  if (block_trust_[block] == Trust::kGood) {
    const format::IndexRaw& raw = index_->raws[row];
    TDBG_ASSIGN_OR_RETURN(const std::span<const int64_t> shape, index_->ShapeOf(ref.shape_index));
    RawPlace place;
    place.dtype = static_cast<DType>(index_->forms[ref.shape_index].dtype);
    const auto bytes = BytesOf(place.dtype, shape);
    if (bytes && *bytes <= data_bytes_ && raw.begin <= data_bytes_ - *bytes) {
      raw_trust_.resize(index_->raws.size(), Trust::kUnknown);
      place.begin = raw.begin;
      place.bytes = *bytes;
      place.shape.assign(shape.begin(), shape.end());
      place.hash = raw.hash;
      place.trust = &raw_trust_[row];
      return place;
    }
    Report(damage, "index: a raw value outside the file; the header tells", 0);
  }
  const std::string key = format::RawKey(def.name, ref.global_step, ref.sub);
  TDBG_ASSIGN_OR_RETURN(const HeaderTable* const header, Header());
  const auto entry = header->Find(key);
  if (!entry) return DataLoss(key + ": neither index nor header says where it lies, in " + file_name_);
  return LocateByHeader(*entry);
}

Result<SegmentReader::RawPlace> SegmentReader::LocateByHeader(uint32_t entry) {
  const HeaderTable::Raw* const raw = header_->RawOf(entry);
  if (raw == nullptr) return Internal("not a raw entry");
  const format::SegmentEntry& e = header_->entry(entry);
  header_trust_.resize(header_->header().entries.size(), Trust::kUnknown);
  return RawPlace{e.begin,    e.end - e.begin,          raw->dtype,
                  raw->shape, header_->checksum(entry), &header_trust_[entry]};
}

Result<RawValue> SegmentReader::Map(RawPlace place, const std::string& key) const {
  if (place.dtype == DType::kInvalid || ItemSize(place.dtype) == 0)
    return Unimplemented(key + ": a dtype of a newer tdbg, in " + file_name_);
  const auto bytes = BytesOf(place.dtype, place.shape);
  if (!bytes) return DataLoss(key + ": shape, in " + file_name_);
  if (*bytes != place.bytes) return DataLoss(key + ": shape and bytes do not agree, in " + file_name_);
  TDBG_RETURN_IF_ERROR(Need(data_offset_ + place.begin, place.bytes));
  RawValue value;
  value.bytes = BytesAt(place.begin, place.bytes);
  value.owner = mapping_;
  value.dtype = place.dtype;
  value.shape = std::move(place.shape);
  return value;
}

Result<RawValue> SegmentReader::MapRaw(const RawRef& ref, const format::TensorDef& def,
                                       std::vector<Damage>* damage) {
  TDBG_ASSIGN_OR_RETURN(RawPlace place, LocateRaw(ref, def, damage));
  return Map(std::move(place), format::RawKey(def.name, ref.global_step, ref.sub));
}

Result<RawValue> SegmentReader::ReadRaw(const RawRef& ref, const format::TensorDef& def,
                                        std::vector<Damage>* damage) {
  TDBG_ASSIGN_OR_RETURN(RawPlace place, LocateRaw(ref, def, damage));
  Trust* const trust = place.trust;
  const std::optional<uint64_t> hash = place.hash;
  const std::string key = format::RawKey(def.name, ref.global_step, ref.sub);
  TDBG_ASSIGN_OR_RETURN(RawValue value, Map(std::move(place), key));
  if (*trust == Trust::kUnknown) {
    *trust = !hash || base::Hash64(value.bytes) == *hash ? Trust::kGood : Trust::kBad;
    if (*trust == Trust::kBad) Report(damage, key + ": checksum", value.bytes.size());
  }
  if (*trust == Trust::kGood) return value;
  return DataLoss(key + ": the bytes do not match their checksum, in " + file_name_);
}

}  // namespace tdbg::store
