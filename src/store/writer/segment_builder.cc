#include "store/writer/segment_builder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/stable_sort.h"
#include "format/json_fields.h"
#include "format/segment.h"
#include "store/writer/segment_builder_impl.h"

namespace tdbg::store {

using format::RecordHeader;
using format::RecordType;

namespace {

// Small pieces are gathered into writes of this size; larger ones go out from the ring as they are.
constexpr size_t kStageBytes = 1 << 20;
constexpr size_t kDirectBytes = 256 << 10;

void Lose(format::DropKind kind, int64_t step, uint64_t count, uint64_t bytes, SealResult* result) {
  if (count == 0) return;
  format::Drop drop;
  drop.cause = static_cast<uint8_t>(format::DropCause::kDamaged);
  drop.kind = static_cast<uint8_t>(kind);
  drop.count = count;
  drop.bytes = bytes;
  drop.first_step = drop.last_step = std::max<int64_t>(step, 0);
  result->damage.push_back(drop);
}

bool IsUsed(RecordType type) { return type > RecordType::kPad && type <= RecordType::kEnd; }

}  // namespace

SegmentBuilder::SegmentBuilder(base::FileSystem* files, SegmentOrigin origin)
    : files_(files), origin_(std::move(origin)), content_(std::make_unique<Content>()) {}
SegmentBuilder::~SegmentBuilder() = default;

void SegmentBuilder::CloseStep(format::Commit commit, SealResult* result) {
  Content& c = *content_;
  const bool complete = c.damaged_records == 0;
  const std::set<int64_t> foreign = complete ? std::set<int64_t>() : c.DropForeign(commit.global_step);
  const Content::Ends last = c.LastEnds();
  const auto taken = [](uint64_t now, uint64_t before) { return static_cast<uint32_t>(now - before); };
  const uint32_t summary_rows = taken(c.summary_rows, last.summary_rows);
  const uint32_t scalar_rows = taken(c.scalar_rows, last.scalar_rows);
  const uint32_t raws = taken(c.raws.size(), last.raws);
  if (!complete) {
    const auto missing = [](uint32_t said, uint32_t there) { return said > there ? said - there : 0; };
    const uint64_t rows =
        missing(commit.summary_rows, summary_rows) + uint64_t{missing(commit.scalar_rows, scalar_rows)};
    const uint64_t raws_missing = missing(commit.raw_tensors, raws);
    for (const int64_t step : foreign) Lose(format::DropKind::kStep, step, 1, 0, result);
    Lose(format::DropKind::kRaw, commit.global_step, raws_missing, 0, result);
    // Nothing that a commit counts: then it was a context, an acknowledgement, or what the commit itself
    // said.
    const bool uncounted = rows + raws_missing + foreign.size() == 0;
    Lose(format::DropKind::kSummary, commit.global_step, uncounted ? c.damaged_records : rows, 0, result);
    result->damage.back().bytes = c.damaged_bytes;  // at least one of the three
    c.damaged_records = c.damaged_bytes = 0;
  }
  commit.summary_rows = summary_rows;
  commit.scalar_rows = scalar_rows;
  commit.raw_tensors = raws;
  c.Close(commit);
}

void SegmentBuilder::Collect(const Ring& ring, uint64_t begin_pos, uint64_t committed_pos,
                             const SealLimits& limits, bool verify, uint64_t skip_through_sequence,
                             TensorTable* tensors, const SealHooks& hooks, SealResult* result) {
  Content& c = *content_;
  c.Clear();
  uint64_t row_bytes = 0, header_bytes = 0;
  const auto damaged = [&c](uint64_t bytes) {
    ++c.damaged_records;
    c.damaged_bytes += bytes;
  };
  uint64_t position = begin_pos;
  while (position < committed_pos) {
    RecordHeader header;
    std::memcpy(&header, ring.At(position), sizeof(header));
    const uint64_t available = std::min(ring.Contiguous(position), committed_pos - position);
    if (!format::CheckRecordHeader(header, position, available).ok()) {
      const uint64_t next = format::FindRecord(
          position + format::kRecordAlignment, committed_pos, ring.bytes, hooks.data_from,
          [&ring](uint64_t at) { return std::optional(base::Load<RecordHeader>(ring.At(at))); });
      damaged(next - position);
      position = next;
      continue;
    }
    std::span<const std::byte> payload(ring.At(position) + sizeof(header), header.payload_bytes);
    position += format::RecordBytes(header.payload_bytes);
    const auto type = static_cast<RecordType>(header.type);
    const bool at_commit = type == RecordType::kCommit;
    if (header.sequence <= skip_through_sequence) {
      if (at_commit) c.damaged_records = c.damaged_bytes = 0;  // counted with that segment
      continue;
    }
    if (c.first_sequence == 0) c.first_sequence = header.sequence;
    // Others can write into the ring between a check and the use of what was checked, so it is copied first:
    // some 100 KB of a step, where its raw values may be as many MB. Those keep their hash on the way to the
    // segment, and only what stands before them is copied.
    std::array<std::byte, format::kRawDataOffset> raw_prefix;
    bool good = type != RecordType::kRaw || payload.size() >= raw_prefix.size();
    if (good && type == RecordType::kRaw) {
      std::copy_n(payload.begin(), raw_prefix.size(), raw_prefix.begin());
      payload = payload.subspan(raw_prefix.size());
      good = base::Hash64(raw_prefix) == header.prefix_hash &&
             (!verify || base::Hash64(payload) == header.payload_hash);
    } else if (good) {
      if (IsUsed(type)) payload = c.Copy(payload);
      good = format::CheckPayload(header, payload).ok();
    }
    if (!good || (at_commit && payload.size() < sizeof(format::Commit))) {
      damaged(header.payload_bytes);
      if (!at_commit) continue;
      // The step's records are good, so it is kept under its number; what else the commit said is gone.
      format::Commit unknown;
      unknown.global_step = header.global_step;
      CloseStep(unknown, result);
      c.last_sequence = header.sequence;
      continue;
    }
    const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
    switch (type) {
      case RecordType::kTensorDef:
        tensors->Add(text);
        break;
      case RecordType::kSummaries: {
        const auto view = format::DecodeSummaries(payload);
        if (!view.ok()) {
          damaged(payload.size());
          break;
        }
        c.summaries.push_back({header.global_step, *view});
        c.summary_rows += view->row_count;
        c.histogram_bytes += view->histograms.size();
        row_bytes += payload.size();
        break;
      }
      case RecordType::kScalars:
        c.scalars.push_back({header.global_step, payload});
        c.scalar_rows += c.scalars.back().count();
        row_bytes += payload.size();
        break;
      case RecordType::kRaw: {
        const auto raw = format::DecodeRaw(base::Load<format::RawHeader>(raw_prefix.data()), payload);
        if (!raw.ok()) break;
        c.raws.push_back({header.global_step, raw->header, raw->data, header.payload_hash,
                          static_cast<uint32_t>(c.commits.size())});
        header_bytes += 300;
        break;
      }
      case RecordType::kContext:
        c.contexts.push_back(text);
        break;
      case RecordType::kAck:
        c.acks.push_back(text);
        break;
      case RecordType::kEnd:
        c.end = text;
        break;
      case RecordType::kCommit: {
        CloseStep(base::Load<format::Commit>(payload.data()), result);
        c.last_sequence = header.sequence;
        break;
      }
      case RecordType::kPad:
        break;
      default:
        break;  // of a later minor version, which sealed its own journal in all but a crash
    }
    if (at_commit && (position - begin_pos >= limits.journal_bytes || row_bytes >= limits.row_bytes ||
                      header_bytes >= limits.header_bytes)) {
      break;
    }
  }
  result->end_pos = position;
  result->last_sequence = c.last_sequence;
  if (c.damaged_records != 0) {  // committed_pos lies behind a commit: that of the last step is among them
    Lose(format::DropKind::kStep, ring.header->last_seen_step.load(std::memory_order_relaxed), 1,
         c.damaged_bytes, result);
    result->last_sequence =
        std::max(c.last_sequence, ring.header->committed_seq.load(std::memory_order_acquire));
  }
  c.DropWhatIsOpen();
  for (const format::Commit& commit : c.commits) {
    if (result->first_step < 0) result->first_step = commit.global_step;
    result->last_step = std::max(result->last_step, commit.global_step);
  }
}

void SegmentBuilder::LayRaws(const TensorTable& tensors, SealResult* result) {
  Content& c = *content_;
  std::unordered_map<std::string, size_t> seen;
  std::unordered_map<format::TensorId, std::string> names;
  seen.reserve(c.raws.size());
  for (const Content::Raw& raw : c.raws) {
    const auto [name, is_new] = names.try_emplace(raw.header.tensor);
    if (is_new) name->second = tensors.NameOf(raw.header.tensor);
    Piece p;
    p.entry.key = format::RawKey(name->second, raw.step,
                                 {raw.header.sub, static_cast<format::Point>(raw.header.point)});
    const auto dtype = static_cast<DType>(raw.header.dtype);
    p.entry.dtype = std::string(format::SegmentDType(dtype));
    p.entry.shape.assign(raw.header.shape, raw.header.shape + raw.header.rank);
    p.item_bytes = ItemSize(dtype);
    // As U8 an element is one more axis of its bytes.
    if (p.entry.dtype == "U8" && p.item_bytes > 1)
      p.entry.shape.push_back(static_cast<int64_t>(p.item_bytes));
    p.bytes = raw.data;
    p.hash = raw.hash;
    p.is_raw = true;
    p.raw = raw.header;
    p.commit = raw.commit;
    p.step = raw.step;
    const auto [known, inserted] = seen.try_emplace(p.entry.key, c.pieces.size());
    if (inserted) {
      c.pieces.push_back(std::move(p));
    } else {  // a safetensors key names one value
      ++result->repeated_keys;
      result->repeated_bytes += c.pieces[known->second].bytes.size();
      c.pieces[known->second] = std::move(p);
    }
  }
}

namespace {

void AppendKey(std::string_view key, std::string* out) {
  out->push_back(',');
  format::AppendJsonString(key, out);
  out->push_back(':');
}

}  // namespace

std::string SegmentBuilder::OpenMetaJson(const Ring& ring) const {
  const Content& c = *content_;
  const auto append_list = [&](std::string_view key, std::span<const std::string_view> items,
                               std::string* out) {
    AppendKey(key, out);
    out->push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out->push_back(',');
      // Whatever a caller handed in, the header stays JSON, and as deep as it may be.
      out->append(format::IsJson(items[i], format::kMaxJsonDepth - 2)
                      ? std::string(items[i])
                      : format::DumpJson(format::Json(items[i])));
    }
    out->push_back(']');
  };
  std::string out = "{\"format\":{\"major\":" + std::to_string(format::kMajor) +
                    ",\"minor\":" + std::to_string(format::kMinor) + "},\"kind\":\"segment\"";
  AppendKey("run", &out);
  out += format::DumpJson(format::Json(origin_.run_id));
  AppendKey("attempt", &out);
  out += std::to_string(origin_.attempt);
  AppendKey("worker", &out);
  out += format::DumpJson(format::Json(origin_.worker));
  AppendKey("first_sequence", &out);
  out += std::to_string(c.first_sequence);
  AppendKey("last_sequence", &out);
  out += std::to_string(c.last_sequence);
  AppendKey("writer_id", &out);
  out += std::to_string(origin_.writer_id);
  AppendKey("last_seen_step", &out);
  out += std::to_string(ring.header->last_seen_step.load(std::memory_order_relaxed));
  AppendKey("last_seen_wall_nanos", &out);
  out += std::to_string(ring.header->last_seen_wall_nanos.load(std::memory_order_relaxed));
  append_list("context", c.contexts, &out);
  append_list("acks", c.acks, &out);
  if (!c.end.empty()) {
    AppendKey("end", &out);
    out += format::IsJson(c.end, format::kMaxJsonDepth - 1) ? std::string(c.end)
                                                            : format::DumpJson(format::Json(c.end));
  }
  AppendKey("losses", &out);
  out.push_back('[');
  bool first = true;
  for (const format::Drop& drop : DropsIn(*ring.header)) {
    if (!first) out.push_back(',');
    first = false;
    out += "{\"cause\":" + std::to_string(drop.cause) + ",\"kind\":" + std::to_string(drop.kind) +
           ",\"count\":" + std::to_string(drop.count) + ",\"bytes\":" + std::to_string(drop.bytes) +
           ",\"first_step\":" + std::to_string(drop.first_step) +
           ",\"last_step\":" + std::to_string(drop.last_step) + "}";
  }
  out.push_back(']');
  return out;
}

