#include "actions/control_request.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/posix.h"
#include "format/run_files.h"
#include "format/version.h"

namespace tdbg::actions {
namespace {

std::string RandomId() {
  std::random_device device;
  return base::Hex64((static_cast<uint64_t>(device()) << 32) | device());
}

// Made whole under another name and linked: whoever finds "control" finds a page in it, and of two creators
// one wins and the other uses the winner's.
Status CreateIfMissing(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return OkStatus();
  const std::string temporary = path + "." + RandomId();
  base::UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                           base::FileModeIn(path.substr(0, path.rfind('/')))));
  if (!fd.ok()) return base::PathError(errno, "cannot create the control file", path);
  const std::string page = format::EncodeControlPage();
  int error = base::WriteFully(fd.get(), std::as_bytes(std::span(page)));
  if (error == 0 && ::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    error = errno;
    // File systems without hard links (some FUSE, exFAT): a rename can lose a request made in this instant by
    // somebody else, which is still better than no way to stop.
    if ((error == EPERM || error == ENOTSUP || error == ENOSYS) &&
        ::rename(temporary.c_str(), path.c_str()) == 0)
      error = 0;
  }
  ::unlink(temporary.c_str());
  return error == 0 ? OkStatus() : base::PathError(error, "cannot create the control file", path);
}

// The line first, the generation after it: a reader that sees the new number finds the request.
Status RaiseGeneration(const std::string& path) {
  base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.ok()) return base::PathError(errno, "cannot open the control file", path);
  void* const page =
      ::mmap(nullptr, format::kControlPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED) return base::PathError(errno, "cannot map the control file", path);
  auto* const word = reinterpret_cast<uint64_t*>(static_cast<char*>(page) + format::kControlGenerationOffset);
  std::atomic_ref<uint64_t>(*word).fetch_add(1, std::memory_order_release);
  ::munmap(page, format::kControlPageBytes);
  return OkStatus();
}

Status CheckPage(const std::string& path) {
  base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok() && errno == ELOOP)
    return FailedPrecondition("the control file is a symbolic link, and nothing is written through it: " +
                              path);
  if (!fd.ok()) return base::PathError(errno, "cannot open the control file", path);
  char magic[sizeof(format::kControlMagic)] = {};
  struct stat info;
  const bool whole = ::fstat(fd.get(), &info) == 0 &&
                     static_cast<uint64_t>(info.st_size) >= format::kControlPageBytes &&
                     ::pread(fd.get(), magic, sizeof(magic), 0) == sizeof(magic);
  if (!whole || std::memcmp(magic, format::kControlMagic, sizeof(magic)) != 0) {
    return DataLoss("not a control file: " + path);
  }
  return OkStatus();
}

Result<std::string> Request(const std::string& run, nlohmann::json line, const std::string& by,
                            int64_t at_step) {
  if (!base::LocalFileSystem().Exists(run)) return NotFound("no such run: " + run);
  const std::string path = base::JoinPath(run, format::kControlFile);
  TDBG_RETURN_IF_ERROR(CreateIfMissing(path));
  TDBG_RETURN_IF_ERROR(CheckPage(path));
  const std::string id = RandomId();
  line["id"] = id;
  line["by"] = by;
  if (at_step >= 0) line["at_step"] = at_step;
  TDBG_RETURN_IF_ERROR(
      base::FilesBelow(base::LocalFileSystem(), run)
          .AppendLine(path, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  TDBG_RETURN_IF_ERROR(RaiseGeneration(path));
  return id;
}

}  // namespace

Status RequestStop(const std::string& run, const std::string& by, int64_t at_step) {
  return Request(run, {{"action", "stop"}}, by, at_step).status();
}

Status RequestInterrupt(const std::string& run, const std::string& by, int64_t notice_seconds, bool wipe) {
  nlohmann::json line = {{"action", "interrupt"}};
  if (wipe) line["wipe"] = true;
  if (notice_seconds >= 0) line["notice_seconds"] = notice_seconds;
  return Request(run, std::move(line), by, -1).status();
}

Status RequestCapture(const std::string& run, const std::string& by, int64_t at_step,
                      const std::vector<std::string>& collections, int64_t steps, bool raw) {
  return Request(run, {{"action", "capture"}, {"collections", collections}, {"steps", steps}, {"raw", raw}},
                 by, at_step)
      .status();
}

Status RequestPause(const std::string& run, const std::string& by, int64_t at_step, int64_t seconds,
                    const std::string& because) {
  return Request(run,
                 {{"action", "pause"},
                  {"seconds", seconds},
                  {"because", because},
                  {"wall_nanos", base::SystemClock().WallNanos()}},
                 by, at_step)
      .status();
}

Status RequestContinue(const std::string& run, const std::string& by) {
  return Request(run, {{"action", "continue"}}, by, -1).status();
}

Status RequestBlackBox(const std::string& run, const std::string& by, int64_t at_step,
                       const std::string& because) {
  return Request(run, {{"action", "blackbox"}, {"because", because}}, by, at_step).status();
}

Result<std::string> RequestBreak(const std::string& run, const std::string& by, const std::string& condition,
                                 const std::string& then, int64_t of_attempt, int64_t after_step) {
  return Request(run,
                 {{"action", "break"},
                  {"condition", condition},
                  {"then", then},
                  {"of_attempt", of_attempt},
                  {"after_step", after_step}},
                 by, -1);
}

Status RequestRemoveBreak(const std::string& run, const std::string& by, const std::string& id) {
  return Request(run, {{"action", "remove_break"}, {"break", id}}, by, -1).status();
}

Result<std::string> RequestCheckpoint(const std::string& run, const std::string& by, int64_t at_step) {
  return Request(run, {{"action", "checkpoint"}}, by, at_step);
}

}  // namespace tdbg::actions
