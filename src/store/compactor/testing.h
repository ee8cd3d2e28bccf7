// For tests: a disk on which a compactor is killed.
#pragma once

#include <unistd.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/forwarding_file_system.h"

namespace tdbg::store {

/// Dies at its n-th change of anything on disk, as by SIGKILL.
class MortalFileSystem : public base::ForwardingFileSystem {
 public:
  explicit MortalFileSystem(int lives) : ForwardingFileSystem(&base::LocalFileSystem()), lives_(lives) {}
  Status Remove(const std::string& path) override {
    Live();
    return ForwardingFileSystem::Remove(path);
  }
  Status CreateDirectories(const std::string& path) override {
    Live();
    return ForwardingFileSystem::CreateDirectories(path);
  }
  Result<std::unique_ptr<base::FileLock>> Lock(const std::string& path) override {
    Live();
    return ForwardingFileSystem::Lock(path);
  }
  Result<std::unique_ptr<base::PendingFile>> CreatePending(const std::string& path) override {
    Live();
    TDBG_ASSIGN_OR_RETURN(auto file, ForwardingFileSystem::CreatePending(path));
    return std::unique_ptr<base::PendingFile>(new Mortal(this, std::move(file)));
  }

 private:
  class Mortal : public base::PendingFile {
   public:
    Mortal(MortalFileSystem* of, std::unique_ptr<base::PendingFile> file) : of_(of), file_(std::move(file)) {}
    Status Write(std::span<const std::byte> bytes) override {
      // In the middle of it, too.
      TDBG_RETURN_IF_ERROR(file_->Write(bytes.first(bytes.size() / 2)));
      of_->Live();
      return file_->Write(bytes.subspan(bytes.size() / 2));
    }
    Status Publish(const std::string& path, bool durable) override {
      of_->Live();
      TDBG_RETURN_IF_ERROR(file_->Publish(path, durable));
      of_->Live();
      return OkStatus();
    }

   private:
    MortalFileSystem* of_;
    std::unique_ptr<base::PendingFile> file_;
  };
  void Live() {
    if (lives_-- == 0) ::_exit(9);
  }
  int lives_;
};

}  // namespace tdbg::store
