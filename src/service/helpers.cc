#include "service/helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/companion.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/text.h"
#include "rulehost/host_command.h"

namespace tdbg::service {
namespace {

constexpr int kLookMillis = 100;
constexpr int kTermMillis = 2000;
constexpr size_t kMostShown = 800;
constexpr int kExitNotFound = 4;

// What a helper said: a file without a name, since a pipe would have to be read while it runs.
base::UniqueFd Scratch() { return base::OpenFd("/tmp", O_TMPFILE | O_RDWR, 0600); }

std::string Said(int file) {
  std::string text(16 << 10, '\0');
  const off_t size = ::lseek(file, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t got = ::pread(file, text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  std::string_view trimmed = base::Trim(text);
  if (trimmed.size() > kMostShown) trimmed.remove_prefix(trimmed.size() - kMostShown);
  return base::ToValidUtf8(trimmed);
}

std::string Store() { return base::FindCompanion("tdbg-store"); }

Status RunArchive(const std::vector<std::string>& words, const std::function<bool()>& stopped) {
  const std::string home = base::FindPythonHome();
  if (home.empty())
    return Unavailable("tdbg's Python package, which reads archives, cannot be found; set TDBG_HOME");
  std::vector<std::string> command = {rulehost::PythonInterpreter(), "-I",
                                      base::JoinPath(home, "tdbg/container/archive.py")};
  command.insert(command.end(), words.begin(), words.end());
  return RunHelper(command, stopped);
}

}  // namespace

Status RunHelper(const std::vector<std::string>& command, const std::function<bool()>& stopped,
                 const std::map<std::string, std::string>& environment) {
  const base::UniqueFd said = Scratch();
  if (!said.ok()) return ErrnoStatus(errno, "/tmp");
  base::SpawnOptions spawn;
  spawn.argv = command;
  spawn.set_env = environment;
  spawn.pipe_stdin = true;
  spawn.output_fd = said.get();
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
  std::optional<base::ExitState> exit;
  while (!(exit = child.Wait(kLookMillis))) {
    if (!stopped()) continue;
    child.SignalGroup(SIGTERM);
    if (!child.Wait(kTermMillis)) child.SignalGroup(SIGKILL);
    (void)child.Wait(kTermMillis);
    return Unavailable("stopped");
  }
  if (!exit->signaled && exit->code == 0) return OkStatus();
  std::string text = Said(said.get());
  if (text.empty()) text = fmt::format("{} ended with {}", base::BaseName(command[0]), exit->shell_code());
  if (text.starts_with("tdbg: ")) text.erase(0, 6);
  return !exit->signaled && exit->code == kExitNotFound ? NotFound(text) : Unavailable(text);
}

Status MayPut(const std::string& uri, const std::function<bool()>& stopped) {
  return RunHelper({Store(), "probe", uri}, stopped);
}
Status Fetch(const std::string& uri, const std::string& directory, const std::function<bool()>& stopped) {
  return RunHelper({Store(), "fetch", uri, directory}, stopped);
}
Status Send(const std::string& file, const std::string& uri, const std::function<bool()>& stopped) {
  return RunHelper({Store(), "put", file, uri}, stopped);
}
Status SendFolder(const std::string& directory, const std::string& uri,
                  const std::function<bool()>& stopped) {
  return RunHelper({Store(), "send", directory, uri}, stopped);
}
Status Unpack(const std::string& archive, const std::string& directory,
              const std::function<bool()>& stopped) {
  return RunArchive({"unpack", archive, directory}, stopped);
}
Status Pack(const std::string& directory, const std::string& archive, const std::function<bool()>& stopped) {
  return RunArchive({"pack", directory, archive}, stopped);
}

Status UnpackZip(const std::string& base64_file, const std::string& directory) {
  return RunArchive({"unzip", base64_file, directory}, [] { return false; });
}

Status InstallRequirements(const std::string& python, const std::string& code, const std::string& environment,
                           const std::string& index, std::map<std::string, std::string> variables,
                           const std::function<bool()>& stopped) {
  const std::string home = base::FindPythonHome();
  if (home.empty())
    return Unavailable("tdbg's Python package, which installs them, cannot be found; set TDBG_HOME");
  std::vector<std::string> command = {python, base::JoinPath(home, "tdbg/container/requirements.py"), code,
                                      environment};
  if (index.starts_with('/'))
    command.insert(command.end(), {"--no-index", "--find-links", index});
  else if (index != "pip")
    variables.emplace("PIP_INDEX_URL",
                      index);  // no argument: it may hold a password, and arguments are everybody's
  return RunHelper(command, stopped, variables);
}

std::vector<std::string> SendCommand(const std::string& directory, const std::string& uri, bool deletes) {
  std::vector<std::string> command = {Store(), "send", directory, uri, "--follow", "--every-millis", "1000"};
  if (deletes) command.push_back("--delete");
  return command;
}

Beside::~Beside() {
  if (input_ >= 0) ::close(input_);
}

Status Beside::Start(std::vector<std::string> command,
                     std::function<std::map<std::string, std::string>()> environment) {
  command_ = std::move(command);
  environment_ = std::move(environment);
  said_ = Scratch();
  return Spawn();
}

void Beside::Look() {
  if (!child_) return;
  if (const auto exit = child_->Wait(0); exit && exit->signaled) (void)Spawn();
}

Status Beside::Spawn() {
  if (input_ >= 0) ::close(input_);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const base::UniqueFd theirs(ends[0]);
  input_ = ends[1];
  base::SpawnOptions spawn;
  spawn.argv = command_;
  spawn.input_fd = theirs.get();
  if (said_.ok()) spawn.error_fd = said_.get();
  if (environment_) spawn.set_env = environment_();
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
  child_ = std::make_unique<base::Child>(std::move(child));
  return OkStatus();
}

Status Beside::Finish(int64_t grace_millis) {
  if (!child_) return OkStatus();
  ::close(input_);
  input_ = -1;
  auto exit = child_->Wait(static_cast<int>(grace_millis));
  if (!exit) {
    child_->SignalGroup(SIGTERM);
    if (!child_->Wait(kTermMillis)) child_->SignalGroup(SIGKILL);
    (void)child_->Wait(kTermMillis);
  }
  child_.reset();
  const std::string said = said_.ok() ? Said(said_.get()) : "";
  if (!said.empty()) fmt::print(stderr, "{}\n", said);
  if (!exit) return Unavailable("it took too long and was cut short");
  if (exit->shell_code() == 0) return OkStatus();
  std::string last = said.substr(said.rfind('\n') + 1);
  if (last.starts_with("tdbg: ")) last.erase(0, 6);
  return Unavailable(last.empty() ? fmt::format("exit code {}", exit->shell_code()) : last);
}

}  // namespace tdbg::service
