#include "jobs/control_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/posix.h"
#include "base/text.h"
#include "format/run_files.h"

namespace tdbg::jobs {
namespace {

std::string ControlPath(const std::string& run_directory) {
  return base::JoinPath(run_directory, std::string(format::kControlFile));
}

std::string RandomId() {
  std::random_device device;
  return base::Hex64((static_cast<uint64_t>(device()) << 32) | device());
}

}  // namespace

Result<std::string> AppendControlRequest(const std::string& run_directory, const std::string& action,
                                         const std::string& by, const std::string& reason) {
  const std::string path = ControlPath(run_directory);
  base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.ok()) return base::PathError(errno, "cannot ask the run for '" + action + "'", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return base::PathError(errno, "cannot read the control file", path);
  if (static_cast<uint64_t>(info.st_size) < format::kControlPageBytes) {
    return DataLoss("the control file is shorter than its page: " + path);
  }
  const std::string id = RandomId();
  nlohmann::ordered_json line;
  line["id"] = id;
  line["action"] = action;
  line["by"] = by;
  if (!reason.empty()) line["reason"] = base::ToValidUtf8(reason);
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().AppendLine(path, line.dump()));

  // The number is raised after the line is there: whoever sees the number finds the line. Through a mapping,
  // because two who ask at once must both count, and the reader in the training process maps the same page.
  void* page = ::mmap(nullptr, format::kControlPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED) return base::PathError(errno, "cannot map the control file", path);
  auto* generation = reinterpret_cast<uint64_t*>(static_cast<char*>(page) + format::kControlGenerationOffset);
  std::atomic_ref<uint64_t>(*generation).fetch_add(1, std::memory_order_release);
  ::munmap(page, format::kControlPageBytes);
  return id;
}

ControlFollower::ControlFollower(std::string run_directory) : path_(ControlPath(run_directory)) {
  generation_ = Generation();
  struct stat info;
  lines_end_ = ::stat(path_.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

uint64_t ControlFollower::Generation() const {
  const base::UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  uint64_t generation = 0;
  if (!fd.ok() || ::pread(fd.get(), &generation, sizeof(generation), format::kControlGenerationOffset) !=
                      static_cast<ssize_t>(sizeof(generation))) {
    return generation_;
  }
  return generation;
}

std::string ControlFollower::NewStopRequest() {
  const uint64_t generation = Generation();
  if (generation == generation_) return {};
  generation_ = generation;
  const auto contents = base::LocalFileSystem().ReadFile(path_);
  if (!contents.ok() || contents->size() <= lines_end_) return {};
  const auto requests = format::DecodeControlLines(std::string_view(*contents).substr(lines_end_));
  lines_end_ = contents->size();
  if (!requests.ok()) return {};
  for (const format::ControlRequest& request : *requests) {
    if (request.action == "stop") return request.by.empty() ? "somebody" : request.by;
  }
  return {};
}

}  // namespace tdbg::jobs
