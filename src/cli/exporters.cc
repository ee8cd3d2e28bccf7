#include "cli/exporters.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/output.h"
#include "format/events.h"
#include "format/version.h"
#include "jobs/run_directory.h"
#include "plan/hook_config.h"
#include "ship/smdebug.h"

namespace tdbg::cli {
namespace {

// Statistics of every tensor at every step would be gigabytes that TensorBoard thins to 500 when it loads
// them.
constexpr int64_t kDefaultStatisticsEvery = 10;
constexpr const char* kSmdebug = "smdebug";
constexpr int kTermMillis = 2000;

struct Wanted {
  std::string to, path;
  std::vector<std::string> flags;
};

std::vector<Wanted> WantedBy(const plan::Config& config, const std::string& run_directory) {
  const auto place = [&](const std::string& directory, const char* inside) {
    return directory.empty() ? base::JoinPath(run_directory, inside) : jobs::AbsolutePath(directory);
  };
  std::vector<Wanted> wanted;
  std::optional<std::string> tensorboard = config.tensorboard_directory;
  if (!tensorboard && config.hook &&
      (config.hook->export_tensorboard || !config.hook->tensorboard_dir.empty())) {
    tensorboard = config.hook->tensorboard_dir;  // smdebug's: a directory alone asks for it
  }
  if (tensorboard) {
    const int64_t every = config.tensorboard_every.value_or(kDefaultStatisticsEvery);
    wanted.push_back(
        {"tensorboard", place(*tensorboard, "tensorboard"), {"--statistics-every", std::to_string(every)}});
  }
  if (config.smdebug_directory) {
    wanted.push_back({kSmdebug, place(*config.smdebug_directory, "smdebug"), {}});
  }
  return wanted;
}

std::vector<std::string> SmdebugDirectories(const plan::Config& config, const std::string& run_directory) {
  std::vector<std::string> directories;
  for (const Wanted& one : WantedBy(config, run_directory)) {
    if (one.to == kSmdebug) directories.push_back(one.path);
  }
  // A script of smdebug's has them in the run itself (python/tdbg/hook/layout.py).
  if (base::LocalFileSystem().Exists(base::JoinPath(run_directory, "index")))
    directories.push_back(run_directory);
  return directories;
}

std::vector<std::string> ArgumentsOf(const Wanted& wanted) {
  std::vector<std::string> arguments = {"--to", wanted.to, wanted.path};
  arguments.insert(arguments.end(), wanted.flags.begin(), wanted.flags.end());
  return arguments;
}

// Did the exporter of the attempt before die with its machine? What it had not written is in the run alone
// then. One that ended has all of its attempt, and what earlier ones had left out.
bool LeftSomethingOut(const std::string& run_directory, int64_t attempt, const std::string& to) {
  return attempt > 0 && std::ranges::none_of(ReadExports(run_directory, attempt - 1),
                                             [&](const auto& before) { return before.to == to; });
}

}  // namespace

Json ExportFields(const ExportOutcome& outcome, int64_t attempt) {
  return {{"attempt", attempt},
          {"to", outcome.to},
          {"path", outcome.path},
          {"ok", outcome.ok},
          {"text", outcome.text}};
}

std::vector<ExportOutcome> ReadExports(const std::string& run_directory, int64_t attempt) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kEventsFile));
  std::vector<ExportOutcome> outcomes;
  if (!text.ok()) return outcomes;
  format::ForEachEvent(*text, "export_ended", [&](const std::string& kind, const format::Json& event) {
    int64_t of = -1;
    if (kind != "export_ended" || !format::GetField(event, "attempt", &of) || of != attempt) return;
    ExportOutcome outcome;
    format::GetField(event, "to", &outcome.to);
    format::GetField(event, "path", &outcome.path);
    format::GetField(event, "ok", &outcome.ok);
    format::GetField(event, "text", &outcome.text);
    outcomes.push_back(std::move(outcome));
  });
  return outcomes;
}

std::vector<std::vector<std::string>> ExportArguments(const plan::Config& config,
                                                      const std::string& run_directory) {
  std::vector<std::vector<std::string>> out;
  for (const Wanted& one : WantedBy(config, run_directory)) out.push_back(ArgumentsOf(one));
  return out;
}

void TellReadersOfEnd(const plan::Config& config, const std::string& run_directory) {
  for (const std::string& directory : SmdebugDirectories(config, run_directory)) {
    if (const Status marked = ship::MarkSmdebugEnd(directory); !marked.ok())
      Note("readers of " + directory + " are not told that the training is over: " + marked.message());
  }
}

void TakeBackEnd(const plan::Config& config, const std::string& run_directory) {
  for (const std::string& directory : SmdebugDirectories(config, run_directory)) {
    if (const Status removed = ship::UnmarkSmdebugEnd(directory); !removed.ok())
      Note("readers of " + directory +
           " are told that the training is over, and it is not: " + removed.message());
  }
}

Exporters::~Exporters() { Finish(0); }

void Exporters::Start(const plan::Config& config, const std::string& run_directory, int64_t attempt,
                      bool again) {
  const std::vector<Wanted> wanted = WantedBy(config, run_directory);
  if (wanted.empty()) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    Note(ErrnoStatus(errno, "cannot start exports").message());
    return;
  }
  const base::UniqueFd theirs(ends[0]);
  job_is_alive_.reset(ends[1]);
  for (const Wanted& one : wanted) {
    base::SpawnOptions spawn;
    spawn.argv = {
        base::SelfExecutable(),  "export",  run_directory, "--follow", "--launched", "--quiet", "--attempt",
        std::to_string(attempt), "--no-end"};
    if (again) spawn.argv.emplace_back("--again");
    if (LeftSomethingOut(run_directory, attempt, one.to)) spawn.argv.emplace_back("--whole");
    for (std::string& argument : ArgumentsOf(one)) spawn.argv.push_back(std::move(argument));
    spawn.input_fd = theirs.get();
    auto child = base::Child::Spawn(spawn);
    if (!child.ok()) {
      Note(fmt::format("{} files will not be written: {}", one.to, child.status().message()));
      continue;
    }
    processes_.push_back({one.to, one.path, *std::move(child)});
  }
}

void Exporters::Finish(int64_t grace_millis) {
  job_is_alive_.reset();
  const int64_t deadline = base::SystemClock().MonotonicNanos() + grace_millis * 1'000'000;
  for (Process& process : processes_) {
    const int64_t left = std::max<int64_t>(0, (deadline - base::SystemClock().MonotonicNanos()) / 1'000'000);
    if (process.child.Wait(static_cast<int>(left))) continue;
    Note(fmt::format("writing {} took too long and was cut short", process.path));
    process.child.SignalGroup(SIGTERM);
    if (process.child.Wait(kTermMillis)) continue;
    process.child.SignalGroup(SIGKILL);
    (void)process.child.Wait(kTermMillis);
  }
  processes_.clear();
}

}  // namespace tdbg::cli
