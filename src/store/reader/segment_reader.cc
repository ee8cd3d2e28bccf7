#include "store/reader/segment_reader.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/stable_sort.h"
#include "format/json_fields.h"

namespace tdbg::store {
namespace {

using format::GetField;
using format::Json;

template <typename T>
constexpr std::string_view SafetensorsName() {
  if constexpr (std::is_same_v<T, uint16_t>) return "U16";
  if constexpr (std::is_same_v<T, uint32_t>) return "U32";
  if constexpr (std::is_same_v<T, uint64_t>) return "U64";
  if constexpr (std::is_same_v<T, int64_t>) return "I64";
  if constexpr (std::is_same_v<T, double>) return "F64";
}

// Numbers above 2^53 are written as hex text by some JSON tools and as numbers by others.
bool GetNumber(const Json& object, const char* key, uint64_t* out) {
  const auto it = object.find(key);
  if (it == object.end()) return false;
  if (it->is_number_unsigned()) {
    *out = it->get<uint64_t>();
    return true;
  }
  return it->is_string() && base::ParseHex64(it->get_ref<const std::string&>(), out);
}

format::Loss DecodeLoss(const Json& json) {
  format::Loss loss;
  std::string name;
  int64_t number = 0;
  if (GetField(json, "cause", &name)) {
    for (int i = 0; i < format::kLossCauses; ++i) {
      if (format::LossCauseName(static_cast<format::LossCause>(i)) == name)
        loss.cause = static_cast<uint8_t>(i);
    }
  } else if (GetField(json, "cause", &number)) {
    loss.cause = static_cast<uint8_t>(number);
  }
  if (GetField(json, "kind", &name)) {
    for (int i = 1; i <= 4; ++i) {
      if (format::LossKindName(static_cast<format::LossKind>(i)) == name) loss.kind = static_cast<uint8_t>(i);
    }
  } else if (GetField(json, "kind", &number)) {
    loss.kind = static_cast<uint8_t>(number);
  }
  GetNumber(json, "count", &loss.count);
  GetNumber(json, "bytes", &loss.bytes);
  GetField(json, "first_step", &loss.first_step);
  GetField(json, "last_step", &loss.last_step);
  return loss;
}

}  // namespace

const char* ColumnName(SummaryColumn column) {
  static constexpr const char* kNames[] = {
#define TDBG_COLUMN(name, type) #name,
      TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  };
  return kNames[static_cast<int>(column)];
}

Result<std::unique_ptr<SegmentReader>> SegmentReader::Open(const std::string& path, uint64_t known_writer,
                                                           uint64_t known_tensors,
                                                           std::vector<Damage>* damage) {
  std::unique_ptr<SegmentReader> segment(new SegmentReader());
  segment->file_name_ = base::BaseName(path);
  TDBG_ASSIGN_OR_RETURN(segment->mapping_, base::ReadOnlyMapping::Open(path));
  const std::span<const std::byte> bytes = segment->mapping_->bytes();
  TDBG_ASSIGN_OR_RETURN(segment->header_, format::DecodeSegmentHeader(bytes, bytes.size()));
  if (!segment->header_.hash_ok) return DataLoss("segment header: hash");
  if (segment->header_.tdbg_json.empty()) return DataLoss("segment header: no tdbg metadata");
  for (const format::SegmentEntry& entry : segment->header_.entries) {
    if (entry.begin > entry.end || segment->header_.data_offset > bytes.size() ||
        entry.end > bytes.size() - segment->header_.data_offset) {
      return DataLoss("segment header: '" + entry.key + "' lies outside the file");
    }
  }
  segment->trust_.resize(segment->header_.entries.size(), Trust::kUnknown);
  TDBG_RETURN_IF_ERROR(segment->DecodeMeta(known_writer, known_tensors));
  TDBG_RETURN_IF_ERROR(segment->DecodeSteps(damage));
  return segment;
}

Status SegmentReader::DecodeMeta(uint64_t known_writer, uint64_t known_tensors) {
  TDBG_ASSIGN_OR_RETURN(const Json json, format::ParseJsonObject(header_.tdbg_json, "segment metadata"));
  TDBG_RETURN_IF_ERROR(format::CheckFormatVersion(json, "segment"));
  if (!GetNumber(json, "first_sequence", &meta_.first_sequence) ||
      !GetNumber(json, "last_sequence", &meta_.last_sequence) || meta_.first_sequence > meta_.last_sequence) {
    return DataLoss("segment metadata: no sequences");
  }
  GetNumber(json, "writer_id", &meta_.writer_id);
  GetField(json, "last_seen_step", &meta_.last_seen_step);
  GetField(json, "last_seen_wall_nanos", &meta_.last_seen_wall_nanos);
  const auto name = format::ParseSegmentFileName(file_name_);
  if (name && (name->first != meta_.first_sequence || name->second != meta_.last_sequence)) {
    return DataLoss("segment metadata: sequences are not those of the file's name");
  }
  const auto array = [&json](const char* key) -> const Json& {
    static const Json empty = Json::array();
    const auto it = json.find(key);
    return it != json.end() && it->is_array() ? *it : empty;
  };
  const Json& tensors = array("tensors");
  meta_.tensor_count = tensors.size();
  const uint64_t skip = meta_.writer_id == known_writer ? known_tensors : 0;
  for (uint64_t i = skip; i < tensors.size(); ++i) {
    TDBG_ASSIGN_OR_RETURN(format::TensorDef def, format::TensorDef::FromJson(format::DumpJson(tensors[i])));
    meta_.tensors.push_back(std::move(def));
  }
  for (const Json& item : array("context")) {
    TDBG_ASSIGN_OR_RETURN(format::ContextRecord record, format::ContextFromJson(format::DumpJson(item)));
    meta_.context.push_back(std::move(record));
  }
  for (const Json& item : array("acks")) {
    meta_.acks.push_back(item.is_string() ? item.get<std::string>() : format::DumpJson(item));
  }
  if (const auto end = json.find("end"); end != json.end() && !end->is_null()) {
    meta_.end_json = end->is_string() ? end->get<std::string>() : format::DumpJson(*end);
  }
  for (const Json& item : array("losses")) {
    if (item.is_object()) meta_.losses.push_back(DecodeLoss(item));
  }

  checksums_.resize(header_.entries.size());
  const auto checksums = json.find("checksums");
  const auto raw = json.find("raw");
  for (uint32_t i = 0; i < header_.entries.size(); ++i) {
    const format::SegmentEntry& entry = header_.entries[i];
    if (checksums != json.end() && checksums->is_object()) {
      const auto it = checksums->find(entry.key);
      uint64_t value = 0;
      if (it != checksums->end() && it->is_string() &&
          base::ParseHex64(it->get_ref<const std::string&>(), &value)) {
        checksums_[i] = value;
      }
    }
    if (entry.key.find('@') == std::string::npos) continue;
    RawMeta meta;
    meta.shape = entry.shape;
    for (int d = 1; d <= 19; ++d) {
      const auto dtype = static_cast<DType>(d);
      // U8 is also what types unknown to safetensors are written as; those say so in "raw".
      if (format::SegmentDType(dtype) == entry.dtype && (entry.dtype != "U8" || dtype == DType::kUInt8)) {
        meta.dtype = dtype;
      }
    }
    if (raw != json.end() && raw->is_object()) {
      const auto it = raw->find(entry.key);
      if (it != raw->end() && it->is_object()) {
        int64_t id = 0;
        if (GetField(*it, "id", &id) && id >= 0 && id < kUnknownTensor) meta.id = static_cast<uint32_t>(id);
        GetField(*it, "commit", &meta.commit);
        std::string dtype;
        if (GetField(*it, "dtype", &dtype)) meta.dtype = DTypeFromName(dtype).value_or(DType::kInvalid);
        GetField(*it, "shape", &meta.shape);
      }
    }
    raw_.emplace_back(i, std::move(meta));
  }
  return OkStatus();
}

Status SegmentReader::DecodeSteps(std::vector<Damage>* damage) {
  const uint64_t rows = RowsOfColumn("step/global");
  if (rows == 0) return OkStatus();
  const auto* const global = static_cast<const int64_t*>(Column("step/global", "I64", 8, rows, damage));
  const auto* const mode_step = static_cast<const int64_t*>(Column("step/mode_step", "I64", 8, rows, damage));
  const auto* const mode = static_cast<const uint16_t*>(Column("step/mode", "U16", 2, rows, damage));
  const auto* const flags = static_cast<const uint32_t*>(Column("step/flags", "U32", 4, rows, damage));
  if (!global || !mode_step || !mode || !flags) return DataLoss("step table is damaged");
  // What follows is told beside a step and not used to find one: without it the steps are still worth having.
  const auto* const wall = static_cast<const int64_t*>(Column("step/wall_nanos", "I64", 8, rows, damage));
  const auto* const monotonic =
      static_cast<const int64_t*>(Column("step/monotonic_nanos", "I64", 8, rows, damage));
  const auto* const shed = static_cast<const uint32_t*>(Column("step/shed", "U32", 4, rows, damage));
  const auto counts = [&](const char* key) {
    return static_cast<const uint32_t*>(FindEntry(key) ? Column(key, "U32", 4, rows, damage) : nullptr);
  };
  const uint32_t* const summary_rows = counts("step/summary_rows");
  const uint32_t* const scalar_rows = counts("step/scalar_rows");
  const uint32_t* const raw_tensors = counts("step/raw_tensors");
  commits_.resize(rows);
  for (uint64_t i = 0; i < rows; ++i) {
    format::Commit& commit = commits_[i];
    commit.global_step = global[i];
    commit.mode_step = mode_step[i];
    commit.mode = mode[i];
    commit.flags = flags[i];
    commit.wall_nanos = wall ? wall[i] : 0;
    commit.monotonic_nanos = monotonic ? monotonic[i] : 0;
    commit.shed = shed ? shed[i] : 0;
    commit.summary_rows = summary_rows ? summary_rows[i] : 0;
    commit.scalar_rows = scalar_rows ? scalar_rows[i] : 0;
    commit.raw_tensors = raw_tensors ? raw_tensors[i] : 0;
  }
  return OkStatus();
}

void SegmentReader::Report(std::vector<Damage>* damage, std::string what, uint64_t bytes) const {
  if (damage) damage->push_back({file_name_, std::move(what), bytes});
}

std::span<const std::byte> SegmentReader::BytesOf(uint32_t entry) const {
  const format::SegmentEntry& e = header_.entries[entry];
  return mapping_->bytes().subspan(header_.data_offset + e.begin, e.end - e.begin);
}

bool SegmentReader::Verify(uint32_t entry, std::vector<Damage>* damage) {
  if (trust_[entry] == Trust::kUnknown) {
    const std::span<const std::byte> bytes = BytesOf(entry);
    const bool good = !checksums_[entry] || base::Hash64(bytes) == *checksums_[entry];
    trust_[entry] = good ? Trust::kGood : Trust::kBad;
    if (!good) Report(damage, header_.entries[entry].key + ": checksum", bytes.size());
  }
  return trust_[entry] == Trust::kGood;
}

std::optional<uint32_t> SegmentReader::FindEntry(std::string_view key) const {
  for (uint32_t i = 0; i < header_.entries.size(); ++i) {
    if (header_.entries[i].key == key) return i;
  }
  return std::nullopt;
}

uint64_t SegmentReader::RowsOfColumn(std::string_view key) const {
  const auto entry = FindEntry(key);
  if (!entry || header_.entries[*entry].shape.size() != 1) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(0, header_.entries[*entry].shape[0]));
}

