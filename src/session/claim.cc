#include "session/claim.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/below.h"
#include "base/hash.h"
#include "base/redact.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "format/keys.h"
#include "format/run_files.h"
#include "format/version.h"
#include "session/earlier_steps.h"
#include "session/notices.h"
#include "store/writer/leftovers.h"

namespace tdbg::session {
namespace {

constexpr std::string_view kOpeningLock = "open.lock";
constexpr std::string_view kEndedFile = "ended.json";
constexpr int kMaxSiblings = 99;

std::string Path(const std::string& a, std::string_view b) { return base::JoinPath(a, b); }

std::string RandomHex() {
  std::random_device device;
  return base::Hex64((static_cast<uint64_t>(device()) << 32) | device());
}

std::string Environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

enum class WorkerState { kAbsent, kAlive, kEnded, kDead };

WorkerState StateOf(const std::string& worker_directory, base::FileSystem& files) {
  const std::string lock = Path(worker_directory, format::kLockFile);
  if (!files.Exists(lock)) return WorkerState::kAbsent;
  if (files.IsLocked(lock)) return WorkerState::kAlive;
  const auto word = files.ReadFile(Path(worker_directory, kEndedFile));
  if (!word.ok()) return WorkerState::kDead;
  const auto json = nlohmann::json::parse(*word, nullptr, false);
  std::string reason;
  if (json.is_object()) format::GetField(json, "reason", &reason);
  // It was stopped or ended by an exception: the next process of that name continues the same training.
  return reason == "completed" || reason == "closed" ? WorkerState::kEnded : WorkerState::kDead;
}

std::vector<int64_t> Attempts(const std::string& directory, base::FileSystem& files) {
  std::vector<int64_t> attempts;
  const auto entries = files.List(directory);
  if (!entries.ok()) return attempts;
  for (const base::DirEntry& e : *entries) {
    const auto number = base::ParseInt(e.name);
    if (e.is_directory && number && *number >= 0) attempts.push_back(*number);
  }
  std::sort(attempts.begin(), attempts.end());
  return attempts;
}

/// The attempt in which `worker` records; nothing where this run has no place for it (the next directory is
/// tried).
std::optional<int64_t> ChooseAttempt(const std::string& directory, const std::string& worker, int64_t given,
                                     base::FileSystem& files) {
  const auto state = [&](int64_t attempt) {
    return StateOf(Path(Path(directory, std::to_string(attempt)), worker), files);
  };
  if (given >= 0) {
    switch (state(given)) {
      case WorkerState::kAbsent:
        return given;
      case WorkerState::kAlive:
        return std::nullopt;
      // A second training within one start of the job: another model, or the same one on other data.
      case WorkerState::kEnded:
        return std::nullopt;
      // It died, and something inside the job (an elastic agent) starts it again.
      case WorkerState::kDead:
        break;
    }
  }
  const std::vector<int64_t> attempts = Attempts(directory, files);
  if (attempts.empty()) return 0;
  const int64_t last = attempts.back();
  switch (state(last)) {
    case WorkerState::kAlive:
      return std::nullopt;
    case WorkerState::kEnded:
    case WorkerState::kDead:
      return last + 1;
    case WorkerState::kAbsent:
      break;
  }
  // The last attempt is that of this start where another rank is alive in it, or nobody has written (a
  // launcher made it).
  bool anybody = false, alive = false;
  const auto entries = files.List(Path(directory, std::to_string(last)));
  for (size_t i = 0; entries.ok() && i < entries->size(); ++i) {
    const WorkerState other = StateOf(Path(Path(directory, std::to_string(last)), (*entries)[i].name), files);
    anybody |= (*entries)[i].is_directory && other != WorkerState::kAbsent;
    alive |= other == WorkerState::kAlive;
  }
  return alive || !anybody ? last : last + 1;
}

Status RefuseForeignDirectory(const std::string& directory, base::FileSystem& files) {
  TDBG_ASSIGN_OR_RETURN(const auto entries, files.List(directory));
  for (const base::DirEntry& e : entries) {
    if (e.name == kOpeningLock || e.name == format::kPlanFile || e.name.starts_with('.')) continue;
    if (e.name.ends_with(".lock") || e.name.ends_with(".tmp")) continue;
    return Status(Code::kAlreadyExists,
                  fmt::format("the directory holds \"{}\" and no run; choose a new or empty "
                              "one: {}",
                              e.name, directory));
  }
  return OkStatus();
}

Result<std::unique_ptr<base::FileLock>> LockForOpening(const std::string& directory,
                                                       base::FileSystem& files) {
  // Others hold the lock for milliseconds; a second or two while one allocates its journal on a slow disk,
  // and of a hundred ranks that open at once the last one waits for all others.
  return base::WaitForLock(files, Path(directory, kOpeningLock), 90'000);
}

std::string JournalPath(const Claim& claim) {
  std::string directory = claim.plan.journal_directory;
  if (directory.empty() && !IsOnLocalDisk(claim.worker_directory)) {
    directory = Environment("TMPDIR");
    if (directory.empty()) directory = "/tmp";
  }
  if (directory.empty()) return Path(claim.worker_directory, format::kJournalFile);
  return Path(directory, std::string(store::kJournalElsewhere) + RandomHex());
}

/// The plan that this worker obeys, stored in the run where it is not.
Result<plan::Plan> LoadPlan(const RunOptions& options, const std::string& directory,
                            const std::string& base_directory, base::FileSystem& files) {
  const std::string path = Path(directory, format::kPlanFile);
  std::string stored, text = options.plan_json;
  if (auto there = files.ReadFile(path); there.ok()) {
    stored = *std::move(there);
  } else if (there.status().code() != Code::kNotFound) {
    return there.status();
  }
  if (text.empty()) text = stored;
  if (text.empty() && directory != base_directory) {
    if (auto original = files.ReadFile(Path(base_directory, format::kPlanFile)); original.ok())
      text = *original;
  }
  if (text.empty()) text = plan::Plan::Default().ToJson();
  auto parsed = plan::Plan::FromJson(text);
  if (!parsed.ok())
    return parsed.status().Annotate(options.plan_json.empty() ? path : "RunOptions.plan_json");
  if (text != stored) TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(path, text));
  return parsed;
}

/// A worker that has begun this attempt already. Any of them does, since all begin alike: in a world of a
/// thousand not all files are read a thousand times.
std::optional<format::WorkerInfo> AnotherOf(const Claim& claim, base::FileSystem& files) {
  const std::string attempt = Path(claim.directory, std::to_string(claim.attempt));
  const auto entries = files.List(attempt);
  for (size_t i = 0; entries.ok() && i < entries->size(); ++i) {
    const base::DirEntry& entry = (*entries)[i];
    if (!entry.is_directory || entry.name == claim.worker) continue;
    const auto text = files.ReadFile(Path(Path(attempt, entry.name), format::kWorkerFile), 1u << 20);
    if (!text.ok()) continue;
    if (auto info = format::WorkerInfo::FromJson(*text); info.ok() && info->step_base)
      return *std::move(info);
  }
  return std::nullopt;
}

/// The workers of an attempt begin at one step, or readers would lay other steps of one beside those of
/// another. Who comes first decides: its steps are written.
/// \return  is that decided?
bool TakeStepBaseOfAnother(const RunOptions& options, Claim* claim, base::FileSystem& files) {
  const auto another = AnotherOf(*claim, files);
  if (!another) return false;
  const bool stated = options.step_base != 0 || !options.step_base_from.empty();
  if (stated && options.step_base == *another->step_base) return false;
  claim->step_base = *another->step_base;
  claim->step_base_from = another->step_base_from;
  claim->mode_step_bases.clear();
  for (const auto& [mode, step] : another->mode_step_bases) {
    if (const auto known = format::ModeFromName(mode))
      claim->mode_step_bases.emplace_back(static_cast<ModeKey>(*known), step);
  }
  if (!stated) return true;
  claim->step_base_said = options.step_base;
  TellOnce("step_base",
           fmt::format("rank {} begins at step {}, as rank {} of this attempt did, and not at step {}, as {} "
                       "says; let each rank say the same (tdbg.resume_step)",
                       options.rank, claim->step_base, another->rank, options.step_base,
                       options.step_base_from.empty() ? "its program" : "its " + options.step_base_from));
  return true;
}

/// Where the attempt begins: where its caller says, else behind all that earlier attempts have reached. A
/// number that nobody stated must not replace a step.
void TakeStepBase(const RunOptions& options, Claim* claim, base::FileSystem& files) {
  claim->step_base = options.step_base;
  claim->step_base_from = options.step_base_from;
  claim->mode_step_bases = options.mode_step_bases;
  if (TakeStepBaseOfAnother(options, claim, files)) return;
  if (options.step_base != 0 || !options.step_base_from.empty() || claim->attempt == 0) return;
  BehindEarlier behind = BehindEarlierAttempts(claim->directory, claim->attempt, files);
  if (behind.step == 0) return;  // nothing to be behind of
  claim->step_base = behind.step;
  claim->step_base_from = format::kBehind;
  claim->mode_step_bases = std::move(behind.modes);
}

Result<std::string> WantedDirectory(const std::string& given) {
  std::string wanted = given.empty() ? Environment("TDBG_RUN") : given;
  if (wanted.empty())
    return InvalidArgument("no run directory: neither RunOptions.directory nor $TDBG_RUN is set");
  std::error_code error;
  const auto absolute = std::filesystem::absolute(wanted, error);  // scripts change their directory
  if (!error) wanted = absolute.lexically_normal().string();
  while (wanted.size() > 1 && wanted.back() == '/') wanted.pop_back();
  return wanted;
}

/// -1: nobody says one.
Result<int64_t> GivenAttempt(int64_t attempt) {
  const std::string text = attempt < 0 ? Environment("TDBG_ATTEMPT") : "";
  if (text.empty()) return attempt;
  const auto number = base::ParseInt(text);
  if (!number || *number < 0)
    return InvalidArgument(fmt::format("$TDBG_ATTEMPT is \"{}\", not a number", text));
  return *number;
}

Status WriteSharedFiles(const RunOptions& options, Claim* claim, base::FileSystem& files,
                        const base::Clock& clock) {
  const std::string attempt_directory = Path(claim->directory, std::to_string(claim->attempt));
  const std::vector<int64_t> attempts = Attempts(claim->directory, files);
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(claim->worker_directory));

