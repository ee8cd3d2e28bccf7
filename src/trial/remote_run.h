// A run that lies in a bucket, as a directory of this machine: kept up to date and filled by a process of its
// own (`tdbg-store mirror`), so that nobody who reads a run has an HTTP library in his process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/filled_files.h"
#include "base/posix.h"
#include "base/process.h"
#include "tdbg/status.h"

namespace tdbg {

/// \threadsafety Any thread; one question at a time.
class RemoteRun : public base::Filler {
 public:
  /// Whether it names a run elsewhere: s3://, or a directory into which one was uploaded or that is a copy of
  /// such a prefix.
  static bool IsRemote(const std::string& path);
  /// Opens it, or finds it open in this process. \error kNotFound  no run there (yet); and what tdbg-store
  /// says
  static Result<std::shared_ptr<RemoteRun>> Open(const std::string& path);
  /// Of a directory that Open gave; null: of none.
  static std::shared_ptr<RemoteRun> Of(const std::string& directory);
  ~RemoteRun() override;

  /// The run's directory in the cache. Only to be read.
  const std::string& directory() const { return directory_; }
  const std::string& url() const { return url_; }
  /// Takes in what is new in the bucket; does nothing within a second of the last time, unless it is needed
  /// `now`.
  Status Refresh(bool now = false);
  /// From now on a folder of the run is in directory(), too, that no reader of its values needs: "logs".
  Status Include(const std::string& folder);
  Status Need(const std::string& path, uint64_t offset, uint64_t bytes) override;

 private:
  explicit RemoteRun(std::string url) : url_(std::move(url)) {}
  Status Start();
  Result<std::string> Ask(const std::string& question);
  Result<std::string> ReadAnswer();

  const std::string url_;
  std::string directory_;
  std::mutex mutex_;  ///< guards all below
  pid_t owner_ = 0;   ///< who started the process: a fork shares its pipes and must not
  std::unique_ptr<base::Child> process_;
  base::UniqueFd questions_, answers_;
  std::string unread_;
  int64_t refreshed_nanos_ = 0;
};

}  // namespace tdbg
