// For tests: a decoder of a worker's directory that shares nothing with store/reader, and a disk that breaks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/forwarding_file_system.h"
#include "base/hash.h"
#include "base/testing.h"
#include "format/journal.h"
#include "format/json_fields.h"
#include "format/segment.h"

namespace tdbg::store {

/// Everything a worker's directory says, in plain containers. Throws std::runtime_error on anything that is
/// wrong.
struct Decoded {
  struct Row {
    format::SummaryRow row;
    int64_t step = 0;
    std::string histogram;
  };
  struct Step {
    format::Commit commit;
    std::vector<Row> rows;
    std::vector<format::ScalarRow> scalars;
  };
  std::vector<Step> steps;
  std::map<std::string, std::string> raws;  ///< key -> bytes
  std::map<uint32_t, std::string> tensors;  ///< id -> name
  std::vector<std::string> contexts, acks;
  std::string end;
  size_t segments = 0;
  uint64_t last_sequence = 0;
};

inline void Demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline void DecodeSegmentInto(const std::string& file, Decoded* out) {
  using format::Json;
  const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(file)), file.size());
  Demand(header.ok(), header.status().ToString());
  Demand(header->hash_ok, "header hash");
  Demand(header->data_offset % 64 == 0, "data region is not aligned");
  const Json meta = Json::parse(header->tdbg_json);
  Demand(meta.at("first_sequence") == out->last_sequence + 1, "sequences have a gap");
  out->last_sequence = meta.at("last_sequence");
  std::map<std::string, std::string> columns;
  for (const auto& entry : header->entries) {
    const std::string bytes = file.substr(header->data_offset + entry.begin, entry.end - entry.begin);
    const std::string hash = base::Hex64(base::Hash64(std::as_bytes(std::span(bytes))));
    Demand(meta.at("checksums").at(entry.key) == hash, "checksum of " + entry.key);
    if (entry.key.find('@') != std::string::npos) {
      const auto item = ItemSize(*DTypeFromName(meta.at("raw").at(entry.key).at("dtype").get<std::string>()));
      Demand(entry.begin % item == 0, entry.key + " is not aligned");
      Demand(out->raws.emplace(entry.key, bytes).second, entry.key + " twice");
    } else {
      columns[entry.key] = bytes;
    }
  }
  for (const Json& def : meta.at("tensors")) out->tensors[def.at("id")] = def.at("name");
  for (const Json& item : meta.at("context")) out->contexts.push_back(item.dump());
  for (const Json& item : meta.at("acks")) out->acks.push_back(item.dump());
  if (meta.contains("end")) out->end = meta.at("end").dump();
  const auto at = [&]<typename T>(const std::string& key, size_t i, T* value) {
    *value = base::Load<T>(columns.at(key).data() + i * sizeof(T));
  };
  size_t row_at = 0, scalar_at = 0;
  for (size_t i = 0; i < columns.at("step/global").size() / 8; ++i) {
    Decoded::Step step;
    at("step/global", i, &step.commit.global_step);
    at("step/mode_step", i, &step.commit.mode_step);
    at("step/wall_nanos", i, &step.commit.wall_nanos);
    at("step/monotonic_nanos", i, &step.commit.monotonic_nanos);
    at("step/mode", i, &step.commit.mode);
    at("step/flags", i, &step.commit.flags);
    at("step/shed", i, &step.commit.shed);
    at("step/summary_rows", i, &step.commit.summary_rows);
    at("step/scalar_rows", i, &step.commit.scalar_rows);
    at("step/raw_tensors", i, &step.commit.raw_tensors);
    for (uint32_t r = 0; r < step.commit.summary_rows; ++r, ++row_at) {
      Decoded::Row row;
      at("summary/tensor", row_at, &row.row.tensor);
      at("summary/sub", row_at, &row.row.sub);
      at("summary/point", row_at, &row.row.point);
      at("summary/flags", row_at, &row.row.flags);
      at("summary/count", row_at, &row.row.count);
      at("summary/mean", row_at, &row.row.mean);
      at("summary/abs_max", row_at, &row.row.abs_max);
      at("summary/histogram_bytes", row_at, &row.row.histogram_bytes);
      at("summary/step_first", row_at, &row.step);
      uint64_t offset = 0;
      at("summary/histogram_offset", row_at, &offset);
      row.histogram = columns.at("summary/histogram").substr(offset, row.row.histogram_bytes);
      step.rows.push_back(row);
    }
    for (uint32_t r = 0; r < step.commit.scalar_rows; ++r, ++scalar_at) {
      format::ScalarRow row;
      at("scalar/tensor", scalar_at, &row.tensor);
      at("scalar/sub", scalar_at, &row.sub);
      at("scalar/value", scalar_at, &row.value);
      step.scalars.push_back(row);
    }
    out->steps.push_back(std::move(step));
  }
  Demand(row_at * 8 == columns.at("summary/count").size(), "rows without a step");
  Demand(scalar_at * 8 == columns.at("scalar/value").size(), "scalars without a step");
  ++out->segments;
}

