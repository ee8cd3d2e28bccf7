#include "cli/viewer.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <array>

#include "base/file.h"
#include "cli/run_path.h"
#include "jobs/run_directory.h"

extern char** environ;

namespace tdbg::cli {

Result<ViewedRuns> RunsToView(const std::string& where) {
  if (where.empty()) {
    return ViewedRuns{[] {
      std::vector<server::NamedRun> list;
      for (const NamedRun& run : RunsOfHere()) list.push_back({run.name, run.path});
      return list;
    }};
  }
  if (!jobs::IsRunDirectory(where) && base::LocalFileSystem().Exists(where)) {
    const std::string root = jobs::AbsolutePath(where);
    const std::vector<std::string> now = ListRuns(root);
    if (now.size() != 1 || now.front() != root) {
      return ViewedRuns{[root] {
        std::vector<server::NamedRun> list;
        for (const std::string& path : ListRuns(root)) list.push_back({RunName(path, root), path});
        return list;
      }};
    }
  }
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(where));
  const server::NamedRun run{trial->name(), trial->path()};
  return ViewedRuns{[run] { return std::vector<server::NamedRun>{run}; }};
}

void OpenBrowser(const std::string& address) {
  if (!::getenv("DISPLAY") && !::getenv("WAYLAND_DISPLAY")) return;
  std::string program = "xdg-open", argument = address;
  const std::array<char*, 3> words{program.data(), argument.data(), nullptr};
  pid_t child = 0;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", 2, 0);
  // Not waited for: xdg-open starts the browser and ends; its zombie goes when this process ends.
  (void)::posix_spawnp(&child, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
}

}  // namespace tdbg::cli
