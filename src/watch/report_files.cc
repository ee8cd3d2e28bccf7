#include "watch/report_files.h"

#include <algorithm>

#include "base/below.h"

namespace tdbg::watch {

Result<std::string> WriteReport(const std::string& run, const std::string& rule_name,
                                const rules::Report& report) {
  base::FileSystem& files = base::FilesBelow(base::LocalFileSystem(), run);
  // The name is chosen by the user and must not act as a path.
  std::string folder = rule_name;
  std::replace(folder.begin(), folder.end(), '/', '_');
  if (folder.starts_with('.')) folder.front() = '_';
  const std::string directory = base::JoinPath(base::JoinPath(run, "rule-output"), folder);
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(directory));
  std::string path = base::JoinPath(directory, report.file_name);
  TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(path, report.text));
  return path;
}

}  // namespace tdbg::watch
