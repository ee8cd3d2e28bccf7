#include "jobs/run_directory.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/below.h"
#include "base/hash.h"
#include "base/posix.h"
#include "base/redact.h"
#include "base/text.h"
#include "format/run_files.h"
#include "jobs/run_place.h"
#include "jobs/run_removal.h"
#include "store/writer/worker_writer.h"

namespace tdbg::jobs {
namespace {

constexpr size_t kLongestName = 60;
constexpr int kMostVanished = 1000;

bool IsInterpreter(std::string_view name) {
  for (const std::string_view known : {"python", "pypy", "bash", "sh", "zsh"}) {
    if (!name.starts_with(known)) continue;
    const std::string_view version = name.substr(known.size());
    if (version.find_first_not_of("0123456789.") == std::string_view::npos) return true;
  }
  return name == "torchrun" || name == "accelerate" || name == "env" || name == "nice" || name == "time";
}

bool IsLauncherModule(std::string_view module) {
  return module == "torch.distributed.run" || module == "torch.distributed.launch" ||
         module == "accelerate.commands.launch" || IsInterpreter(module.substr(module.rfind('.') + 1));
}

/// A script's name without its ending; any other name as it is.
std::string WithoutSuffix(const std::string& name) {
  for (const std::string_view suffix : {".py", ".sh"}) {
    if (name.size() > suffix.size() && name.ends_with(suffix))
      return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

std::string Sanitized(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (plain) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && (out.front() == '.' || out.front() == '-')) out.erase(0, 1);
  if (out.size() > kLongestName) out.resize(kLongestName);
  return out.empty() ? "run" : out;
}

std::string RandomRunId() {
  std::random_device device;
  const auto half = [&] { return base::Hex64((static_cast<uint64_t>(device()) << 32) | device()); };
  return half() + half();
}

std::string Path(const std::string& a, std::string_view b) { return base::JoinPath(a, b); }

Status RefuseForeignDirectory(const std::string& directory, base::FileSystem& files) {
  const auto entries = files.List(directory);
  if (!entries.ok()) return entries.status();
  for (const base::DirEntry& entry : *entries) {
    if (entry.name == format::kLauncherLockFile || entry.name == kNodesFolder) continue;
    return Status(Code::kAlreadyExists,
                  fmt::format("the directory holds '{}' and no run; choose a new or empty directory: {}",
                              entry.name, directory));
  }
  return OkStatus();
}

Status RefuseLivingWorkers(const std::string& directory, base::FileSystem& files) {
  for (const int64_t attempt : ListAttempts(directory, files)) {
    for (const std::string& worker : ListWorkers(directory, attempt, files)) {
      if (!files.IsLocked(Path(worker, format::kLockFile))) continue;
      return FailedPrecondition(fmt::format(
          "{} of attempt {} is still training into this run; wait for it, stop it (tdbg stop), or "
          "choose another --dir: {}",
          base::BaseName(worker), attempt, directory));
    }
  }
  return OkStatus();
}

}  // namespace

namespace {

/// The word of a command that says what it runs.
struct Subject {
  std::string word;
  bool is_script = false;  ///< a file, by its ending; otherwise a module or a program
};

Subject SubjectOf(const std::vector<std::string>& command) {
  // The first word that can only be a script or a module: before it come launchers and their flags
  // ("torchrun --nproc_per_node 2 train.py").
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (i > 0 && word == "-c") break;
    if (i > 0 && word == "-m" && i + 1 < command.size()) {
      ++i;
      if (!IsLauncherModule(command[i])) return {command[i], false};
    } else if (!word.starts_with("-")) {
      const std::string name = base::BaseName(word);
      if (WithoutSuffix(name) != name) return {word, true};
    }
  }
  for (size_t i = 0; i < command.size(); ++i) {
    if (i > 0 && command[i] == "-c") break;
    if (command[i].starts_with("-") || command[i].find('=') != std::string::npos) continue;
    if (const std::string name = base::BaseName(command[i]); !IsInterpreter(name)) return {name, false};
  }
  return {command.empty() ? "run" : base::BaseName(command[0]), false};
}

}  // namespace

std::string CommandName(const std::vector<std::string>& command) {
  const Subject subject = SubjectOf(command);
  return Sanitized(subject.is_script ? WithoutSuffix(base::BaseName(subject.word)) : subject.word);
}

std::string ScriptOf(const std::vector<std::string>& command, const std::string& working_directory) {
  const Subject subject = SubjectOf(command);
  if (!subject.is_script) return subject.word + " in " + working_directory;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::path(working_directory) / subject.word;
  const std::filesystem::path plain = std::filesystem::weakly_canonical(path, error);
  return error ? path.lexically_normal().string() : plain.string();
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  std::string text = absolute.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

namespace {

/// An error of a place, with what to do about it.
Status WithAdvice(const Status& status) {
  const Code code = status.code();
  if (code == Code::kResourceExhausted)
    return Status(code, status.message() + "; free space there, or choose another place with --dir DIR");
  if (code == Code::kUnavailable)
    return Status(code, status.message() + "; choose another place with --dir DIR");
  return status;
}

}  // namespace

Result<FreshRunDirectory> FreshRunDirectory::Take(const std::string& below,
                                                  const std::vector<std::string>& command, int64_t wall_nanos,
                                                  bool shared) {
  const std::string root = AbsolutePath(below);
  const time_t seconds = static_cast<time_t>(wall_nanos / 1'000'000'000);
  struct tm local;
  ::localtime_r(&seconds, &local);
  char stamp[32];
  ::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
  const std::string first = Path(root, CommandName(command) + "-" + stamp);
  std::string path = first;
  for (int n = 2, gone = 0;;) {
    std::error_code error;
    const bool made_root = std::filesystem::create_directories(root, error);
    if (error) return WithAdvice(base::PathError(error.value(), "cannot create the directory", root));
    if (::mkdir(path.c_str(), shared ? 0777 : 0700) == 0)
      return FreshRunDirectory(std::move(path), made_root ? root : "");
    if (errno == EEXIST) {
      path = fmt::format("{}-{}", first, n++);
    } else if (errno != ENOENT || ++gone == kMostVanished) {  // one that ended has removed the root meanwhile
      return WithAdvice(base::PathError(errno, "cannot create the directory", path));
    }
  }
}

FreshRunDirectory::FreshRunDirectory(FreshRunDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), root_(std::exchange(other.root_, "")) {}

FreshRunDirectory::~FreshRunDirectory() {
  if (path_.empty() || ::rmdir(path_.c_str()) != 0) return;
  if (!root_.empty()) (void)::rmdir(root_.c_str());
}

namespace {

Status LayOutAttempt(const std::string& directory, int64_t number, const std::vector<int64_t>& earlier,
                     int64_t wall_nanos, base::FileSystem& files) {
  const std::string attempt_directory = Path(directory, std::to_string(number));
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(attempt_directory));
  format::AttemptInfo attempt;
  attempt.attempt = number;
  if (!earlier.empty()) attempt.parent = earlier.back();
  attempt.started_wall_nanos = wall_nanos;
  return files.WriteFileAtomic(Path(attempt_directory, format::kAttemptFile), attempt.ToJson());
}

Status Busy(const std::string& directory) {
  return FailedPrecondition(
      "another tdbg is running a job in this run; wait for it, stop it (tdbg stop), or "
      "choose another --dir: " +
      directory);
}

Result<std::unique_ptr<base::FileLock>> LockAsLauncher(const std::string& directory,
                                                       base::FileSystem& files) {
  auto lock = files.Lock(Path(directory, format::kLauncherLockFile));
  if (lock.ok() || lock.status().code() != Code::kFailedPrecondition) return lock;
  return Busy(directory);
}

Status CheckVersion(const std::string& directory, base::FileSystem& files) {
  const std::string path = Path(directory, format::kRunFile);
  TDBG_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(path));
  const auto info = format::RunInfo::FromJson(text);
  return info.ok() ? OkStatus() : info.status().Annotate(path);
}

Result<PreparedAttempt> LayOut(const PrepareOptions& options, base::FileSystem& given) {
  PreparedAttempt prepared;
  prepared.run_directory = AbsolutePath(options.run_directory);
  const std::string& directory = prepared.run_directory;
  TDBG_RETURN_IF_ERROR(base::CreatePrivateDirectory(directory, options.shared));
  base::FileSystem& files = base::FilesBelow(given, directory);
  if (IsRunDirectory(directory, files)) {
    TDBG_RETURN_IF_ERROR(CheckVersion(directory, files));
  } else if (const Status foreign = RefuseForeignDirectory(directory, files); !foreign.ok()) {
    // What lies there may be a run that another one is just making.
    if (files.IsLocked(Path(directory, format::kLauncherLockFile))) return Busy(directory);
    return foreign;
  } else {
    // An empty directory becomes a run in the same way as a new one.
    struct stat info;
    if (!options.shared && ::stat(directory.c_str(), &info) == 0 && info.st_uid == ::geteuid())
      (void)::chmod(directory.c_str(), info.st_mode & 07700);
  }
  TDBG_ASSIGN_OR_RETURN(prepared.launcher_lock, LockAsLauncher(directory, files));
  // Another one may have made a run of it, and ended, before the lock was ours.
  const bool existing = IsRunDirectory(directory, files);
  if (existing) TDBG_RETURN_IF_ERROR(CheckVersion(directory, files));
  TDBG_RETURN_IF_ERROR(RefuseLivingWorkers(directory, files));

  const std::vector<int64_t> attempts = ListAttempts(directory, files);
  prepared.attempt = attempts.empty() ? 0 : attempts.back() + 1;
  TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(Path(directory, format::kPlanFile), options.plan_json));
  if (!options.rules_json.empty()) {
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(Path(directory, "rules.json"), options.rules_json));
  }
  // Keep the control file of an existing run: processes that have it mapped would not see a new one.
  if (!files.Exists(Path(directory, format::kControlFile))) {
    TDBG_RETURN_IF_ERROR(
        files.WriteFileAtomic(Path(directory, format::kControlFile), format::EncodeControlPage()));
  }
  if (options.start_attempt) {
    TDBG_RETURN_IF_ERROR(LayOutAttempt(directory, prepared.attempt, attempts, options.wall_nanos, files));
  }
  // run.json is written last: it makes the directory a run, so a reader that sees it must find the rest.
  if (!existing) {
    format::RunInfo run;
    run.id = RandomRunId();
    run.name = base::BaseName(directory);
    run.tdbg_version = options.tdbg_version;
    run.command = base::RedactCommand(options.command);
    std::error_code error;
    run.working_directory = std::filesystem::current_path(error).string();
    run.created_wall_nanos = options.wall_nanos;
    TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(Path(directory, format::kRunFile), run.ToJson()));
  }
  return prepared;
}

}  // namespace