const void* SegmentReader::Column(std::string_view key, std::string_view dtype, size_t item_bytes,
                                  uint64_t rows, std::vector<Damage>* damage) {
  const auto entry = FindEntry(key);
  if (!entry) {
    Report(damage, std::string(key) + ": missing", 0);
    return nullptr;
  }
  const std::span<const std::byte> bytes = BytesOf(*entry);
  const bool fits = header_.entries[*entry].dtype == dtype && bytes.size() / item_bytes == rows &&
                    bytes.size() % item_bytes == 0 &&
                    reinterpret_cast<uintptr_t>(bytes.data()) % item_bytes == 0;
  if (!fits) {
    Report(damage, std::string(key) + ": type or length", bytes.size());
    return nullptr;
  }
  return Verify(*entry, damage) ? bytes.data() : nullptr;
}

const void* SegmentReader::Fallback(uint64_t rows, bool is_double) {
  if (is_double) {
    nan_fallback_.resize(rows, std::numeric_limits<double>::quiet_NaN());
    return nan_fallback_.data();
  }
  zero_fallback_.resize(rows, 0);
  return zero_fallback_.data();
}

const SummaryBatch& SegmentReader::Summaries(std::vector<Damage>* damage) {
  if (summaries_done_) return summaries_;
  summaries_done_ = true;
  const uint64_t rows = RowsOfColumn("summary/tensor");
  if (rows == 0 || rows > std::numeric_limits<uint32_t>::max()) {
    if (rows != 0) Report(damage, "summary/tensor: more rows than can be indexed", 0);
    return summaries_;
  }
  SummaryBatch batch;
  batch.rows = rows;
#define TDBG_COLUMN(name, type)                                                          \
  batch.name = static_cast<const type*>(                                                 \
      Column("summary/" #name, SafetensorsName<type>(), sizeof(type), rows, damage));    \
  if (!batch.name) {                                                                     \
    batch.damaged |= ColumnBit(SummaryColumn::k_##name);                                 \
    batch.name = static_cast<const type*>(Fallback(rows, std::is_same_v<type, double>)); \
  }
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  if (const auto entry = FindEntry("summary/histogram")) {
    const std::span<const std::byte> bytes = BytesOf(*entry);
    batch.histograms = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  summaries_ = batch;
  if ((batch.damaged & kKeyColumns) != 0 || !MapTensorColumn(damage)) summaries_ = SummaryBatch{};
  return summaries_;
}

bool SegmentReader::MapTensorColumn(std::vector<Damage>* damage) {
  bool identity = true;
  for (uint32_t i = 0; i < id_map_.size(); ++i) identity &= id_map_[i] == i;
  const auto known = static_cast<uint32_t>(id_map_.size());
  uint32_t highest = 0;
  for (size_t i = 0; i < summaries_.rows; ++i) highest = std::max(highest, summaries_.tensor[i]);
  if (highest >= known) {
    Report(damage, "summary/tensor: rows of a tensor that is not defined",
           summaries_.rows * sizeof(uint32_t));
    return false;
  }
  if (identity) return true;
  mapped_tensors_.resize(summaries_.rows);
  for (size_t i = 0; i < summaries_.rows; ++i) {
    mapped_tensors_[i] = id_map_[summaries_.tensor[i]];
    if (mapped_tensors_[i] == kUnknownTensor) {
      Report(damage, "summary/tensor: rows of a tensor that is not defined",
             summaries_.rows * sizeof(uint32_t));
      return false;
    }
  }
  summaries_.tensor = mapped_tensors_.data();
  return true;
}

Result<Histogram> SegmentReader::HistogramOf(uint32_t row, std::vector<Damage>* damage) {
  const SummaryBatch& batch = Summaries(damage);
  if (row >= batch.rows) return Internal("histogram of a row that does not exist");
  constexpr uint64_t kNeeded =
      ColumnBit(SummaryColumn::k_histogram_offset) | ColumnBit(SummaryColumn::k_histogram_bytes);
  if ((batch.damaged & kNeeded) != 0)
    return DataLoss("where the histograms lie is damaged, in " + file_name_);
  if (batch.histogram_bytes[row] == 0) return NotFound("no histogram was kept");
  const auto entry = FindEntry("summary/histogram");
  if (!entry || !Verify(*entry, damage)) return DataLoss("the histograms are damaged, in " + file_name_);
  const uint64_t offset = batch.histogram_offset[row], bytes = batch.histogram_bytes[row];
  if (offset > batch.histograms.size() || bytes > batch.histograms.size() - offset) {
    return DataLoss("a histogram lies outside its column, in " + file_name_);
  }
  return DecodeHistogram(batch.histograms.subspan(offset, bytes));
}

std::vector<SegmentReader::ScalarRow> SegmentReader::Scalars(std::vector<Damage>* damage) {
  std::vector<ScalarRow> out;
  const uint64_t rows = RowsOfColumn("scalar/tensor");
  if (rows == 0) return out;
  const auto* const tensor = static_cast<const uint32_t*>(Column("scalar/tensor", "U32", 4, rows, damage));
  const auto* const step = static_cast<const int64_t*>(Column("scalar/step", "I64", 8, rows, damage));
  const auto* const sub = static_cast<const uint16_t*>(Column("scalar/sub", "U16", 2, rows, damage));
  const auto* const point = static_cast<const uint16_t*>(Column("scalar/point", "U16", 2, rows, damage));
  const auto* const value = static_cast<const double*>(Column("scalar/value", "F64", 8, rows, damage));
  if (!tensor || !step || !sub || !point || !value) return out;
  out.reserve(rows);
  for (uint64_t i = 0; i < rows; ++i) {
    const uint32_t id = tensor[i] < id_map_.size() ? id_map_[tensor[i]] : kUnknownTensor;
    if (id == kUnknownTensor) {
      Report(damage, "scalar/tensor: a row of a tensor that is not defined", 1);
      continue;
    }
    out.push_back({id, {step[i], {sub[i], static_cast<format::Point>(point[i])}, value[i]}});
  }
  return out;
}

std::vector<RawRef> SegmentReader::Raws(std::span<const format::TensorDef> tensors,
                                        std::vector<Damage>* damage) {
  std::vector<RawRef> out;
  out.reserve(raw_.size());
  for (const auto& [entry, meta] : raw_) {
    const format::SegmentEntry& e = header_.entries[entry];
    const auto key = format::ParseRawKey(e.key);
    uint32_t id = kUnknownTensor;
    if (key && meta.id && *meta.id < id_map_.size()) id = id_map_[*meta.id];
    if (key && !meta.id) {
      for (uint32_t i = 0; i < tensors.size() && id == kUnknownTensor; ++i) {
        if (tensors[i].name == key->tensor_name && tensors[i].dtype == meta.dtype &&
            tensors[i].shape == meta.shape) {
          id = i;
        }
      }
      for (uint32_t i = 0; i < tensors.size() && id == kUnknownTensor; ++i) {
        if (tensors[i].name == key->tensor_name) id = i;
      }
    }
    if (id == kUnknownTensor) {
      Report(damage, e.key + ": a tensor that is not defined", e.end - e.begin);
      continue;
    }
    RawRef ref;
    ref.tensor = id;
    ref.sub = key->sub;
    ref.global_step = key->global_step;
    ref.offset = e.begin;
    ref.bytes = e.end - e.begin;
    ref.dtype = meta.dtype;
    ref.entry = entry;
    ref.commit = meta.commit;
    if (meta.commit < 0 || static_cast<size_t>(meta.commit) >= commits_.size()) {
      const bool outside = key->sub.point == format::Point::kEnd;
      auto it = std::lower_bound(commits_.begin(), commits_.end(), ref.global_step,
                                 [](const format::Commit& c, int64_t step) { return c.global_step < step; });
      while (it + 1 < commits_.end() && (it + 1)->global_step == ref.global_step &&
             ((it->flags & format::kCommitOutside) != 0) != outside) {
        ++it;
      }
      ref.commit = it - commits_.begin();
    }
    out.push_back(ref);
  }
  // Entries lie in descending item size: put them back into the order in which they happened.
  base::StableSort(&out, [](const RawRef& a, const RawRef& b) { return a.commit < b.commit; });
  return out;
}

const std::vector<int64_t>& SegmentReader::shape_of(uint32_t entry) const {
  const auto it = std::lower_bound(raw_.begin(), raw_.end(), entry,
                                   [](const auto& item, uint32_t key) { return item.first < key; });
  return it->second.shape;
}

Result<RawValue> SegmentReader::ReadRaw(uint32_t entry, std::vector<Damage>* damage) {
  TDBG_ASSIGN_OR_RETURN(RawValue value, MapRaw(entry));
  if (Verify(entry, damage)) return value;
  return DataLoss(header_.entries[entry].key + ": the bytes do not match their checksum, in " + file_name_);
}

Result<RawValue> SegmentReader::MapRaw(uint32_t entry) const {
  const auto it = std::lower_bound(raw_.begin(), raw_.end(), entry,
                                   [](const auto& item, uint32_t key) { return item.first < key; });
  if (it == raw_.end() || it->first != entry) return Internal("not a raw entry");
  const RawMeta& meta = it->second;
  const std::string& key = header_.entries[entry].key;
  if (meta.dtype == DType::kInvalid)
    return Unimplemented(key + ": a dtype of a newer tdbg, in " + file_name_);
  RawValue value;
  value.bytes = BytesOf(entry);
  value.owner = mapping_;
  value.dtype = meta.dtype;
  value.shape = meta.shape;
  uint64_t bytes = ItemSize(meta.dtype);
  for (const int64_t extent : meta.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      return DataLoss(key + ": shape, in " + file_name_);
    }
  }
  if (bytes != value.bytes.size()) return DataLoss(key + ": shape and bytes do not agree, in " + file_name_);
  return value;
}

}  // namespace tdbg::store
