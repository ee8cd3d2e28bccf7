#include "store/writer/locked_files.h"

namespace tdbg::store {
namespace {

class Pending final : public base::PendingFile {
 public:
  Pending(std::unique_ptr<base::PendingFile> file, const base::FileLock* lock)
      : file_(std::move(file)), lock_(lock) {}
  Status Write(std::span<const std::byte> bytes) override { return file_->Write(bytes); }
  // Again: writing a segment takes up to seconds.
  Status Publish(const std::string& path, bool durable) override {
    TDBG_RETURN_IF_ERROR(lock_->CheckInPlace());
    return file_->Publish(path, durable);
  }

 private:
  const std::unique_ptr<base::PendingFile> file_;
  const base::FileLock* const lock_;
};

}  // namespace

Result<std::unique_ptr<base::PendingFile>> LockedFiles::CreatePending(const std::string& temporary_path) {
  // Before the first byte, too: the name may be that of a file which the other one is writing.
  TDBG_RETURN_IF_ERROR(lock_->CheckInPlace());
  TDBG_ASSIGN_OR_RETURN(auto file, ForwardingFileSystem::CreatePending(temporary_path));
  return std::unique_ptr<base::PendingFile>(new Pending(std::move(file), lock_));
}

Status LockedFiles::WriteFileAtomic(const std::string& path, std::string_view contents) {
  TDBG_RETURN_IF_ERROR(lock_->CheckInPlace());
  return ForwardingFileSystem::WriteFileAtomic(path, contents);
}

}  // namespace tdbg::store
