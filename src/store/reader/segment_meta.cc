#include "store/reader/segment_meta.h"

#include "base/hash.h"
#include "format/segment.h"

namespace tdbg::store {
namespace {

using format::GetField;
using format::Json;

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

format::Drop DecodeDrop(const Json& json) {
  format::Drop drop;
  std::string name;
  int64_t number = 0;
  if (GetField(json, "cause", &name)) {
    drop.cause = 0xFF;  // of a later version, unless it is one of these
    for (int i = 0; i < format::kDropCauses; ++i) {
      if (format::DropCauseName(static_cast<format::DropCause>(i)) == name)
        drop.cause = static_cast<uint8_t>(i);
    }
  } else if (GetField(json, "cause", &number)) {
    drop.cause = static_cast<uint8_t>(number);
  }
  if (GetField(json, "kind", &name)) {
    for (int i = 1; i <= 4; ++i) {
      if (format::DropKindName(static_cast<format::DropKind>(i)) == name) drop.kind = static_cast<uint8_t>(i);
    }
  } else if (GetField(json, "kind", &number)) {
    drop.kind = static_cast<uint8_t>(number);
  }
  GetNumber(json, "count", &drop.count);
  GetNumber(json, "bytes", &drop.bytes);
  GetField(json, "first_step", &drop.first_step);
  GetField(json, "last_step", &drop.last_step);
  return drop;
}

}  // namespace

Result<SegmentMeta> ParseSegmentMeta(const Json& json, std::string_view file_name,
                                     const KnownTensors& known) {
  SegmentMeta meta;
  TDBG_RETURN_IF_ERROR(format::CheckFormatVersion(json, "segment"));
  if (!GetNumber(json, "first_sequence", &meta.first_sequence) ||
      !GetNumber(json, "last_sequence", &meta.last_sequence) || meta.first_sequence > meta.last_sequence) {
    return DataLoss("segment metadata: no sequences");
  }
  GetNumber(json, "writer_id", &meta.writer_id);
  GetField(json, "last_seen_step", &meta.last_seen_step);
  GetField(json, "last_seen_wall_nanos", &meta.last_seen_wall_nanos);
  const auto name = format::ParseSegmentFileName(file_name);
  if (name && (name->first != meta.first_sequence || name->second != meta.last_sequence)) {
    return DataLoss("segment metadata: sequences are not those of the file's name");
  }
  const auto array = [&json](const char* key) -> const Json& {
    static const Json empty = Json::array();
    const auto it = json.find(key);
    return it != json.end() && it->is_array() ? *it : empty;
  };
  const Json& tensors = array("tensors");
  for (uint64_t i = known.Of(meta.writer_id); i < tensors.size(); ++i) {
    TDBG_ASSIGN_OR_RETURN(format::TensorDef def, format::TensorDef::FromJson(format::DumpJson(tensors[i])));
    meta.tensors.push_back(std::move(def));
  }
  for (const Json& item : array("context")) {
    auto record =
        format::ContextFromJson(item.is_string() ? item.get<std::string>() : format::DumpJson(item));
    if (record.ok()) {
      meta.context.push_back(*std::move(record));
    } else {
      ++meta.damaged_contexts;
    }
  }
  for (const Json& item : array("acks")) {
    meta.acks.push_back(item.is_string() ? item.get<std::string>() : format::DumpJson(item));
  }
  if (const auto end = json.find("end"); end != json.end() && !end->is_null()) {
    meta.end_json = end->is_string() ? end->get<std::string>() : format::DumpJson(*end);
  }
  for (const Json& item : array("losses")) {
    if (item.is_object()) meta.dropped.push_back(DecodeDrop(item));
  }
  return meta;
}

}  // namespace tdbg::store
