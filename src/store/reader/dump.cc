#include "store/reader/dump.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"
#include "base/text.h"
#include "format/columns.h"
#include "format/journal.h"
#include "format/json_fields.h"
#include "format/run_files.h"
#include "format/segment.h"
#include "format/segment_index.h"

namespace tdbg::store {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

Json Embedded(std::string_view text) {
  if (!format::IsJson(text)) return base::ToValidUtf8(text);
  return Json::parse(text, nullptr, false);
}

Json DumpDefinition(std::string_view text) { return Embedded(text); }

/// Damage that was found, each with its place in the file.
using Places = std::vector<std::string>;

Json ValueAt(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return base::Load<uint8_t>(at);
    case DType::kUInt16:
      return base::Load<uint16_t>(at);
    case DType::kUInt32:
      return base::Load<uint32_t>(at);
    case DType::kUInt64:
      return base::Load<uint64_t>(at);
    case DType::kInt64:
      return base::Load<int64_t>(at);
    case DType::kFloat64:
      return Number(base::Load<double>(at));
    default:
      return nullptr;
  }
}

/// The first `count` rows of a record: the fields that columns are made of, as they lie.
Json DumpRows(std::span<const format::Column> columns, std::span<const std::byte> rows, size_t row_bytes,
              size_t count) {
  std::map<uint16_t, const format::Column*> fields;
  for (const format::Column& column : columns) {
    if (!column.field.empty()) fields[column.field_offset] = &column;
  }
  Json out = Json::array();
  for (size_t i = 0; i < count; ++i) {
    Json row;
    for (const auto& [offset, column] : fields)
      row[std::string(column->field)] = ValueAt(rows.data() + i * row_bytes + offset, column->field_dtype);
    out.push_back(std::move(row));
  }
  return out;
}

const char* TypeName(uint16_t type) {
  static constexpr const char* kNames[] = {"?",    "kPad",     "kTensorDef", "kSummaries", "kScalars",
                                           "kRaw", "kContext", "kCommit",    "kAck",       "kEnd"};
  return type < std::size(kNames) ? kNames[type] : "unknown to this version";
}

Json DumpPayload(const format::RecordHeader& header, std::span<const std::byte> payload, int64_t max_rows) {
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto shown = [max_rows](size_t n) {
    return max_rows < 0 ? n : std::min(n, static_cast<size_t>(max_rows));
  };
  switch (static_cast<format::RecordType>(header.type)) {
    case format::RecordType::kTensorDef:
    case format::RecordType::kContext:
    case format::RecordType::kAck:
    case format::RecordType::kEnd:
      return DumpDefinition(text);
    case format::RecordType::kSummaries: {
      const auto view = format::DecodeSummaries(payload);
      if (!view.ok()) return view.status().message();
      return {{"rows", view->row_count},
              {"histogram_bytes", view->histograms.size()},
              {"row", DumpRows(format::kSummaryColumns, view->rows, sizeof(format::SummaryRow),
                               shown(view->row_count))}};
    }
    case format::RecordType::kScalars: {
      const size_t count = payload.size() / sizeof(format::ScalarRow);
      return {{"rows", count},
              {"row", DumpRows(format::kScalarColumns, payload, sizeof(format::ScalarRow), shown(count))}};
    }
    case format::RecordType::kRaw: {
      if (payload.size() < format::kRawDataOffset) return "raw header is short";
      const auto raw = base::Load<format::RawHeader>(payload.data());
      const int rank = std::min<int>(raw.rank, format::kMaxRank);
      return {{"tensor", raw.tensor},
              {"sub", raw.sub},
              {"point", raw.point},
              {"dtype", raw.dtype},
              {"rank", raw.rank},
              {"shape", std::vector<int64_t>(raw.shape, raw.shape + rank)},
              {"data_bytes", payload.size() - format::kRawDataOffset}};
    }
    case format::RecordType::kCommit:
      if (payload.size() < sizeof(format::Commit)) return "commit is short";
      return DumpRows(format::kStepColumns, payload, sizeof(format::Commit), 1).front();
    default:
      return nullptr;
  }
}

