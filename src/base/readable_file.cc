#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/local_files.h"
#include "base/posix.h"

namespace tdbg::base {
namespace {

class LocalReadable : public ReadableFile {
 public:
  LocalReadable(LastingFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<size_t> ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    // An offset out of a damaged file may be anything; pread would call a negative one EINVAL.
    if (offset > static_cast<uint64_t>(INT64_MAX)) return size_t{0};
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t got =
          ::pread(fd_.Unchecked(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return PathError(errno, "cannot read", path_);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  Result<uint64_t> Size() const override {
    struct stat info;
    if (::fstat(fd_.Unchecked(), &info) != 0) return PathError(errno, "cannot stat", path_);
    return static_cast<uint64_t>(info.st_size);
  }
  bool StillOpen() const override { return fd_.Mine(); }

 private:
  const LastingFd fd_;
  const std::string path_;
};

}  // namespace

Result<std::unique_ptr<ReadableFile>> OpenLocalReadable(const std::string& path) {
  // O_NONBLOCK: somebody's run directory may hold a pipe where a segment should be, and open would wait for
  // its writer for ever.
  LastingFd fd = LastingFd::Open(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) return PathError(errno, "cannot open", path);
  struct stat info;
  if (::fstat(fd.Unchecked(), &info) != 0) return PathError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("not a regular file: " + path);
  return std::unique_ptr<ReadableFile>(new LocalReadable(std::move(fd), path));
}

}  // namespace tdbg::base
