// An object store: a bucket, or a directory that behaves like one. One suite of tests checks both
// (tests/storage/test_conformance.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "storage/location.h"
#include "tdbg/status.h"

namespace tdbg::storage {

struct ObjectInfo {
  std::string key;  ///< the whole key, prefix included
  uint64_t bytes = 0;
  std::string etag;                 ///< identifies its bytes; differs after every change
  int64_t modified_wall_nanos = 0;  ///< by the store's clock, whole seconds
};

struct Object {
  ObjectInfo info;  ///< of the whole object
  std::string bytes;
  int64_t store_wall_nanos = 0;  ///< the store's clock when it answered; 0: it did not say
};

/// Bytes of an object. `bytes` 0: to its end.
struct Range {
  uint64_t offset = 0, bytes = 0;
};

/// Condition of a write. If it does not hold, the write fails with kAlreadyExists.
struct Condition {
  bool absent = false;   ///< there is no such object yet
  std::string matching;  ///< the object has this etag; empty: any
};

struct Level {
  std::vector<ObjectInfo> objects;
  std::vector<std::string> folders;
  bool more = false;  ///< there is more than was asked for
};

/// A call may take as long as all of its retries (StoreOptions). \threadsafety Any thread, all calls.
///
/// Errors: kNotFound  no such object; kInvalidArgument  no such bucket, a bad request; kFailedPrecondition
/// not allowed (credentials, policy, clock); kUnavailable  the store cannot be reached, or answers with
/// errors of its own, after all retries.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  /// Objects whose keys begin with `prefix`, by key in byte order. At most `most` of them, if not 0.
  virtual Result<std::vector<ObjectInfo>> List(const std::string& prefix, size_t most = 0) = 0;
  /// One level: objects directly below `prefix`, which is empty or ends in "/", and the names of what has
  /// more below it, without slashes. At most `most` of both.
  virtual Result<Level> ListLevel(const std::string& prefix, size_t most) = 0;
  virtual Result<ObjectInfo> Head(const std::string& key) = 0;
  /// The part of the range that the object has: all of it, or an error. If the range begins behind the
  /// object's end, the result is empty.
  virtual Result<Object> Get(const std::string& key, std::optional<Range> range = {}) = 0;
  /// Atomic: readers see the old object or the new one. \error kAlreadyExists  see Condition
  virtual Result<ObjectInfo> Put(const std::string& key, std::span<const std::byte> bytes,
                                 const Condition& condition = {}) = 0;
  /// Uploads a file's first `bytes` bytes; a long one in parts, several at a time. \error kDataLoss  the file
  /// became shorter meanwhile
  virtual Result<ObjectInfo> PutFile(const std::string& key, const std::string& path, uint64_t bytes) = 0;
  /// Makes an object longer that holds a file's first bytes: afterwards it holds its first `bytes` bytes.
  /// Sends only what it lacks where the store can do that, and the whole file otherwise. Atomic, as Put is.
  /// \param there  what was said of the object when it was put; if it is another one by now, it is replaced
  virtual Result<ObjectInfo> Lengthen(const ObjectInfo& there, const std::string& path, uint64_t bytes) = 0;
  /// Whether an object surely holds a file's first `bytes` bytes, told without fetching it.
  virtual bool Holds(const ObjectInfo& there, const std::string& path, uint64_t bytes) = 0;
  /// No error if there is no such object.
  virtual Status Delete(const std::string& key) = 0;
};

struct StoreOptions {
  int tries = 6;                     ///< of each request
  int64_t first_delay_millis = 100;  ///< doubled after each try; half of it is random
  int64_t longest_delay_millis = 8'000;
  int64_t connect_millis = 5'000;
  int64_t silent_millis = 20'000;  ///< a transfer slower than a byte a second for this long has failed
  uint64_t part_bytes = 8u << 20;  ///< least size of a part of a multipart upload; S3 wants 5 MiB at least
  int parts_at_once = 4;
};

/// Whether objects may be put below a prefix. Puts none: the write that is tried has a condition that does
/// not hold, and a store looks for the permission first. \error  as a Put's
Status CheckMayPut(ObjectStore& store, const Location& to);

/// Opens a store; finds credentials, region and endpoint as AWS's own tools do (docs/storage.md). Sends no
/// request.
/// \error kInvalidArgument  invalid settings; kFailedPrecondition  no credentials
Result<std::unique_ptr<ObjectStore>> OpenStore(const Location& location, const StoreOptions& options = {});

}  // namespace tdbg::storage