Result<Json> DumpJournal(std::span<const std::byte> file, int64_t max_rows, Places* damage) {
  using format::JournalHeader;
  TDBG_RETURN_IF_ERROR(
      format::CheckJournalHeader(file.first(std::min<size_t>(file.size(), 4096)), file.size()));
  const auto u64 = [&](size_t offset) { return base::Load<uint64_t>(file.data() + offset); };
  const uint64_t ring = u64(offsetof(JournalHeader, ring_bytes));
  Json header{
      {"magic", "TDBGJRNL"},
      {"major", base::Load<uint16_t>(file.data() + offsetof(JournalHeader, major))},
      {"minor", base::Load<uint16_t>(file.data() + offsetof(JournalHeader, minor))},
      {"header_bytes", base::Load<uint32_t>(file.data() + offsetof(JournalHeader, header_bytes))},
      {"ring_bytes", ring},
      {"writer_id", u64(offsetof(JournalHeader, writer_id))},
      {"pid", base::Load<uint32_t>(file.data() + offsetof(JournalHeader, pid))},
      {"committed_pos", u64(offsetof(JournalHeader, committed_pos))},
      {"committed_seq", u64(offsetof(JournalHeader, committed_seq))},
      {"last_seen_step", static_cast<int64_t>(u64(offsetof(JournalHeader, last_seen_step)))},
      {"last_seen_wall_nanos", static_cast<int64_t>(u64(offsetof(JournalHeader, last_seen_wall_nanos)))},
      {"ended", u64(offsetof(JournalHeader, ended))},
      {"sealed_pos", u64(offsetof(JournalHeader, sealed_pos))},
      {"sealed_seq", u64(offsetof(JournalHeader, sealed_seq))}};
  Json dropped = Json::array(), losses = Json::array();  // losses: the name until 0.1.0; gone in 0.3
  for (int cause = 0; cause < format::kDropCauses; ++cause) {
    for (int kind = 1; kind <= 4; ++kind) {
      const size_t at = static_cast<size_t>(cause * 4 + kind - 1) * 8;
      const uint64_t count = u64(offsetof(JournalHeader, drop_count) + at);
      if (count == 0) continue;
      const auto counter = [&](const std::string& prefix) -> Json {
        return {
            {"cause", format::DropCauseName(static_cast<format::DropCause>(cause))},
            {"kind", format::DropKindName(static_cast<format::DropKind>(kind))},
            {prefix + "count", count},
            {prefix + "bytes", u64(offsetof(JournalHeader, drop_bytes) + at)},
            {prefix + "first_step", static_cast<int64_t>(u64(offsetof(JournalHeader, drop_first_step) + at))},
            {prefix + "last_step", static_cast<int64_t>(u64(offsetof(JournalHeader, drop_last_step) + at))}};
      };
      dropped.push_back(counter("drop_"));
      losses.push_back(counter("loss_"));
    }
  }
  header["dropped"] = std::move(dropped);
  header["losses"] = std::move(losses);
  Json records = Json::array();
  const uint64_t end = u64(offsetof(JournalHeader, committed_pos));
  for (uint64_t position = u64(offsetof(JournalHeader, sealed_pos)); position < end;) {
    const std::byte* at = file.data() + format::kJournalHeaderBytes + position % ring;
    const auto record = base::Load<format::RecordHeader>(at);
    const uint64_t available = std::min(ring - position % ring, end - position);
    const Status valid = format::CheckRecordHeader(record, position, available);
    if (!valid.ok()) {
      records.push_back({{"position", position}, {"damage", valid.message()}});
      damage->push_back("position " + std::to_string(position) + ": " + valid.message());
      break;
    }
    const std::span<const std::byte> payload(at + sizeof(record), record.payload_bytes);
    Json item{{"type", TypeName(record.type)},
              {"flags", record.flags},
              {"sequence", record.sequence},
              {"position", record.position},
              {"payload_bytes", record.payload_bytes},
              {"global_step", record.global_step},
              {"payload_hash", base::Hex64(record.payload_hash)},
              {"prefix_hash", base::Hex64(record.prefix_hash)},
              {"header_hash", base::Hex64(record.header_hash)}};
    if (const Status intact = format::CheckPayload(record, payload); !intact.ok()) {
      item["damage"] = intact.message();
      damage->push_back("record " + std::to_string(record.sequence) + ": " + intact.message());
    }
    item["payload"] = DumpPayload(record, payload, max_rows);
    records.push_back(std::move(item));
    position += format::RecordBytes(record.payload_bytes);
  }
  return Json{{"kind", "journal"}, {"header", std::move(header)}, {"records", std::move(records)}};
}

