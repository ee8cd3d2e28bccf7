#include "jobs/control_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/durations.h"
#include "base/file.h"
#include "base/posix.h"
#include "format/json_fields.h"
#include "format/run_files.h"

namespace tdbg::jobs {
namespace {

std::string ControlPath(const std::string& run_directory) {
  return base::JoinPath(run_directory, std::string(format::kControlFile));
}

}  // namespace

ControlFollower::ControlFollower(std::string run_directory) : path_(ControlPath(run_directory)) {
  generation_ = Generation();
  struct stat info;
  lines_end_ = ::stat(path_.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

uint64_t ControlFollower::Generation() const {
  const base::UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  uint64_t generation = 0;
  if (!fd.ok() || ::pread(fd.get(), &generation, sizeof(generation), format::kControlGenerationOffset) !=
                      static_cast<ssize_t>(sizeof(generation))) {
    return generation_;
  }
  return generation;
}

std::optional<ControlFollower::Request> ControlFollower::NewRequest() {
  const uint64_t generation = Generation();
  if (generation == generation_) return std::nullopt;
  generation_ = generation;
  const auto contents = base::LocalFileSystem().ReadFile(path_);
  if (!contents.ok() || contents->size() <= lines_end_) return std::nullopt;
  const auto requests = format::DecodeControlLines(std::string_view(*contents).substr(lines_end_));
  lines_end_ = contents->size();
  if (!requests.ok()) return std::nullopt;
  std::optional<Request> first;
  for (const format::ControlRequest& request : *requests) {
    Request found;
    found.interrupt = request.action == "interrupt";
    if (!found.interrupt && request.action != "stop") continue;
    found.by = request.by.empty() ? "somebody" : request.by;
    int64_t seconds = -1;
    if (const auto json = format::ParseJsonObject(request.json, "request"); json.ok()) {
      if (format::GetField(*json, "notice_seconds", &seconds) && seconds >= 0)
        found.notice_millis = base::MillisOfSeconds(seconds);
      format::GetField(*json, "wipe", &found.wipe);
    }
    if (!found.interrupt) return found;
    if (!first) first = found;
  }
  return first;
}

}  // namespace tdbg::jobs
