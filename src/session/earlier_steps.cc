#include "session/earlier_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "base/text.h"
#include "format/journal.h"
#include "format/json_fields.h"
#include "format/keys.h"
#include "format/run_files.h"
#include "format/segment.h"

namespace tdbg::session {
namespace {

constexpr std::string_view kEarlierSteps = "earlier_steps.json";
constexpr int64_t kLargest = int64_t{1} << 53;
constexpr uint64_t kMostHeaderBytes = 100'000'000;
constexpr ModeKey kCounting[] = {ModeKey::kTrain, ModeKey::kEval, ModeKey::kPredict};

bool IsStep(int64_t step) { return step >= 0 && step < kLargest; }

bool Reads(const base::ReadableFile& file, uint64_t offset, std::span<std::byte> out) {
  const auto got = file.ReadAt(offset, out);
  return got.ok() && *got == out.size();
}

std::optional<BehindEarlier> AsTheLauncherSays(const std::string& attempt_directory,
                                               base::FileSystem& files) {
  const auto text = files.ReadFile(base::JoinPath(attempt_directory, kEarlierSteps));
  if (!text.ok()) return std::nullopt;
  const auto json = format::ParseJsonObject(*text, kEarlierSteps);
  BehindEarlier behind;
  if (!json.ok() || !format::GetField(*json, "next_step", &behind.step) || !IsStep(behind.step))
    return std::nullopt;
  std::map<ModeKey, int64_t> modes;
  for (const ModeKey mode : kCounting) modes[mode] = 0;
  const auto spans = json->find("spans");
  if (spans == json->end() || !spans->is_array()) return std::nullopt;
  for (const format::Json& span :
       *spans) {  // [mode, first global step, first of the mode, how many, skipped]
    if (!span.is_array() || span.size() < 4 || !span[0].is_string()) return std::nullopt;
    if (!span[2].is_number_integer() || !span[3].is_number_integer()) return std::nullopt;
    const auto first = span[2].get<int64_t>(), count = span[3].get<int64_t>();
    const auto mode = format::ModeFromName(span[0].get<std::string>());
    if (!mode || !IsStep(first) || !IsStep(count)) return std::nullopt;
    const auto key = static_cast<ModeKey>(*mode);
    modes[key] = std::max(modes[key], first + count);
  }
  for (const ModeKey mode : kCounting) behind.modes.emplace_back(mode, modes[mode]);
  return behind;
}

/// The heartbeat of a worker, which knows of steps in which nothing was due, too; -1: before its first step.
/// Nothing where there is no journal that can be read.
std::optional<int64_t> LastSeenIn(const std::string& journal_path, base::FileSystem& files) {
  const auto file = files.OpenReadable(journal_path);
  if (!file.ok()) return std::nullopt;
  alignas(format::JournalHeader) std::byte page[format::kJournalHeaderBytes];
  const auto size = (*file)->Size();
  if (!size.ok() || !Reads(**file, 0, page)) return std::nullopt;
  if (!format::CheckJournalHeader(page, *size).ok()) return std::nullopt;
  int64_t step;
  std::memcpy(&step, page + offsetof(format::JournalHeader, last_seen_step), sizeof(step));
  return step;
}

/// The heartbeat when a segment was sealed; -1: it does not say.
int64_t LastSeenBySegment(const std::string& path, base::FileSystem& files) {
  const auto file = files.OpenReadable(path);
  if (!file.ok()) return -1;
  const auto size = (*file)->Size();
  std::vector<std::byte> bytes(8);
  uint64_t length = 0;
  if (!size.ok() || !Reads(**file, 0, bytes)) return -1;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMostHeaderBytes || length > *size) return -1;
  bytes.resize(8 + length);
  if (!Reads(**file, 0, bytes)) return -1;
  const auto header = format::DecodeSegmentHeader(bytes, *size);
  if (!header.ok()) return -1;
  const auto json = format::ParseJsonObject(header->tdbg_json, "segment", format::kMaxMetadataDepth);
  int64_t step = -1;
  if (json.ok()) format::GetField(*json, "last_seen_step", &step);
  return step;
}

/// -1: nothing is known of a step.
int64_t LastStepOf(const std::string& worker_directory, base::FileSystem& files) {
  const auto text = files.ReadFile(base::JoinPath(worker_directory, format::kWorkerFile), 1u << 20);
  if (!text.ok()) return -1;
  if (const auto info = format::WorkerInfo::FromJson(*text); info.ok()) {
    const std::string& journal = info->journal_path;
    const auto last =
        LastSeenIn(journal.starts_with('/') ? journal : base::JoinPath(worker_directory, journal), files);
    if (last) return *last;
  }
  const std::string segments = base::JoinPath(worker_directory, format::kSegmentsDir);
  const auto entries = files.List(segments);
  std::string newest;
  for (size_t i = 0; entries.ok() && i < entries->size(); ++i) {
    const std::string& name = (*entries)[i].name;  // in the order of their sequences, by their digits
    if (format::ParseSegmentFileName(name)) newest = std::max(newest, name);
  }
  return newest.empty() ? -1 : LastSeenBySegment(base::JoinPath(segments, newest), files);
}

}  // namespace

BehindEarlier BehindEarlierAttempts(const std::string& run_directory, int64_t attempt,
                                    base::FileSystem& files) {
  if (auto told = AsTheLauncherSays(base::JoinPath(run_directory, std::to_string(attempt)), files))
    return *std::move(told);
  int64_t last = -1;
  const auto attempts = files.List(run_directory);
  for (size_t i = 0; attempts.ok() && i < attempts->size(); ++i) {
    const auto number = base::ParseInt((*attempts)[i].name);
    if (!(*attempts)[i].is_directory || !number || *number < 0 || *number >= attempt) continue;
    const std::string directory = base::JoinPath(run_directory, (*attempts)[i].name);
    const auto workers = files.List(directory);
    for (size_t w = 0; workers.ok() && w < workers->size(); ++w) {
      if (!(*workers)[w].is_directory) continue;
      const int64_t of_worker = LastStepOf(base::JoinPath(directory, (*workers)[w].name), files);
      if (IsStep(of_worker)) last = std::max(last, of_worker);
    }
  }
  BehindEarlier behind;
  behind.step = last + 1;
  for (const ModeKey mode : kCounting) behind.modes.emplace_back(mode, behind.step);
  return behind;
}

}  // namespace tdbg::session
