#include "cli/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/companion.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/run_events.h"
#include "format/events.h"
#include "format/json_fields.h"
#include "format/version.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "tdbg-store";
constexpr const char* kEvent = "checkpoints_restored";
constexpr std::string_view kLostAndFound = "lost+found";  // in the root of a disk
constexpr std::string_view kRestoreMark =
    ".tdbg-restore";  // as tdbg-store calls what a killed restore leaves
constexpr int kLookMillis = 100;
constexpr int64_t kPatienceNanos = 600'000'000'000, kPauseNanos = 2'000'000'000;
// It gives up by itself, ten minutes after the store has failed; a long transfer that goes on is waited for.
constexpr int64_t kFinishMillis = 24L * 3600 * 1000, kWipeMillis = 660'000;

CheckpointReturn ReturnOf(const format::Json& json) {
  CheckpointReturn back;
  format::GetField(json, "set", &back.set);
  format::GetField(json, "step", &back.step);
  format::GetField(json, "seen_step", &back.seen_step);
  format::GetField(json, "files", &back.files);
  format::GetField(json, "bytes", &back.bytes);
  return back;
}

bool IsInside(const fs::path& path, const fs::path& directory) {
  return std::ranges::mismatch(directory, path).in1 == directory.end();
}

}  // namespace

Json CheckpointReturn::Fields() const {
  return {{"attempt", attempt},
          {"set", set},
          {"of_attempt", of_attempt},
          {"step", step},
          {"seen_step", seen_step},
          {"taken_wall_nanos", taken_wall_nanos},
          {"files", files},
          {"bytes", bytes},
          {"wiped", wiped}};
}

std::string CheckpointReturn::Words() const {
  char time[32];
  std::string text = step >= 0 ? fmt::format("step {}, ", step) : "";
  text += fmt::format("{} in {}, taken at {}",
                      base::FormatBytes(static_cast<uint64_t>(std::max<int64_t>(0, bytes))),
                      base::Counted(static_cast<uint64_t>(std::max<int64_t>(0, files)), "file"),
                      base::FormatUtc(taken_wall_nanos, time));
  if (seen_step >= 0) text += fmt::format(", at step {}", seen_step);
  if (of_attempt >= 0) text += fmt::format("{} attempt {}", seen_step >= 0 ? " of" : ", in", of_attempt);
  return text;
}

std::vector<CheckpointReturn> CheckpointReturns(const std::string& run_directory) {
  std::vector<CheckpointReturn> returns;
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kEventsFile));
  if (!text.ok()) return returns;
  format::ForEachEvent(*text, kEvent, [&](const std::string& kind, const format::Json& event) {
    if (kind != kEvent) return;
    CheckpointReturn back = ReturnOf(event);
    format::GetField(event, "attempt", &back.attempt);
    format::GetField(event, "of_attempt", &back.of_attempt);
    format::GetField(event, "taken_wall_nanos", &back.taken_wall_nanos);
    format::GetField(event, "wiped", &back.wiped);
    returns.push_back(back);
  });
  return returns;
}

Status CheckMayWipe(const std::string& directory, const std::string& run_directory) {
  std::error_code error;
  const fs::path wiped = fs::weakly_canonical(directory, error);
  const char* const home = ::getenv("HOME");
  const std::pair<std::string, const char*> kept[] = {{run_directory, "the run"},
                                                      {jobs::AbsolutePath("."), "the working directory"},
                                                      {home == nullptr ? "" : home, "the home directory"}};
  for (const auto& [path, what] : kept) {
    if (path.empty() || !IsInside(fs::weakly_canonical(path, error), wiped)) continue;
    return InvalidArgument(fmt::format(
        "--wipe: {} is in --checkpoint-dir {}; give checkpoints a directory of their own", what, directory));
  }
  return OkStatus();
}

void Checkpoints::Configure(const std::string& run_directory, const std::string& directory,
                            const std::string& url, bool quiet) {
  if (directory.empty() || url.empty()) return;
  run_directory_ = run_directory;
  quiet_ = quiet;
  directory_ = directory;
  url_ = url;
}

// Without asking tdbg-store, which takes a moment. What a killed restore has left is for it to judge.
bool Checkpoints::LooksEmpty() const {
  std::error_code error;
  bool any = false;
  for (fs::directory_iterator at(directory_, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kRestoreMark)) return true;
    any |= name != kLostAndFound;
  }
  return !any;
}

Result<CheckpointReturn> Checkpoints::RestoreOnce(const std::function<bool()>& go_on) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  const base::UniqueFd ours(ends[0]);
  base::UniqueFd theirs(ends[1]);
  const base::UniqueFd nothing = base::OpenFd("/dev/null", O_RDONLY);
  base::SpawnOptions spawn;
  spawn.argv = {base::FindCompanion(kProgram), "restore-checkpoints", url_, directory_, "--json"};
  spawn.input_fd = nothing.get();
  spawn.output_fd = theirs.get();
  spawn.error_fd = STDERR_FILENO;
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
  theirs.reset();
  std::optional<base::ExitState> ended;
  while (!(ended = child.Wait(kLookMillis))) {
    if (go_on()) continue;
    child.SignalGroup(SIGKILL);
    (void)child.Wait(-1);
    return Status(Code::kDeadlineExceeded, "the job is to end");
  }
  const auto json = format::ParseJsonObject(base::ReadToEnd(ours.get()), kProgram);
  if (!json.ok())
    return Unavailable(ended->signaled ? fmt::format("tdbg-store was ended by signal {}", ended->code)
                                       : "tdbg-store failed");
  std::string error;
  int64_t code = static_cast<int64_t>(Code::kUnavailable);
  if (format::GetField(*json, "error", &error)) {
    format::GetField(*json, "code", &code);
    return Status(static_cast<Code>(code), error);
  }
  CheckpointReturn back = ReturnOf(*json);
  format::GetField(*json, "attempt", &back.of_attempt);
  format::GetField(*json, "wall_nanos", &back.taken_wall_nanos);
  return back;
}

