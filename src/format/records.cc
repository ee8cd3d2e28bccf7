#include "format/records.h"

#include <algorithm>
#include <array>

#include "format/columns.h"
#include "format/json_fields.h"
#include "tensor/magnitude.h"

namespace tdbg::format {

std::string TensorDef::ToJson() const {
  Json json{{"id", id}, {"name", name}, {"dtype", std::string(DTypeName(dtype))}, {"shape", shape}};
  // Definitions are repeated in every segment: what is empty or usual is left out.
  if (!short_name.empty()) json["short_name"] = short_name;
  if (!kind.empty()) json["kind"] = kind;
  if (!module_kind.empty()) json["module_kind"] = module_kind;
  if (!collections.empty()) json["collections"] = collections;
  if (!aliases.empty()) json["aliases"] = aliases;
  if (variable_shape) json["variable_shape"] = true;
  if (IsComplex(dtype)) json["statistics_of"] = "magnitude";
  if (unit_axis >= 0) json["unit_axis"] = unit_axis;
  if (!whole_shape.empty()) {
    json["whole_shape"] = whole_shape;
    json["part_begin"] = part_begin;
  }
  return DumpJson(json);
}

Result<TensorDef> TensorDef::FromJson(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, "tensor definition"));
  TensorDef def;
  int64_t number = 0;
  if (!GetField(json, "id", &number) || number < 0 || number > 0xffffffff) {
    return DataLoss("tensor definition: no id");
  }
  def.id = static_cast<TensorId>(number);
  if (!GetField(json, "name", &def.name)) return DataLoss("tensor definition: no name");
  GetField(json, "short_name", &def.short_name);
  GetField(json, "kind", &def.kind);
  GetField(json, "module_kind", &def.module_kind);
  GetField(json, "collections", &def.collections);
  GetField(json, "aliases", &def.aliases);
  GetField(json, "shape", &def.shape);
  for (const int64_t d : def.shape) {
    if (d < 0) return DataLoss("tensor definition: negative extent in '" + def.name + "'");
  }
  GetField(json, "variable_shape", &def.variable_shape);
  std::string dtype;
  // A dtype of a later minor version stays kInvalid: the summaries of such a tensor are still good.
  if (GetField(json, "dtype", &dtype)) def.dtype = DTypeFromName(dtype).value_or(DType::kInvalid);
  if (GetField(json, "unit_axis", &number) && number >= 0 && number < 64) {
    def.unit_axis = static_cast<int32_t>(number);
  }
  if (GetField(json, "whole_shape", &def.whole_shape)) {
    GetField(json, "part_begin", &def.part_begin);
    const bool fits =
        def.part_begin.size() == def.whole_shape.size() && def.shape.size() == def.whole_shape.size();
    const auto negative = [](int64_t d) { return d < 0; };
    if (!fits || std::any_of(def.whole_shape.begin(), def.whole_shape.end(), negative) ||
        std::any_of(def.part_begin.begin(), def.part_begin.end(), negative)) {
      return DataLoss("tensor definition: whole_shape and part_begin of '" + def.name + "'");
    }
  }
  return def;
}

SummaryRow ToRow(TensorId tensor, SubKey sub, const Summary& s) {
  SummaryRow row;
  row.tensor = tensor;
  row.sub = sub.sub;
  row.point = static_cast<uint16_t>(sub.point);
  ForEachStatistic([](auto& to, auto from) { to = from; }, row, s);
  return row;
}

Summary FromRow(const SummaryRow& row) {
  Summary s;
  ForEachStatistic([](auto& to, auto from) { to = from; }, s, row);
  return s;
}

namespace {

struct CauseText {
  std::string_view name, text;
};
constexpr std::array<CauseText, kDropCauses> kCauses = {{
    {"repeated_key",
     "Two values of one step were given under the same key, and the last one is kept: an adaptor's mistake."},
    {"journal_full",
     "The disk could not keep up and training was not made to wait: enlarge the journal, save less, or "
     "choose "
     "when_full: block."},
    {"step_too_large",
     "One step's raw tensors do not fit into the journal: enlarge the journal or save fewer tensors."},
    {"disk_full",
     "The disk, a quota, a file-size limit or the memory is full: free space; capture resumes by itself."},
    {"directory_gone",
     "The run directory vanished or became read-only: nothing can be sealed until it is back."},
    {"io_error", "The file system reported an error: check the disk and the system's log."},
    {"budget", "The run's budget in bytes is used up: raise the budget or save less."},
    {"unsupported",
     "What tdbg cannot record: a dtype, a layout, a device, or something that the framework does not offer."},
    {"adaptor_error", "An exception in the framework's adaptor; the first one is in the job's log."},
    {"device_late", "A copy from the device did not complete in time."},
    {"damaged",
     "Bytes read from the run do not match their checksum: they were damaged after they were written."},
    {"crashed", "The process ended in the middle of this step, before it was committed."},
}};
constexpr CauseText kUnknownCause = {"unknown", "Dropped for a reason that this version does not know."};
constexpr std::array<std::string_view, 5> kKindNames = {"unknown", "raw", "histogram", "summary", "step"};

}  // namespace

std::string_view DropCauseName(DropCause cause) {
  const auto i = static_cast<size_t>(cause);
  return (i < kCauses.size() ? kCauses[i] : kUnknownCause).name;
}

std::string_view DropCauseText(DropCause cause) {
  const auto i = static_cast<size_t>(cause);
  return (i < kCauses.size() ? kCauses[i] : kUnknownCause).text;
}

std::string_view DropKindName(DropKind kind) {
  const auto i = static_cast<size_t>(kind);
  return kKindNames[i < kKindNames.size() ? i : 0];
}

std::string ContextToJson(const ContextRecord& record) {
  std::string out = "{\"global_step\":" + std::to_string(record.global_step) + ",\"topic\":";
  const Json topic = record.topic;
  out += DumpJson(topic);
  out += ",\"value\":";
  // What is not JSON, or nests too deep, is kept as a string: a segment's header must stay readable whatever
  // an adaptor hands in.
  out += IsJson(record.json, kMaxValueDepth) ? DumpJson(Json::parse(record.json, nullptr, false))
                                             : DumpJson(Json(record.json));
  out += "}";
  return out;
}

Result<ContextRecord> ContextFromJson(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, "context", kMaxMetadataDepth));
  ContextRecord record;
  if (!GetField(json, "global_step", &record.global_step) || !GetField(json, "topic", &record.topic)) {
    return DataLoss("context: no global_step or topic");
  }
  const auto value = json.find("value");
  if (value != json.end()) record.json = DumpJson(*value);
  return record;
}

}  // namespace tdbg::format