  // Replacing a control file would cut off whoever has it mapped.
  const std::string control = Path(claim->directory, format::kControlFile);
  if (!files.Exists(control))
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(control, format::EncodeControlPage()));

  TakeStepBase(options, claim, files);
  const std::string attempt_file = Path(attempt_directory, format::kAttemptFile);
  if (!files.Exists(attempt_file)) {
    format::AttemptInfo attempt;
    attempt.attempt = claim->attempt;
    for (const int64_t a : attempts) {
      if (a < claim->attempt) attempt.parent = a;
    }
    attempt.started_wall_nanos = clock.WallNanos();
    attempt.step_base = claim->step_base;
    attempt.world_size = options.world_size;
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(attempt_file, attempt.ToJson()));
  }

  // Written last: a directory with this file is a run, and all other files are there.
  const std::string run_file = Path(claim->directory, format::kRunFile);
  if (const auto text = files.ReadFile(run_file); text.ok()) {
    const auto run = format::RunInfo::FromJson(*text);
    if (!run.ok()) return run.status().Annotate(run_file);
    claim->run_id = run->id;
    return OkStatus();
  }
  format::RunInfo run;
  run.id = RandomHex() + RandomHex();
  run.name = base::BaseName(claim->directory);
  run.tdbg_version = TDBG_VERSION;
  run.command = base::RedactCommand(options.command);
  std::error_code ignored;
  run.working_directory = std::filesystem::current_path(ignored).string();
  run.created_wall_nanos = clock.WallNanos();
  claim->run_id = run.id;
  return files.WriteFileAtomic(run_file, run.ToJson());
}

}  // namespace

