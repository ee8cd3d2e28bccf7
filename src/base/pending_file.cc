#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/local_files.h"
#include "base/posix.h"

namespace tdbg::base {
namespace {

class LocalPending : public PendingFile {
 public:
  LocalPending(LastingFd fd, Ground ground, std::string path)
      : fd_(std::move(fd)), ground_(std::move(ground)), path_(std::move(path)) {}
  ~LocalPending() override {
    if (published_) return;
    if (const auto spot = ground_.Find(path_); spot.ok()) ::unlinkat(spot->at(), spot->name.c_str(), 0);
  }

  Status Write(std::span<const std::byte> bytes) override {
    if (!fd_.ok()) return FailedPrecondition("written to after Publish: " + path_);
    // Looked at each time: a segment takes seconds to write, and a script closes what it likes meanwhile.
    if (const int error = WriteFully(fd_.Get(), bytes)) return PathError(error, "cannot write", path_);
    return OkStatus();
  }

  Status Publish(const std::string& path, bool durable) override {
    if (!fd_.ok()) return FailedPrecondition("published twice: " + path_);
    if (durable && ::fdatasync(fd_.Unchecked()) != 0) return PathError(errno, "cannot sync", path_);
    // Where writes are buffered elsewhere (NFS, quotas), close is the last chance to hear that one failed.
    if (const int error = fd_.Close()) return PathError(error, "cannot close", path_);
    TDBG_ASSIGN_OR_RETURN(const Spot from, ground_.Find(path_));
    TDBG_ASSIGN_OR_RETURN(const Spot to, ground_.Find(path));
    if (::renameat(from.at(), from.name.c_str(), to.at(), to.name.c_str()) != 0)
      return PathError(errno, "cannot publish", path);
    published_ = true;
    if (durable) SyncDirectoryOf(path);
    return OkStatus();
  }

 private:
  // The name itself survives a power cut only once its directory is synced. Not every file system can, and
  // the file is complete either way, so a refusal is no error.
  static void SyncDirectoryOf(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const UniqueFd fd = OpenFd(directory.c_str(), O_RDONLY | O_DIRECTORY);
    if (fd.ok()) (void)::fsync(fd.get());
  }

  LastingFd fd_;
  const Ground ground_;
  const std::string path_;
  bool published_ = false;
};

}  // namespace

Result<std::unique_ptr<PendingFile>> CreateLocalPending(const Ground& ground,
                                                        const std::string& temporary_path) {
  // A file of this name was left by a writer that was killed before it published it: nobody else has it open.
  TDBG_ASSIGN_OR_RETURN(const Spot spot, ground.Find(temporary_path));
  TDBG_ASSIGN_OR_RETURN(LastingFd fd,
                        OpenLastingAt(spot, O_WRONLY | O_CREAT | O_TRUNC, "cannot create", temporary_path));
  return std::unique_ptr<PendingFile>(new LocalPending(std::move(fd), ground, temporary_path));
}

}  // namespace tdbg::base
