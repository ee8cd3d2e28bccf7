#include "ship/output.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace tdbg::ship {
namespace {

namespace fs = std::filesystem;

Status AlreadyExists(std::string message) { return Status(Code::kAlreadyExists, std::move(message)); }

fs::path WithoutTrailingSlash(const std::string& path) {
  const fs::path given(path);
  return given.has_filename() || !given.has_parent_path() ? given : given.parent_path();
}

}  // namespace

std::string TemporaryPathBeside(const std::string& path) {
  const fs::path whole = WithoutTrailingSlash(path);
  return (whole.parent_path() / fmt::format(".{}.{}.tmp", whole.filename().string(), ::getpid())).string();
}

Result<OutputDirectory> OutputDirectory::Create(const std::string& path, bool force, const IsOurs& is_ours) {
  const fs::path target = WithoutTrailingSlash(path);
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) {
      return AlreadyExists(path + " is a file; name a directory that does not exist yet");
    }
    for (fs::recursive_directory_iterator it(target, error), end; !error && it != end; it.increment(error)) {
      const bool is_link = it->is_symlink(error);
      if (!is_link && it->is_directory(error)) continue;
      if (!force) {
        return AlreadyExists(path +
                             " is there and not empty; choose another place, or --force to replace it");
      }
      const std::string inside = it->path().lexically_relative(target).string();
      if (is_link || !it->is_regular_file(error) || !is_ours(target.string(), inside)) {
        return AlreadyExists(
            fmt::format("{} holds {}, which is not known to be of an earlier export of this "
                        "kind and is not replaced; choose another place, or remove it",
                        path, inside));
      }
    }
    if (error) return base::PathError(error.value(), "cannot look into", path);
  }
  std::string temporary = TemporaryPathBeside(path);
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) return base::PathError(error.value(), "cannot create the directory", temporary);
  return OutputDirectory(target.string(), std::move(temporary));
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Status OutputDirectory::Commit() {
  std::error_code error;
  const std::string old = temporary_ + ".old";
  const bool replaces = fs::exists(path_, error);
  if (replaces) {
    fs::rename(path_, old, error);
    if (error) return base::PathError(error.value(), "cannot replace", path_);
  }
  fs::rename(temporary_, path_, error);
  if (error) {
    std::error_code ignored;
    if (replaces) fs::rename(old, path_, ignored);
    return base::PathError(error.value(), "cannot publish", path_);
  }
  temporary_.clear();
  if (replaces) fs::remove_all(old, error);
  return OkStatus();
}

std::string HeadOf(const std::string& path, size_t bytes) {
  const auto file = base::LocalFileSystem().OpenReadable(path);
  if (!file.ok()) return {};
  std::string head(bytes, '\0');
  const auto read = (*file)->ReadAt(0, std::as_writable_bytes(std::span(head)));
  head.resize(read.ok() ? *read : 0);
  return head;
}

Status CheckOutputFile(const std::string& path, bool force, const IsOurFile& is_ours) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return AlreadyExists(path + " is a directory; name a file");
  if (fs::exists(status) && !force) {
    return AlreadyExists(path + " is there; choose another name, or --force to replace it");
  }
  if (fs::exists(status) &&
      (!fs::is_regular_file(status) || (fs::file_size(path, error) != 0 && !is_ours(path)))) {
    return AlreadyExists(path +
                         " is not known to be an earlier export of this kind and is not replaced; choose "
                         "another name, or remove it");
  }
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    return NotFound("there is no directory " + folder.string() + " to write " + path +
                    " into; make it first");
  }
  return OkStatus();
}

Result<OutputFile> OutputFile::Create(const std::string& path, bool force, const IsOurFile& is_ours) {
  TDBG_RETURN_IF_ERROR(CheckOutputFile(path, force, is_ours));
  std::string temporary = TemporaryPathBeside(path);
  base::UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd.ok()) return base::PathError(errno, "cannot create", temporary);
  return OutputFile(path, std::move(temporary), std::move(fd));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)),
      fd_(std::move(other.fd_)),
      bytes_(other.bytes_) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (bytes.size() < kBufferBytes) {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return buffer_.size() < kBufferBytes ? OkStatus() : Flush();
  }
  TDBG_RETURN_IF_ERROR(Flush());
  if (const int error = base::WriteFully(fd_.get(), bytes))
    return base::PathError(error, "cannot write", path_);
  return OkStatus();
}

Status OutputFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  TDBG_RETURN_IF_ERROR(Flush());
  if (::lseek(fd_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    return base::PathError(errno, "cannot write", path_);
  }
  if (const int error = base::WriteFully(fd_.get(), bytes))
    return base::PathError(error, "cannot write", path_);
  if (::lseek(fd_.get(), 0, SEEK_END) < 0) return base::PathError(errno, "cannot write", path_);
  return OkStatus();
}

Status OutputFile::Flush() {
  if (const int error = base::WriteFully(fd_.get(), std::as_bytes(std::span(buffer_)))) {
    return base::PathError(error, "cannot write", path_);
  }
  buffer_.clear();
  return OkStatus();
}

Status OutputFile::Commit() {
  TDBG_RETURN_IF_ERROR(Flush());
  // Where writes are buffered elsewhere (NFS, quotas), close is the last chance to hear that one failed.
  if (::close(fd_.release()) != 0 && errno != EINTR) return base::PathError(errno, "cannot close", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return base::PathError(errno, "cannot publish", path_);
  temporary_.clear();
  return OkStatus();
}

}  // namespace tdbg::ship
