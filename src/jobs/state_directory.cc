#include "jobs/state_directory.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <vector>

#include "base/file.h"

namespace tdbg::jobs {
namespace {

std::string AbsoluteVariable(const char* name) {
  const char* const value = ::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

// Services, cron and `env -i` have no $HOME; the password database knows the home directory.
std::string HomeOfPasswordFile() {
  std::vector<char> buffer(16 << 10);
  passwd entry;
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return "";
  return found->pw_dir != nullptr && found->pw_dir[0] == '/' ? found->pw_dir : "";
}

}  // namespace

std::string StateDirectory() {
  std::string state = AbsoluteVariable("XDG_STATE_HOME");
  if (state.empty()) {
    std::string home = AbsoluteVariable("HOME");
    if (home.empty()) home = HomeOfPasswordFile();
    if (home.empty()) return "";
    state = base::JoinPath(home, ".local/state");
  }
  return base::JoinPath(state, "tdbg");
}

}  // namespace tdbg::jobs