std::string SegmentBuilder::MetadataJson(std::string out, const TensorTable& tensors) const {
  const Content& c = *content_;
  AppendKey("tensors", &out);
  out += "[" + tensors.JoinedJson() + "]";
  AppendKey("checksums", &out);
  char separator = '{';
  for (const Piece& p : c.pieces) {
    out.push_back(separator);
    separator = ',';
    format::AppendJsonString(p.entry.key, &out);
    out += ":\"" + base::Hex64(p.hash) + "\"";
  }
  out.push_back('}');
  AppendKey("raw", &out);
  out.push_back('{');
  bool first = true;
  for (const Piece& p : c.pieces) {
    if (!p.is_raw) continue;
    if (!first) out.push_back(',');
    first = false;
    format::AppendJsonString(p.entry.key, &out);
    out += ":{\"id\":" + std::to_string(p.raw.tensor) + ",\"commit\":" + std::to_string(p.commit) +
           ",\"dtype\":\"";
    out += DTypeName(static_cast<DType>(p.raw.dtype));
    out += "\",\"shape\":[";
    for (int i = 0; i < p.raw.rank; ++i) {
      if (i != 0) out.push_back(',');
      out += std::to_string(p.raw.shape[i]);
    }
    out += "]}";
  }
  out += "}}";
  return out;
}