Result<int64_t> NextAttempt(const std::string& directory, int64_t rank, base::FileSystem& whole) {
  TDBG_ASSIGN_OR_RETURN(const std::string wanted, WantedDirectory(directory));
  TDBG_ASSIGN_OR_RETURN(const int64_t given, GivenAttempt(-1));
  return ChooseAttempt(wanted, fmt::format("worker_{}", rank), given, base::FilesBelow(whole, wanted))
      .value_or(-1);
}

Result<Claim> ClaimDirectory(const RunOptions& options, base::FileSystem& whole, const base::Clock& clock) {
  TDBG_ASSIGN_OR_RETURN(const std::string wanted, WantedDirectory(options.directory));
  TDBG_ASSIGN_OR_RETURN(const int64_t given, GivenAttempt(options.attempt));
  Claim claim;
  claim.worker = fmt::format("worker_{}", options.rank);
  for (int n = std::max(1, options.first_sibling); n <= kMaxSiblings; ++n) {
    claim.directory = n == 1 ? wanted : fmt::format("{}-{}", wanted, n);
    // A run beside another one gets that one's permissions.
    const bool shared = n > 1 && (base::FileModeIn(wanted) & 077) != 0;
    TDBG_RETURN_IF_ERROR(base::CreatePrivateDirectory(claim.directory, shared));
    base::FileSystem& files = base::FilesBelow(whole, claim.directory);
    if (!options.among_other_files && !files.Exists(Path(claim.directory, format::kRunFile))) {
      Status foreign = RefuseForeignDirectory(claim.directory, files);
      if (!foreign.ok() && files.Exists(Path(claim.directory, kOpeningLock))) {
        // Another rank may be making it a run at this moment; run.json comes last. Looked at again when it is
        // done. A folder that is really somebody else's holds no such lock, and gets none from us.
        TDBG_ASSIGN_OR_RETURN(const auto theirs, LockForOpening(claim.directory, files));
        foreign = files.Exists(Path(claim.directory, format::kRunFile))
                      ? OkStatus()
                      : RefuseForeignDirectory(claim.directory, files);
      }
      if (!foreign.ok() && n == 1) return foreign;
      if (!foreign.ok()) continue;
    }
    TDBG_ASSIGN_OR_RETURN(claim.opening, LockForOpening(claim.directory, files));
    const auto attempt = ChooseAttempt(claim.directory, claim.worker, given, files);
    if (!attempt) {
      claim.opening.reset();
      if (options.sibling_if_locked) continue;
      return FailedPrecondition(
          fmt::format("{} is taken: another training writes this run, or has written it in this "
                      "attempt: {}",
                      claim.worker, claim.directory));
    }
    claim.attempt = *attempt;
    claim.worker_directory = Path(Path(claim.directory, std::to_string(claim.attempt)), claim.worker);
    TDBG_ASSIGN_OR_RETURN(claim.plan, LoadPlan(options, claim.directory, wanted, files));
    TDBG_RETURN_IF_ERROR(WriteSharedFiles(options, &claim, files, clock));
    claim.journal_path = JournalPath(claim);
    for (const int64_t a : Attempts(claim.directory, files)) {
      const std::string before = Path(Path(claim.directory, std::to_string(a)), claim.worker);
      if (a < claim.attempt && files.Exists(Path(before, format::kWorkerFile)))
        claim.earlier.push_back(before);
    }
    return claim;
  }
  return FailedPrecondition(fmt::format("{} and {} runs beside it are taken", wanted, kMaxSiblings - 1));
}

void LeaveWord(const Claim& claim, std::string_view reason, base::FileSystem& files) {
  const nlohmann::json json = {{"reason", base::ToValidUtf8(reason)}};
  (void)files.WriteFileAtomic(Path(claim.worker_directory, kEndedFile), json.dump() + "\n");
}

bool IsOnLocalDisk(const std::string& path) {
  struct statfs info;
  if (::statfs(path.c_str(), &info) != 0) return true;
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0x00006969:  // NFS
    case 0x0000517b:  // SMB
    case 0xff534d42:  // CIFS
    case 0xfe534d42:  // SMB2
    case 0x65735546:  // FUSE
    case 0x01021997:  // 9p
    case 0x0bd00bd0:  // Lustre
    case 0x47504653:  // GPFS
    case 0x00c36400:  // Ceph
    case 0x19830326:  // BeeGFS
    case 0x5346414f:  // AFS
    case 0x73757245:  // Coda
      return false;
    default:
      return true;
  }
}

}  // namespace tdbg::session