Json ColumnValues(const format::SegmentEntry& entry, std::span<const std::byte> bytes, int64_t max_rows) {
  for (const DType dtype :
       {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64, DType::kInt64, DType::kFloat64}) {
    if (format::SegmentDType(dtype) != entry.dtype) continue;
    const size_t item = ItemSize(dtype);
    size_t n = bytes.size() / item;
    if (max_rows >= 0) n = std::min(n, static_cast<size_t>(max_rows));
    Json out = Json::array();
    for (size_t i = 0; i < n; ++i) out.push_back(ValueAt(bytes.data() + i * item, dtype));
    return out;
  }
  return nullptr;
}

Json DumpIndex(std::span<const std::byte> file, int64_t max_rows, Places* damage) {
  const auto decoded = format::DecodeSegmentIndex(file);
  if (!decoded.ok()) {
    damage->push_back("the index: " + decoded.status().message());
    return Json{{"damage", decoded.status().message()}};
  }
  const format::SegmentIndex& index = *decoded;
  const auto footer =
      base::Load<format::IndexFooter>(file.data() + file.size() - sizeof(format::IndexFooter));
  const auto list = [max_rows](size_t count, const auto& item) {
    Json out = Json::array();
    const size_t shown = max_rows < 0 ? count : std::min(count, static_cast<size_t>(max_rows));
    for (size_t i = 0; i < shown; ++i) out.push_back(item(i));
    return out;
  };
  Json out{{"footer",
            {{"magic", "TDBGINDX"},
             {"major", footer.major},
             {"minor", footer.minor},
             {"data_bytes", footer.data_bytes},
             {"head_bytes", footer.head_bytes},
             {"raws", footer.raws},
             {"head_hash", base::Hex64(footer.head_hash)},
             {"footer_hash", base::Hex64(footer.footer_hash)}}}};
  out["columns"] = list(index.columns.size(), [&](size_t i) {
    const format::IndexColumn& c = index.columns[i];
    return Json{{"name", base::ToValidUtf8(index.ColumnName(i))},
                {"dtype", DTypeName(static_cast<DType>(c.dtype))},
                {"begin", c.begin},
                {"bytes", c.bytes},
                {"hash", base::Hex64(c.hash)}};
  });
  out["forms"] = list(index.forms.size(), [&](size_t i) {
    const auto shape = index.ShapeOf(static_cast<uint32_t>(i));
    return Json{{"dtype", DTypeName(static_cast<DType>(index.forms[i].dtype))},
                {"shape", shape.ok() ? Json(std::vector<int64_t>(shape->begin(), shape->end()))
                                     : Json(shape.status().message())}};
  });
  out["commits"] = list(index.commits.size(), [&](size_t i) {
    const format::IndexCommit& c = index.commits[i];
    return Json{{"summaries", c.summaries}, {"scalars", c.scalars}, {"raws", c.raws}};
  });
  out["layouts"] = list(index.layout_ends.size(), [&](size_t i) {
    const auto layout = index.Layout(static_cast<uint32_t>(i));
    Json rows = list(layout.size(), [&](size_t r) {
      Json row{{"tensor", layout[r].tensor}, {"sub", layout[r].sub}, {"point", layout[r].point}};
      if (layout[r].form != format::kNoForm) row["form"] = layout[r].form;
      return row;
    });
    return Json{{"rows", layout.size()}, {"row", std::move(rows)}};
  });
  out["first_definition"] = index.first_definition;
  out["definitions"] =
      list(index.definition_ends.size(), [&](size_t i) { return Embedded(index.Definition(i)); });
  out["meta"] = Embedded(index.meta);
  for (size_t i = 0; i < index.raws.size(); i += format::kIndexBlockRows) {
    if (!index.Intact(i))
      damage->push_back("the index: block " + std::to_string(i / format::kIndexBlockRows) + ": hash");
  }
  out["raw_table"] = list(index.raws.size(), [&](size_t i) {
    Json row{{"begin", index.raws[i].begin}, {"hash", base::Hex64(index.raws[i].hash)}};
    if (i % format::kIndexBlockRows == 0) {
      row["block_hash"] = base::Hex64(index.block_hashes[i / format::kIndexBlockRows]);
      if (!index.Intact(i)) row["damage"] = "the block does not match its hash";
    }
    return row;
  });
  return out;
}

