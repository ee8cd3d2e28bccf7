#include "store/reader/segment_header.h"

#include <algorithm>
#include <limits>

#include "base/hash.h"
#include "format/json_fields.h"

namespace tdbg::store {

using format::GetField;
using format::Json;

namespace {

HeaderTable::Raw DescribeRaw(const format::SegmentEntry& entry, const Json* said) {
  HeaderTable::Raw raw;
  raw.shape = entry.shape;
  for (int d = 1; d <= 19; ++d) {
    const auto dtype = static_cast<DType>(d);
    // U8 is also what types unknown to safetensors are written as; those say so in "raw".
    if (format::SegmentDType(dtype) == entry.dtype && (entry.dtype != "U8" || dtype == DType::kUInt8)) {
      raw.dtype = dtype;
    }
  }
  if (said == nullptr || !said->is_object()) return raw;
  int64_t id = 0;
  if (GetField(*said, "id", &id) && id >= 0 && id < std::numeric_limits<uint32_t>::max())
    raw.id = static_cast<uint32_t>(id);
  GetField(*said, "commit", &raw.commit);
  std::string dtype;
  if (GetField(*said, "dtype", &dtype)) raw.dtype = DTypeFromName(dtype).value_or(DType::kInvalid);
  GetField(*said, "shape", &raw.shape);
  return raw;
}

}  // namespace

Result<HeaderTable> HeaderTable::Decode(std::span<const std::byte> file, std::string_view file_name,
                                        const KnownTensors& known, SegmentMeta* meta) {
  HeaderTable table;
  TDBG_ASSIGN_OR_RETURN(table.header_, format::DecodeSegmentHeader(file, file.size()));
  if (!table.header_.hash_ok) return DataLoss("segment header: hash");
  if (table.header_.tdbg_json.empty()) return DataLoss("segment header: no tdbg metadata");
  TDBG_ASSIGN_OR_RETURN(const Json json, format::ParseJsonObject(table.header_.tdbg_json, "segment metadata",
                                                                 format::kMaxMetadataDepth));
  if (meta != nullptr) {
    TDBG_ASSIGN_OR_RETURN(*meta, ParseSegmentMeta(json, file_name, known));
  }
  // Said once, here: it is half of the header.
  table.header_.tdbg_json = std::string();
  const auto object = [&json](const char* key) -> const Json* {
    const auto it = json.find(key);
    return it != json.end() && it->is_object() ? &*it : nullptr;
  };
  const Json* const checksums = object("checksums");
  const Json* const raws = object("raw");
  table.checksums_.resize(table.header_.entries.size());
  for (uint32_t i = 0; i < table.header_.entries.size(); ++i) {
    const format::SegmentEntry& entry = table.header_.entries[i];
    if (checksums != nullptr) {
      const auto it = checksums->find(entry.key);
      uint64_t value = 0;
      if (it != checksums->end() && it->is_string() &&
          base::ParseHex64(it->get_ref<const std::string&>(), &value)) {
        table.checksums_[i] = value;
      }
    }
    if (entry.key.find('@') == std::string::npos) continue;
    const auto said = raws != nullptr ? raws->find(entry.key) : Json::const_iterator();
    table.raws_.push_back(DescribeRaw(entry, raws != nullptr && said != raws->end() ? &*said : nullptr));
    table.raws_.back().entry = i;
  }
  return table;
}

std::optional<uint32_t> HeaderTable::Find(std::string_view key) const {
  for (uint32_t i = 0; i < header_.entries.size(); ++i) {
    if (header_.entries[i].key == key) return i;
  }
  return std::nullopt;
}

const HeaderTable::Raw* HeaderTable::RawOf(uint32_t entry) const {
  const auto it = std::lower_bound(raws_.begin(), raws_.end(), entry,
                                   [](const Raw& raw, uint32_t key) { return raw.entry < key; });
  return it != raws_.end() && it->entry == entry ? &*it : nullptr;
}

}  // namespace tdbg::store
