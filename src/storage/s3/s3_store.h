// A bucket, by S3's REST interface: signed requests, retried with jitter.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "storage/object_store.h"
#include "storage/s3/credentials.h"
#include "storage/s3/http.h"
#include "storage/s3/xml.h"

namespace tdbg::storage {

class S3Store : public ObjectStore {
 public:
  /// Reads the settings; sends no request. \error kInvalidArgument
  static Result<std::unique_ptr<S3Store>> Open(const std::string& bucket, const StoreOptions& options,
                                               const Environment& environment);

  Result<std::vector<ObjectInfo>> List(const std::string& prefix, size_t most) override;
  Result<Level> ListLevel(const std::string& prefix, size_t most) override;
  Result<ObjectInfo> Head(const std::string& key) override;
  Result<Object> Get(const std::string& key, std::optional<Range> range) override;
  Result<ObjectInfo> Put(const std::string& key, std::span<const std::byte> bytes,
                         const Condition& condition) override;
  Result<ObjectInfo> PutFile(const std::string& key, const std::string& path, uint64_t bytes) override;
  bool Holds(const ObjectInfo& there, const std::string& path, uint64_t bytes) override;
  Result<ObjectInfo> Lengthen(const ObjectInfo& there, const std::string& path, uint64_t bytes) override;
  Status Delete(const std::string& key) override;

 private:
  struct Call {
    std::string method, key;
    Pairs query, headers;
    std::span<const std::byte> body = {};
    uint64_t most_bytes = 16u << 20;
    /// Whether an answer of status 200 really is a success: S3 may report an error in its body. If not,
    /// retried.
    std::function<bool(const HttpAnswer&)> complete = {};
  };
  S3Store(std::string bucket, StoreOptions options, Settings settings, const Environment& environment);
  Result<ListPage> ListOnePage(const std::string& prefix, size_t most, const std::string& token,
                               const std::string& delimiter);
  /// An answer of status 2xx, or the last try's error.
  Result<HttpAnswer> Perform(const Call& call);
  Result<HttpAnswer> Try(const Call& call);
  Status ErrorOf(const Call& call, const HttpAnswer& answer) const;
  static std::string PermissionFor(const Call& call);  ///< as a policy names it
  ObjectInfo InfoOf(const std::string& key, const HttpAnswer& answer, uint64_t bytes) const;
  /// A part of a multipart upload: bytes of a file, or of the object that is there.
  struct Part {
    uint64_t begin = 0, bytes = 0;
    bool copied = false;
  };
  /// The file's first `bytes` bytes as the object `key`, from these parts.
  Result<ObjectInfo> PutInParts(const std::string& key, const std::string& path, uint64_t bytes,
                                const std::vector<Part>& parts, const ObjectInfo* there);
  Result<std::string> PutPart(const std::string& key, const std::string& path, const std::string& upload,
                              size_t number, const Part& part, const ObjectInfo* there);
  Result<std::string> BeginParts(const std::string& key);
  Result<ObjectInfo> CompleteParts(const std::string& key, uint64_t bytes, const std::string& upload,
                                   const std::vector<std::string>& etags);
  std::vector<Part> PartsOf(uint64_t begin, uint64_t end) const;

  const std::string bucket_;
  const StoreOptions options_;
  const Settings settings_;
  HttpClient http_;
  CredentialSource credentials_;
  /// The store's clock minus ours; known once the store has refused a request because of our clock.
  std::atomic<int64_t> clock_offset_nanos_{0};
  /// Whether the store says that it has these bytes, as far as its answer to a PUT says anything of them.
  bool Received(const Call& call, const HttpAnswer& answer);

  std::atomic<bool> etags_are_md5_{true};  ///< nothing was found yet whose ETag is not
  std::atomic<bool> copies_{true};         ///< the store has not refused yet to copy a part of an object
};

}  // namespace tdbg::storage
