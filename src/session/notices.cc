#include "session/notices.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "base/wrapped.h"

namespace tdbg::session {

void TellOnce(std::string_view kind, std::string_view text) {
  static std::mutex* const mutex = new std::mutex;
  static std::set<std::string>* const said = new std::set<std::string>;
  {
    const std::lock_guard guard(*mutex);
    if (!said->emplace(kind).second) return;
  }
  constexpr std::string_view kMark = "tdbg: ";
  std::string flat(text);
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  const std::string line = std::string(kMark) + base::Wrapped(flat, static_cast<int>(kMark.size())) + '\n';
  // One write(2) instead of stdio, so that lines of several ranks do not mix on a terminal.
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tdbg::session
