// A file system that is another one but for what a subclass overrides.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tdbg::base {

class ForwardingFileSystem : public FileSystem {
 public:
  /// Borrows it for life.
  explicit ForwardingFileSystem(FileSystem* next) : next_(next) {}

  Status CreateDirectories(const std::string& path) override { return next_->CreateDirectories(path); }
  Result<std::vector<DirEntry>> List(const std::string& path) override { return next_->List(path); }
  bool Exists(const std::string& path) override { return next_->Exists(path); }
  Result<std::string> ReadFile(const std::string& path, uint64_t max) override {
    return next_->ReadFile(path, max);
  }
  Status WriteFileAtomic(const std::string& path, std::string_view text) override {
    return next_->WriteFileAtomic(path, text);
  }
  Status AppendLine(const std::string& path, std::string_view line) override {
    return next_->AppendLine(path, line);
  }
  Result<std::unique_ptr<ReadableFile>> OpenReadable(const std::string& path) override {
    return next_->OpenReadable(path);
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override { return next_->Lock(path); }
  bool IsLocked(const std::string& path) override { return next_->IsLocked(path); }
  Status Remove(const std::string& path) override { return next_->Remove(path); }
  Result<uint64_t> FreeBytes(const std::string& path) override { return next_->FreeBytes(path); }

  Result<std::unique_ptr<PendingFile>> CreatePending(const std::string& path) override {
    return next_->CreatePending(path);
  }
  Result<std::unique_ptr<MappedFile>> CreateMapped(const std::string& path, uint64_t bytes) override {
    return next_->CreateMapped(path, bytes);
  }

 private:
  FileSystem* const next_;
};

}  // namespace tdbg::base