Result<Json> DumpSegment(std::span<const std::byte> file, int64_t max_rows, Places* damage) {
  TDBG_ASSIGN_OR_RETURN(const format::SegmentHeader header, format::DecodeSegmentHeader(file, file.size()));
  if (!header.hash_ok) damage->push_back("the header does not match its hash");
  const Json meta = header.tdbg_json.empty() ? Json::object() : Embedded(header.tdbg_json);
  const auto checksums = meta.find("checksums");
  Json entries = Json::array();
  for (const format::SegmentEntry& entry : header.entries) {
    const auto bytes = file.subspan(header.data_offset + entry.begin, entry.end - entry.begin);
    Json item{{"key", entry.key},
              {"dtype", entry.dtype},
              {"shape", entry.shape},
              {"data_offsets", {entry.begin, entry.end}}};
    if (checksums != meta.end() && checksums->contains(entry.key)) {
      const std::string hash = base::Hex64(base::Hash64(bytes));
      if ((*checksums)[entry.key] != hash) {
        item["damage"] = "checksum: the bytes give " + hash;
        damage->push_back(entry.key + ": checksum");
      }
    }
    const bool column = entry.key.find('@') == std::string::npos && entry.key != format::kHistogramsKey &&
                        entry.key != format::kIndexKey;
    if (entry.key == format::kIndexKey) item["index"] = DumpIndex(file, max_rows, damage);
    if (column) item["values"] = ColumnValues(entry, bytes, max_rows);
    entries.push_back(std::move(item));
  }
  Json out{{"kind", "segment"}, {"data_offset", header.data_offset}, {"tdbg_hash_ok", header.hash_ok}};
  out["tdbg"] = meta;
  out["entries"] = std::move(entries);
  return out;
}

// Of a file of such lines.
Json Line(std::string_view text, Places* damage) {
  if (!format::IsJson(text)) damage->push_back("no JSON: " + std::string(text.substr(0, 40)));
  return Embedded(text);
}

// Scalars and lists of scalars on one line, everything else below its key.
void AppendText(const Json& value, const std::string& indent, std::string* out) {
  const auto is_line = [](const Json& v) {
    if (!v.is_structured()) return true;
    return std::none_of(v.begin(), v.end(), [](const Json& item) { return item.is_structured(); }) &&
           (v.is_array() || v.size() <= 1);
  };
  const auto line = [](const Json& v) {
    if (v.is_string()) return base::Printable(v.get_ref<const std::string&>());
    return base::PrintableJson(v.dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  if (is_line(value)) {
    *out += indent + line(value) + "\n";
    return;
  }
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      *out += indent + "[" + std::to_string(i) + "]\n";
      AppendText(value[i], indent + "  ", out);
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    if (is_line(item)) {
      *out += indent + base::Printable(key) + ": " + line(item) + "\n";
    } else {
      *out += indent + base::Printable(key) + ":\n";
      AppendText(item, indent + "  ", out);
    }
  }
}

}  // namespace

Result<std::string> Dump(const std::string& path, const DumpOptions& options,
                         std::vector<std::string>* damage) {
  Places unasked;
  if (damage == nullptr) damage = &unasked;
  TDBG_ASSIGN_OR_RETURN(const auto mapping, base::ReadOnlyMapping::Open(path));
  const std::span<const std::byte> file = mapping->bytes();
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const auto starts_with = [&](const char(&magic)[8]) {
    return text.size() >= 8 && std::memcmp(text.data(), magic, 8) == 0;
  };
  Json document;
  if (starts_with(format::kJournalMagic)) {
    auto journal = DumpJournal(file, options.max_rows, damage);
    if (!journal.ok()) return journal.status().Annotate(path);
    document = std::move(*journal);
  } else if (starts_with(format::kControlMagic)) {
    document = {{"kind", "control"}, {"requests", Json::array()}};
    if (file.size() >= format::kControlPageBytes) {
      document["generation"] = base::Load<uint64_t>(file.data() + format::kControlGenerationOffset);
      for (const std::string& request : base::SplitList(text.substr(format::kControlPageBytes), '\n')) {
        document["requests"].push_back(Line(request, damage));
      }
    }
  } else if (!text.empty() && text.front() == '{') {
    if (format::IsJson(text)) {
      document = Embedded(text);
    } else {  // events.jsonl: one object a line
      document = Json::array();
      for (const std::string& event : base::SplitList(text, '\n')) document.push_back(Line(event, damage));
    }
  } else {
    auto segment = DumpSegment(file, options.max_rows, damage);
    if (!segment.ok() && !path.ends_with(".safetensors")) {
      return Status(
          segment.status().code(),
          path + ": neither a journal, a control file, JSON, an event file (*.tfevents) nor a segment (" +
              segment.status().message() + ")");
    }
    if (!segment.ok()) return segment.status().Annotate(path);
    document = std::move(*segment);
  }
  if (options.json) return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::string out;
  AppendText(document, "", &out);
  return out;
}

}  // namespace tdbg::store