Status SegmentBuilder::WriteFile(const std::string& header, const std::string& path, const SealHooks& hooks) {
  Content& c = *content_;
  const std::string temporary = base::JoinPath(origin_.directory, ".tmp-" + base::BaseName(path));
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<base::PendingFile> file, files_->CreatePending(temporary));
  c.stage.clear();
  c.stage.reserve(kStageBytes);
  const auto flush = [&]() -> Status {
    if (c.stage.empty()) return OkStatus();
    TDBG_RETURN_IF_ERROR(file->Write(c.stage));
    c.stage.clear();
    if (hooks.tick) hooks.tick();
    return OkStatus();
  };
  const auto write = [&](std::span<const std::byte> bytes) -> Status {
    if (bytes.size() >= kDirectBytes) {
      TDBG_RETURN_IF_ERROR(flush());
      while (!bytes.empty()) {
        const size_t n = std::min(bytes.size(), 4 * kStageBytes);
        TDBG_RETURN_IF_ERROR(file->Write(bytes.first(n)));
        if (hooks.tick) hooks.tick();
        bytes = bytes.subspan(n);
      }
      return OkStatus();
    }
    if (c.stage.size() + bytes.size() > kStageBytes) TDBG_RETURN_IF_ERROR(flush());
    c.stage.insert(c.stage.end(), bytes.begin(), bytes.end());
    return OkStatus();
  };
  TDBG_RETURN_IF_ERROR(write(std::as_bytes(std::span(header))));
  for (const Piece& p : c.pieces) TDBG_RETURN_IF_ERROR(write(p.bytes));
  TDBG_RETURN_IF_ERROR(flush());
  if (hooks.check) TDBG_RETURN_IF_ERROR(hooks.check());
  // Synced later, by a thread of its own (Syncer): journal space must not wait for the platters.
  return file->Publish(path, /*durable=*/false);
}