Result<PreparedAttempt> PrepareAttempt(const PrepareOptions& options, base::FileSystem& files) {
  Result<PreparedAttempt> prepared = LayOut(options, files);
  if (!prepared.ok()) return WithAdvice(prepared.status());
  return prepared;
}

Status CheckPlace(const std::string& run_directory, bool shared, base::FileSystem& given) {
  TDBG_RETURN_IF_ERROR(base::CreatePrivateDirectory(run_directory, shared));
  base::FileSystem& files = base::FilesBelow(given, run_directory);
  return IsRunDirectory(run_directory, files) ? OkStatus() : RefuseForeignDirectory(run_directory, files);
}

Result<PreparedAttempt> AdoptAttempt(const std::string& run_directory, base::FileSystem& given) {
  PreparedAttempt prepared;
  prepared.run_directory = AbsolutePath(run_directory);
  base::FileSystem& files = base::FilesBelow(given, prepared.run_directory);
  TDBG_ASSIGN_OR_RETURN(prepared.launcher_lock, LockAsLauncher(prepared.run_directory, files));
  const std::vector<int64_t> attempts = ListAttempts(prepared.run_directory, files);
  if (attempts.empty()) return NotFound("no attempt has begun in " + prepared.run_directory);
  prepared.attempt = attempts.back();
  return prepared;
}

