#include "compat/smdebug/reader/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/file.h"

namespace tdbg::compat::smdebug {
namespace {

Signature SignatureFrom(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_ino), static_cast<uint64_t>(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Status LeadsOutside(const std::string& relative) {
  return InvalidArgument("leads out of the run's directory: " + relative);
}

// Where the kernel cannot be asked to stay below a directory: component by component, following no link at
// all.
int OpenStepwise(int directory, const std::string& relative, int flags) {
  base::UniqueFd at;
  int from = directory;
  for (size_t begin = 0;;) {
    const size_t slash = relative.find('/', begin);
    const std::string component = relative.substr(begin, slash - begin);
    if (component.empty() || component == "..") {
      errno = EXDEV;
      return -1;
    }
    if (slash == std::string::npos) return ::openat(from, component.c_str(), flags | O_NOFOLLOW);
    base::UniqueFd next(::openat(from, component.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.ok()) return -1;
    at = std::move(next);
    from = at.get();
    begin = slash + 1;
  }
}

}  // namespace

Result<Root> Root::Open(const std::string& path) {
  Root root;
  root.path_ = path;
  root.directory_.reset(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.directory_.ok()) return base::PathError(errno, "cannot open", path);
  return root;
}

Result<base::UniqueFd> Root::OpenBeneath(const std::string& relative, int flags) const {
  static std::atomic<bool> kernel_helps{true};
  int fd = -1;
  if (kernel_helps) {
    struct open_how how = {};
    how.flags = static_cast<uint64_t>(flags);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    fd = static_cast<int>(::syscall(SYS_openat2, directory_.get(), relative.c_str(), &how, sizeof(how)));
    // Old kernels do not know the call, and some sandboxes forbid it.
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) kernel_helps = false;
  }
  if (!kernel_helps) fd = OpenStepwise(directory_.get(), relative, flags);
  if (fd >= 0) return base::UniqueFd(fd);
  if (errno == EXDEV || errno == ELOOP) return LeadsOutside(relative);
  return base::PathError(errno, "cannot open", relative);
}

Result<OpenFile> Root::OpenRegular(const std::string& relative) const {
  OpenFile file;
  TDBG_ASSIGN_OR_RETURN(file.fd, OpenBeneath(relative, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (::fstat(file.fd.get(), &info) != 0) return base::PathError(errno, "cannot stat", relative);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("not a regular file: " + relative);
  file.signature = SignatureFrom(info);
  return file;
}

Result<Signature> Root::Read(const std::string& relative, size_t padding, std::vector<char>* buffer) const {
  TDBG_ASSIGN_OR_RETURN(const OpenFile file, OpenRegular(relative));
  if (file.signature.bytes > std::numeric_limits<uint32_t>::max()) {
    return DataLoss("larger than 4 GiB: " + relative);
  }
  const auto bytes = static_cast<size_t>(file.signature.bytes);
  buffer->resize(bytes + padding);
  TDBG_RETURN_IF_ERROR(ReadExactly(file.fd.get(), 0, bytes, reinterpret_cast<std::byte*>(buffer->data())));
  std::fill(buffer->begin() + static_cast<ptrdiff_t>(bytes), buffer->end(), '\0');
  return file.signature;
}

Result<std::vector<Root::Entry>> Root::List(const std::string& relative) const {
  auto fd = OpenBeneath(relative, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (!fd.ok() && fd.status().code() == Code::kNotFound) return std::vector<Entry>();
  TDBG_RETURN_IF_ERROR(fd.status());
  DIR* const directory = ::fdopendir(fd->get());
  if (directory == nullptr) return base::PathError(errno, "cannot list", relative);
  fd->release();
  std::vector<Entry> entries;
  while (const struct dirent* const entry = ::readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    bool is_directory = entry->d_type == DT_DIR;
    bool is_file = entry->d_type == DT_REG;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat info;
      if (::fstatat(::dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      is_directory = S_ISDIR(info.st_mode);
      is_file = S_ISREG(info.st_mode);
    }
    if (is_directory || is_file) entries.push_back({entry->d_name, is_directory});
  }
  ::closedir(directory);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

Signature Root::SignatureOf(const std::string& relative) const {
  struct stat info;
  if (::fstatat(directory_.get(), relative.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return SignatureFrom(info);
}

Status ReadExactly(int fd, uint64_t offset, size_t bytes, std::byte* out) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(fd, out + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read");
    if (got == 0) return DataLoss("the file ended while it was read");
    done += static_cast<size_t>(got);
  }
  return OkStatus();
}

}  // namespace tdbg::compat::smdebug