inline void DecodeJournalInto(const std::string& file, Decoded* out) {
  const auto bytes = std::as_bytes(std::span(file));
  const Status valid = format::CheckJournalHeader(bytes, file.size());
  Demand(valid.ok(), valid.ToString());
  const auto field = [&](size_t offset) { return base::Load<uint64_t>(file.data() + offset); };
  const uint64_t ring = field(offsetof(format::JournalHeader, ring_bytes));
  const uint64_t committed = field(offsetof(format::JournalHeader, committed_pos));
  Decoded::Step step;
  for (uint64_t position = field(offsetof(format::JournalHeader, sealed_pos)); position < committed;) {
    const size_t at = format::kJournalHeaderBytes + position % ring;
    const auto header = base::Load<format::RecordHeader>(file.data() + at);
    const Status good = format::CheckRecordHeader(header, position, ring - position % ring);
    Demand(good.ok(), good.ToString());
    const auto payload = bytes.subspan(at + sizeof(header), header.payload_bytes);
    const Status payload_good = format::CheckPayload(header, payload);
    Demand(payload_good.ok(), payload_good.ToString());
    position += format::RecordBytes(header.payload_bytes);
    if (header.sequence <= out->last_sequence) continue;  // in a segment whose sealed_pos was not published
    Demand(header.sequence == out->last_sequence + 1, "journal sequence has a gap");
    out->last_sequence = header.sequence;
    const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
    switch (static_cast<format::RecordType>(header.type)) {
      case format::RecordType::kTensorDef: {
        const auto def = format::Json::parse(text);
        out->tensors[def.at("id")] = def.at("name");
        break;
      }
      case format::RecordType::kSummaries: {
        const auto view = format::DecodeSummaries(payload);
        Demand(view.ok(), view.status().ToString());
        for (uint32_t i = 0; i < view->row_count; ++i) {
          Decoded::Row row;
          row.row = base::Load<format::SummaryRow>(view->rows.data() + i * sizeof(format::SummaryRow));
          row.step = header.global_step;
          row.histogram.assign(
              reinterpret_cast<const char*>(view->histograms.data()) + row.row.histogram_offset,
              row.row.histogram_bytes);
          step.rows.push_back(row);
        }
        break;
      }
      case format::RecordType::kScalars:
        for (size_t i = 0; i < payload.size() / sizeof(format::ScalarRow); ++i) {
          step.scalars.push_back(
              base::Load<format::ScalarRow>(payload.data() + i * sizeof(format::ScalarRow)));
        }
        break;
      case format::RecordType::kRaw: {
        const auto raw = format::DecodeRaw(payload);
        Demand(raw.ok(), raw.status().ToString());
        const format::SubKey sub{raw->header.sub, static_cast<format::Point>(raw->header.point)};
        out->raws[format::RawKey(out->tensors.at(raw->header.tensor), header.global_step, sub)] =
            std::string(reinterpret_cast<const char*>(raw->data.data()), raw->data.size());
        break;
      }
      case format::RecordType::kContext:
        out->contexts.push_back(text);
        break;
      case format::RecordType::kAck:
        out->acks.push_back(text);
        break;
      case format::RecordType::kEnd:
        out->end = text;
        break;
      case format::RecordType::kCommit:
        step.commit = base::Load<format::Commit>(payload.data());
        Demand(step.commit.summary_rows == step.rows.size(), "commit: rows");
        out->steps.push_back(std::move(step));
        step = {};
        break;
      case format::RecordType::kPad:
        break;
    }
  }
}