Status BeginNextAttempt(PreparedAttempt* prepared, int64_t wall_nanos, base::FileSystem& given) {
  const std::string& directory = prepared->run_directory;
  base::FileSystem& files = base::FilesBelow(given, directory);
  TDBG_RETURN_IF_ERROR(RefuseLivingWorkers(directory, files));
  const std::vector<int64_t> attempts = ListAttempts(directory, files);
  prepared->attempt = attempts.empty() ? 0 : attempts.back() + 1;
  return LayOutAttempt(directory, prepared->attempt, attempts, wall_nanos, files);
}

std::string RunId(const std::string& run_directory, base::FileSystem& files) {
  const auto text = files.ReadFile(Path(run_directory, format::kRunFile));
  if (!text.ok()) return "";
  const auto info = format::RunInfo::FromJson(*text);
  return info.ok() ? info->id : "";
}

std::vector<int64_t> ListAttempts(const std::string& run_directory, base::FileSystem& files) {
  std::vector<int64_t> attempts;
  const auto entries = files.List(run_directory);
  if (!entries.ok()) return attempts;
  for (const base::DirEntry& entry : *entries) {
    const auto number = base::ParseInt(entry.name);
    if (entry.is_directory && number && *number >= 0) attempts.push_back(*number);
  }
  std::sort(attempts.begin(), attempts.end());
  return attempts;
}

