#include "base/process_group.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace tdbg::base {

bool GroupHasLivingMember(pid_t group) {
  if (::kill(-group, 0) != 0) return errno == EPERM;
  const auto processes = LocalFileSystem().List("/proc");
  if (!processes.ok()) return true;
  for (const DirEntry& process : *processes) {
    if (!ParseInt(process.name)) continue;
    const auto stat = LocalFileSystem().ReadFile("/proc/" + process.name + "/stat", 4096);
    if (!stat.ok()) continue;  // ended meanwhile
    // "pid (name) state parent group ..."; the name may hold blanks and parentheses, hence the last one.
    const size_t name_end = stat->rfind(')');
    if (name_end == std::string::npos) continue;
    const auto fields = SplitList(std::string_view(*stat).substr(name_end + 1), ' ');
    if (fields.size() < 3 || ParseInt(fields[2]) != group) continue;
    if (fields[0] != "Z" && fields[0] != "X") return true;
  }
  return false;
}

}  // namespace tdbg::base