inline Decoded DecodeWorker(const std::string& directory, const std::string& journal) {
  Decoded out;
  const auto entries = base::LocalFileSystem().List(directory + "/segments");
  Demand(entries.ok(), entries.status().ToString());
  for (const auto& entry : *entries) {
    if (!format::ParseSegmentFileName(entry.name)) continue;
    DecodeSegmentInto(base::Slurp(directory + "/segments/" + entry.name), &out);
  }
  DecodeJournalInto(base::Slurp(journal), &out);
  return out;
}

/// The machine's file system with switches. Segment writes fail with `fail` while it is not kOk.
class FaultyFileSystem : public base::ForwardingFileSystem {
 public:
  FaultyFileSystem() : ForwardingFileSystem(&base::LocalFileSystem()) {}
  std::atomic<Code> fail{Code::kOk};
  std::atomic<bool> fail_midway{false};    ///< the file is created and its first write succeeds
  std::atomic<int> stall_millis{0};        ///< each write takes this long
  std::atomic<bool> out_of_memory{false};  ///< segments throw std::bad_alloc, after their first write
  std::atomic<int> failures{0};

  Status Verdict() {
    const Code code = fail.load();
    if (code == Code::kOk) return OkStatus();
    ++failures;
    return Status(code, "injected");
  }

  class Pending : public base::PendingFile {
   public:
    Pending(std::unique_ptr<base::PendingFile> file, FaultyFileSystem* owner)
        : file_(std::move(file)), owner_(owner) {}
    Status Write(std::span<const std::byte> bytes) override {
      if (const int millis = owner_->stall_millis.load()) ::usleep(static_cast<useconds_t>(millis) * 1000);
      if (written_ > 0 && owner_->out_of_memory) {
        ++owner_->failures;
        throw std::bad_alloc();
      }
      if (written_++ > 0 || !owner_->fail_midway) TDBG_RETURN_IF_ERROR(owner_->Verdict());
      return file_->Write(bytes);
    }
    Status Publish(const std::string& path, bool durable) override {
      TDBG_RETURN_IF_ERROR(owner_->Verdict());
      return file_->Publish(path, durable);
    }

   private:
    std::unique_ptr<base::PendingFile> file_;
    FaultyFileSystem* owner_;
    int written_ = 0;
  };

  Result<std::unique_ptr<base::PendingFile>> CreatePending(const std::string& path) override {
    if (!fail_midway) TDBG_RETURN_IF_ERROR(Verdict());
    TDBG_ASSIGN_OR_RETURN(auto file, ForwardingFileSystem::CreatePending(path));
    return std::unique_ptr<base::PendingFile>(new Pending(std::move(file), this));
  }
  Result<std::unique_ptr<base::MappedFile>> CreateMapped(const std::string& path, uint64_t bytes) override {
    if (bytes > largest_mapping) return ResourceExhausted("injected: no room for the journal");
    return ForwardingFileSystem::CreateMapped(path, bytes);
  }
  uint64_t largest_mapping = ~uint64_t{0};
};

}  // namespace tdbg::store
