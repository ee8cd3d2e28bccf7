// A directory of this machine as an object store: objects are files, keys are their paths.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "storage/object_store.h"

namespace tdbg::storage {

class DirectoryStore : public ObjectStore {
 public:
  /// \param root  keys are paths below it; empty: keys are absolute paths without their first slash
  explicit DirectoryStore(std::string root) : root_(std::move(root)) {}

  Result<std::vector<ObjectInfo>> List(const std::string& prefix, size_t most) override;
  Result<Level> ListLevel(const std::string& prefix, size_t most) override;
  Result<ObjectInfo> Head(const std::string& key) override;
  Result<Object> Get(const std::string& key, std::optional<Range> range) override;
  Result<ObjectInfo> Put(const std::string& key, std::span<const std::byte> bytes,
                         const Condition& condition) override;
  Result<ObjectInfo> PutFile(const std::string& key, const std::string& path, uint64_t bytes) override;
  bool Holds(const ObjectInfo&, const std::string&, uint64_t) override { return false; }
  /// Copies the file: nothing is sent anywhere.
  Result<ObjectInfo> Lengthen(const ObjectInfo& there, const std::string& path, uint64_t bytes) override {
    return PutFile(there.key, path, bytes);
  }
  Status Delete(const std::string& key) override;

 private:
  Result<std::string> PathOf(const std::string& key) const;
  /// `write` fills a file of another name, (descriptor, the path that it will have), which then takes the
  /// key's.
  Result<ObjectInfo> Place(const std::string& key, const Condition& condition,
                           const std::function<Status(int, const std::string&)>& write);
  const std::string root_;
};

}  // namespace tdbg::storage