Result<CheckpointReturn> Checkpoints::Restore(bool patient, const std::function<bool()>& go_on) const {
  if (!is_on() || !LooksEmpty()) return CheckpointReturn();
  const int64_t until = base::SystemClock().MonotonicNanos() + (patient ? kPatienceNanos : 0);
  auto back = RestoreOnce(go_on);
  bool said = false;
  while (back.status().code() == Code::kUnavailable && base::SystemClock().MonotonicNanos() < until) {
    if (!std::exchange(said, true))
      Note(fmt::format("the checkpoints cannot be brought back yet: {}; this is tried for ten minutes",
                       back.status().message()));
    const int64_t next = base::SystemClock().MonotonicNanos() + kPauseNanos;
    while (base::SystemClock().MonotonicNanos() < next) {
      if (!go_on()) return Status(Code::kDeadlineExceeded, "the job is to end");
      ::usleep(kLookMillis * 1000);
    }
    back = RestoreOnce(go_on);
  }
  if (!back.ok() && back.status().code() != Code::kDeadlineExceeded)
    return Status(
        back.status().code(),
        fmt::format("the checkpoints in {} cannot be brought back, and nothing trains from zero instead: {}",
                    url_, back.status().message()));
  return back;
}

Status Checkpoints::BringBack(int64_t attempt, const std::function<bool()>& go_on, std::string* said,
                              bool wiped) {
  TDBG_ASSIGN_OR_RETURN(CheckpointReturn back, Restore(/*patient=*/attempt > 0, go_on));
  if (back.set == 0) return OkStatus();
  back.attempt = attempt;
  back.wiped = wiped;
  if (const Status written = AppendEvent(run_directory_, kEvent, back.Fields()); !written.ok())
    Note("the run's events are incomplete: " + written.message());
  if (said != nullptr)
    *said += "; the checkpoints came back: " + back.Words();
  else if (!quiet_)
    Note(fmt::format("the checkpoints came back from {}: {}", url_, back.Words()));
  return OkStatus();
}

bool Checkpoints::Survive(int64_t next_attempt, jobs::JobResult* result, std::string* said,
                          const std::function<bool()>& go_on) {
  const bool wipe = result->stop == jobs::JobStop::kInterrupted && result->wipe;
  const Status wiped = wipe ? Wipe() : OkStatus();
  if (wipe)
    *said +=
        wiped.ok() ? "; the checkpoint directory is wiped" : "; no checkpoint is wiped: " + wiped.message();
  // With half of a directory no attempt begins.
  const bool half = wiped.code() == Code::kDataLoss;
  const Status back = half ? wiped : BringBack(next_attempt, go_on, said, wipe && wiped.ok());
  if (back.ok() || back.code() == Code::kDeadlineExceeded) return back.ok();
  result->not_restarted = back.message();
  Note("the command is not started again: " + back.message());
  return false;
}

void Checkpoints::Start() {
  if (!is_on() || std::exchange(started_, true)) return;
  std::error_code error;
  if (IsInside(fs::weakly_canonical(run_directory_, error), fs::weakly_canonical(directory_, error)))
    return Note(fmt::format(
        "the run is in --checkpoint-dir {}, so no checkpoints are uploaded; give them a directory of "
        "their own",
        directory_));
  sender_.Start({"checkpoints", directory_, url_, "--run", jobs::RunId(run_directory_), "--run-directory",
                 run_directory_, "--follow"},
                "checkpoints are not uploaded", base::FindCompanion(kProgram));
}

Status Checkpoints::Wipe() {
  if (!is_on())
    return FailedPrecondition("it has no --checkpoint-dir, or no bucket that would keep what is in it");
  TDBG_RETURN_IF_ERROR(CheckMayWipe(directory_, run_directory_));
  const auto ended = sender_.Finish(kWipeMillis);
  started_ = false;
  if (!ended || ended->shell_code() != 0)
    return FailedPrecondition(fmt::format("what is in {} is not all in {}", directory_, url_));
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(directory_, error); !error && at != fs::directory_iterator();
       at.increment(error))
    if (at->path().filename().string() != kLostAndFound) entries.push_back(at->path());
  for (const fs::path& entry : entries) {
    fs::remove_all(entry, error);  // of a link only the link
    if (error)
      return DataLoss(
          fmt::format("{} cannot be deleted ({}), so {} is wiped in part only; all of it is in {}",
                      entry.string(), error.message(), directory_, url_));
  }
  return OkStatus();
}

bool Checkpoints::Finish() {
  if (!is_on()) return true;
  const auto ended = sender_.Finish(kFinishMillis);
  started_ = false;
  return ended && ended->shell_code() == 0;
}

}  // namespace tdbg::cli
