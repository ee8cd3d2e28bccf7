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

}  // namespace tdbg::storage
