#include "storage/directory_store.h"
#include "storage/object_store.h"
#include "storage/s3/s3_store.h"

namespace tdbg::storage {

Result<std::unique_ptr<ObjectStore>> OpenStore(const Location& location, const StoreOptions& options) {
  if (!location.s3) return std::unique_ptr<ObjectStore>(std::make_unique<DirectoryStore>(""));
  TDBG_ASSIGN_OR_RETURN(std::unique_ptr<S3Store> store,
                        S3Store::Open(location.bucket, options, ProcessEnvironment));
  return std::unique_ptr<ObjectStore>(std::move(store));
}

Status CheckMayPut(ObjectStore& store, const Location& to) {
  const std::string key = KeyBelow(to.KeyPrefix(), ".tdbg-probe");
  constexpr std::string_view kText = "may anything be put here?";
  const auto put = store.Put(key, std::as_bytes(std::span(kText)), Condition{.matching = "\"0\""});
  // A store that knows no conditions has taken it.
  if (put.ok()) return store.Delete(key);
  const bool refused = put.status().code() == Code::kAlreadyExists || put.status().code() == Code::kNotFound;
  return refused ? OkStatus() : put.status();
}

}  // namespace tdbg::storage