Result<SealResult> SegmentBuilder::SealNext(const Ring& ring, uint64_t begin_pos, uint64_t committed_pos,
                                            const SealLimits& limits, bool verify,
                                            uint64_t skip_through_sequence, TensorTable* tensors,
                                            const SealHooks& hooks) {
  Content& c = *content_;
  SealResult result;
  Collect(ring, begin_pos, committed_pos, limits, verify, skip_through_sequence, tensors, hooks, &result);
  result.commits = c.commits.size();
  if (c.commits.empty()) {
    if (hooks.check) TDBG_RETURN_IF_ERROR(hooks.check());
    return result;
  }
  TDBG_RETURN_IF_ERROR(LayColumns());
  LayRaws(*tensors, &result);
  // Descending item size: every entry then starts at a multiple of its own item, without fillers.
  base::StableSort(&c.pieces, [](const Piece& a, const Piece& b) { return a.item_bytes > b.item_bytes; });
  uint64_t at = 0;
  std::vector<format::SegmentEntry> entries;
  entries.reserve(c.pieces.size() + 1);
  for (Piece& p : c.pieces) {
    p.entry.begin = at;
    p.entry.end = at += p.bytes.size();
  }
  std::string meta = OpenMetaJson(ring);
  LayIndex(meta + "}", *tensors, at);
  at = c.pieces.back().entry.end;
  for (const Piece& p : c.pieces) entries.push_back(p.entry);
  const std::string header = format::EncodeSegmentHeader(entries, MetadataJson(std::move(meta), *tensors));
  result.path = base::JoinPath(origin_.directory, format::SegmentFileName(c.first_sequence, c.last_sequence));
  TDBG_RETURN_IF_ERROR(WriteFile(header, result.path, hooks));
  sealed_definitions_ = tensors->size();
  result.file_bytes = header.size() + at;
  c.copies.clear();  // nobody needs them any more, nor what refers to them
  return result;
}

}  // namespace tdbg::store
