#include "trial/remote_run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/companion.h"
#include "base/file.h"
#include "base/text.h"

namespace tdbg {
namespace {

constexpr int64_t kRefreshNanos = 1'000'000'000;
constexpr const char* kProgram = "tdbg-store";
constexpr std::string_view kUploadState = "tdbg-upload.json";  // storage/upload_state.h

struct OpenRuns {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<RemoteRun>> by_url, by_directory;
};
OpenRuns& Opened() {
  static auto* const opened = new OpenRuns();
  return *opened;
}

// Beside the program; in Python, in bin/ beside the extension module that this is part of.
std::string ProgramPath() {
  const std::string found = base::FindCompanion(kProgram);
  if (found != kProgram) return found;
  Dl_info info;
  if (::dladdr(reinterpret_cast<const void*>(&ProgramPath), &info) == 0 || info.dli_fname == nullptr)
    return found;
  std::string library = info.dli_fname;
  library.resize(std::min(library.size(), library.rfind('/')));
  const std::string beside = base::JoinPath(base::JoinPath(library, "bin"), kProgram);
  return ::access(beside.c_str(), X_OK) == 0 ? beside : found;
}

std::string UrlOf(const std::string& path) {
  if (path.find("://") != std::string::npos) return path;
  char* const whole = ::realpath(path.c_str(), nullptr);
  const std::string absolute = whole != nullptr ? whole : path;
  ::free(whole);
  return "file://" + absolute;
}

}  // namespace

bool RemoteRun::IsRemote(const std::string& path) {
  if (path.starts_with("s3://")) return true;
  const std::string directory = path.starts_with("file://") ? path.substr(7) : path;
  return base::LocalFileSystem().Exists(base::JoinPath(directory, kUploadState));
}

Result<std::shared_ptr<RemoteRun>> RemoteRun::Open(const std::string& path) {
  const std::string url = UrlOf(path);
  {
    const std::lock_guard guard(Opened().mutex);
    if (auto run = Opened().by_url[url].lock()) return run;
  }
  const std::shared_ptr<RemoteRun> run(new RemoteRun(url));
  {
    const std::lock_guard guard(run->mutex_);
    TDBG_RETURN_IF_ERROR(run->Start());
    TDBG_ASSIGN_OR_RETURN(run->directory_, run->ReadAnswer());
    run->refreshed_nanos_ = base::SystemClock().MonotonicNanos();
  }
  base::FillBelow(run->directory_, run);
  const std::lock_guard guard(Opened().mutex);
  Opened().by_url[url] = run;
  Opened().by_directory[run->directory_] = run;
  return run;
}

std::shared_ptr<RemoteRun> RemoteRun::Of(const std::string& directory) {
  const std::lock_guard guard(Opened().mutex);
  const auto at = Opened().by_directory.find(directory);
  return at == Opened().by_directory.end() ? nullptr : at->second.lock();
}

RemoteRun::~RemoteRun() {
  if (owner_ != ::getpid()) return;
  questions_.reset();  // it ends with its questions
  if (process_ && !process_->Wait(2'000)) {
    process_->SignalGroup(SIGKILL);
    (void)process_->Wait(1'000);
  }
}

Status RemoteRun::Start() {
  int questions[2], answers[2];
  if (::pipe2(questions, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  const base::UniqueFd theirs_in(questions[0]);
  questions_.reset(questions[1]);
  if (::pipe2(answers, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  const base::UniqueFd theirs_out(answers[1]);
  answers_.reset(answers[0]);
  base::SpawnOptions spawn;
  spawn.argv = {ProgramPath(), "mirror", url_};
  spawn.input_fd = theirs_in.get();
  spawn.output_fd = theirs_out.get();
  spawn.error_fd = STDERR_FILENO;
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
  process_ = std::make_unique<base::Child>(std::move(child));
  owner_ = ::getpid();
  unread_.clear();
  return OkStatus();
}

Result<std::string> RemoteRun::ReadAnswer() {
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      const auto answer = base::ParseAnswer(line);
      return answer ? *answer : Unavailable("tdbg-store said: " + line);
    }
    char bytes[4096];
    const ssize_t got = ::read(answers_.get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Unavailable("tdbg-store has ended; " + url_ + " cannot be read");
    unread_.append(bytes, static_cast<size_t>(got));
  }
}

Result<std::string> RemoteRun::Ask(const std::string& question) {
  const std::lock_guard guard(mutex_);
  if (owner_ != ::getpid()) {  // a fork: the pipes are our parent's
    if (process_) {
      // Not ours to wait for, nor to end.
      static auto* const parents = new std::vector<std::unique_ptr<base::Child>>();
      parents->push_back(std::move(process_));
    }
    TDBG_RETURN_IF_ERROR(Start());
    TDBG_RETURN_IF_ERROR(ReadAnswer().status());
  }
  const std::string line = question + "\n";
  if (base::WriteFully(questions_.get(), std::as_bytes(std::span(line))) != 0)
    return Unavailable("tdbg-store has ended; " + url_ + " cannot be read");
  return ReadAnswer();
}

Status RemoteRun::Refresh(bool now) {
  const int64_t nanos = base::SystemClock().MonotonicNanos();
  {
    const std::lock_guard guard(mutex_);
    if (!now && nanos - refreshed_nanos_ < kRefreshNanos) return OkStatus();
    refreshed_nanos_ = nanos;
  }
  return Ask("refresh").status();
}

Status RemoteRun::Include(const std::string& folder) { return Ask("include " + folder).status(); }

Status RemoteRun::Need(const std::string& path, uint64_t offset, uint64_t bytes) {
  return Ask("need " + std::to_string(offset) + " " + std::to_string(bytes) + " " +
             path.substr(directory_.size() + 1))
      .status();
}

}  // namespace tdbg