std::vector<std::string> ListWorkers(const std::string& run_directory, int64_t attempt,
                                     base::FileSystem& files) {
  std::vector<std::string> workers;
  const std::string directory = Path(run_directory, std::to_string(attempt));
  const auto entries = files.List(directory);
  if (!entries.ok()) return workers;
  for (const base::DirEntry& entry : *entries) {
    // One that begins has its lock first; one that is read from a bucket, and does not live, has none.
    const std::string worker = Path(directory, entry.name);
    if (entry.is_directory &&
        (files.Exists(Path(worker, format::kLockFile)) || files.Exists(Path(worker, format::kWorkerFile))))
      workers.push_back(worker);
  }
  return workers;
}

bool IsRunDirectory(const std::string& path, base::FileSystem& files) {
  return files.Exists(Path(path, format::kRunFile));
}

namespace {

/// (when it was created, path) of each run in `folder`, and in its folders while `levels` are left.
void FindRuns(const std::string& folder, int levels, base::FileSystem& files,
              std::vector<std::pair<int64_t, std::string>>* runs) {
  const auto entries = files.List(folder);
  if (!entries.ok()) return;
  for (const base::DirEntry& entry : *entries) {
    if (!entry.is_directory || IsBeingRemoved(entry.name)) continue;
    const std::string path = Path(folder, entry.name);
    if (!IsRunDirectory(path, files)) {
      if (levels > 1 && !entry.name.starts_with('.')) FindRuns(path, levels - 1, files, runs);
      continue;
    }
    int64_t created = 0;
    if (const auto text = files.ReadFile(Path(path, format::kRunFile)); text.ok()) {
      if (const auto info = format::RunInfo::FromJson(*text); info.ok()) created = info->created_wall_nanos;
    }
    runs->emplace_back(created, path);
  }
}

}  // namespace

std::vector<std::string> ListRuns(const std::string& root, base::FileSystem& files) {
  if (IsRunDirectory(root, files)) return {root};
  std::vector<std::pair<int64_t, std::string>> runs;
  FindRuns(root, 2, files, &runs);
  std::sort(runs.begin(), runs.end());
  std::vector<std::string> paths;
  for (auto& [created, path] : runs) paths.push_back(std::move(path));
  return paths;
}

bool AnyWorkerAlive(const std::string& run_directory, int64_t attempt, base::FileSystem& files) {
  for (const std::string& worker : ListWorkers(run_directory, attempt, files)) {
    if (files.IsLocked(Path(worker, format::kLockFile))) return true;
  }
  return false;
}

bool LauncherAlive(const std::string& run_directory, base::FileSystem& files) {
  return files.IsLocked(Path(run_directory, format::kLauncherLockFile));
}

Status SealAttempt(const std::string& run_directory, int64_t attempt, base::FileSystem& files) {
  Status first;
  for (const std::string& worker : ListWorkers(run_directory, attempt, files)) {
    const Status status = store::SealLeftovers(base::FilesBelow(files, run_directory), worker);
    if (first.ok() && !status.ok()) first = status.Annotate(base::BaseName(worker));
  }
  return first;
}

Status SealOtherAttempts(const std::string& run_directory, int64_t attempt, base::FileSystem& files) {
  Status first;
  for (const int64_t other : ListAttempts(run_directory, files)) {
    if (other == attempt) continue;
    for (const std::string& worker : ListWorkers(run_directory, other, files)) {
      if (::access(worker.c_str(), W_OK) != 0) continue;
      const Status status = store::SealLeftovers(base::FilesBelow(files, run_directory), worker);
      if (first.ok() && !status.ok())
        first = status.Annotate(fmt::format("attempt {}, {}", other, base::BaseName(worker)));
    }
  }
  return first;
}

}  // namespace tdbg::jobs
