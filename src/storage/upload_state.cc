#include "storage/upload_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "format/version.h"

namespace tdbg::storage {
namespace {

constexpr int64_t kMissedBeats = 6;
constexpr int64_t kLongestBeatMillis = 86'400'000;  // whatever a bucket says

// Empty: not known.
std::string PidNamespace() {
  char link[64];
  const ssize_t got = ::readlink("/proc/self/ns/pid", link, sizeof(link));
  return got > 0 ? std::string(link, static_cast<size_t>(got)) : std::string();
}

// Empty: there is no such process, or it has ended.
std::string StartTicks(int64_t pid) {
  const auto stat = base::LocalFileSystem().ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!stat.ok()) return "";
  // "pid (name) state ppid ...": the name may hold anything. The start is field 22.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return "";
  const std::vector<std::string> fields = base::SplitList(stat->substr(name_end + 1), ' ');
  constexpr size_t kState = 0, kStart = 19;
  return fields.size() <= kStart || fields[kState] == "Z" || fields[kState] == "X" ? "" : fields[kStart];
}

}  // namespace

std::string RandomId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

int64_t AgeNanos(const Object& object) {
  const int64_t now =
      object.store_wall_nanos != 0 ? object.store_wall_nanos : base::SystemClock().WallNanos();
  return now - object.info.modified_wall_nanos;
}

int64_t UploadState::SilenceNanos(int64_t least_nanos) const {
  const int64_t beat_millis_said = std::clamp<int64_t>(beat_millis, 0, kLongestBeatMillis);
  return std::max(least_nanos, kMissedBeats * beat_millis_said * 1'000'000);
}

bool UploadState::SaysAs(const UploadState& other) const {
  return run == other.run && uploader == other.uploader && process == other.process &&
         complete == other.complete && following == other.following && left == other.left &&
         beat_millis == other.beat_millis && held == other.held;
}

std::string ThisProcess() {
  return fmt::format("{} {} {} {}", base::BootId(), PidNamespace(), ::getpid(), StartTicks(::getpid()));
}

bool UploadState::UploaderIsGone() const {
  const std::vector<std::string> fields = base::SplitList(process, ' ');
  const auto pid = fields.size() == 4 ? base::ParseInt(fields[2]) : std::nullopt;
  const std::string boot = base::BootId(), space = PidNamespace();
  if (!pid || boot.empty() || space.empty() || fields[0] != boot || fields[1] != space) return false;
  return StartTicks(*pid) != fields[3];
}

std::string UploadState::ToJson() const {
  return format::DumpJson({{"format", {{"major", 1}, {"minor", 0}}},
                           {"kind", "upload"},
                           {"run", run},
                           {"uploader", uploader},
                           {"host", host},
                           {"process", process},
                           {"complete", complete},
                           {"following", following},
                           {"left", left},
                           {"beat_millis", beat_millis},
                           {"files", files},
                           {"bytes", bytes},
                           {"held", held}});
}

Result<UploadState> UploadState::FromJson(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const format::Json json, format::ParseJsonObject(text, std::string(kStateFile)));
  UploadState state;
  format::GetField(json, "run", &state.run);
  format::GetField(json, "uploader", &state.uploader);
  format::GetField(json, "host", &state.host);
  format::GetField(json, "process", &state.process);
  format::GetField(json, "complete", &state.complete);
  format::GetField(json, "following", &state.following);
  format::GetField(json, "left", &state.left);
  format::GetField(json, "beat_millis", &state.beat_millis);
  format::GetField(json, "files", &state.files);
  format::GetField(json, "bytes", &state.bytes);
  format::GetField(json, "held", &state.held);
  if (state.run.empty()) return DataLoss(std::string(kStateFile) + ": says no run");
  return state;
}

std::string JournalPart::Name() const {
  return fmt::format("{:08}-{:08}-{:020}-{:020}", epoch, counter, from, to);
}

std::optional<JournalPart> JournalPart::Parse(std::string_view name) {
  JournalPart part;
  uint64_t* const fields[] = {&part.epoch, &part.counter, &part.from, &part.to};
  constexpr size_t kDigits[] = {8, 8, 20, 20};
  for (int i = 0; i < 4; ++i) {
    if (name.size() < kDigits[i]) return std::nullopt;
    for (const char c : name.substr(0, kDigits[i])) {
      if (c < '0' || c > '9' || __builtin_mul_overflow(*fields[i], 10, fields[i]) ||
          __builtin_add_overflow(*fields[i], static_cast<uint64_t>(c - '0'), fields[i]))
        return std::nullopt;
    }
    name.remove_prefix(kDigits[i]);
    if (i < 3) {
      if (!name.starts_with('-')) return std::nullopt;
      name.remove_prefix(1);
    }
  }
  if (!name.empty() || part.from > part.to) return std::nullopt;
  return part;
}

std::vector<JournalPart> CoverOf(const std::vector<JournalPart>& parts, uint64_t sealed) {
  std::vector<JournalPart> cover;
  const auto newest = std::ranges::max_element(
      parts, {}, [](const JournalPart& part) { return std::pair(part.epoch, part.counter); });
  if (newest == parts.end()) return cover;
  cover.push_back(*newest);
  for (uint64_t from = newest->from; from > sealed;) {
    // Of several parts that end there, take the longest: the uploader also joins parts into longer ones.
    const JournalPart* best = nullptr;
    for (const JournalPart& part : parts) {
      const bool fits = part.epoch == newest->epoch && part.to == from && part.from < from;
      if (fits && (best == nullptr || part.from < best->from)) best = &part;
    }
    if (best == nullptr) return {};
    cover.push_back(*best);
    from = best->from;
  }
  return cover;
}

}  // namespace tdbg::storage
