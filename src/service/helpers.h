// The programs beside ours that move a job's files: tdbg-store for buckets, Python's tarfile for archives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/posix.h"
#include "base/process.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// Runs a program to its end. \param stopped  asked again and again: true ends it
/// \error kUnavailable  it failed; the message is the last line that it wrote
Status RunHelper(const std::vector<std::string>& command, const std::function<bool()>& stopped,
                 const std::map<std::string, std::string>& environment = {});

/// Whether objects may be put below an s3 URI, none of which are. \error  there is no such bucket, we may not
Status MayPut(const std::string& uri, const std::function<bool()>& stopped);
/// Objects below an s3 URI, into a directory. \error kNotFound  there are none
Status Fetch(const std::string& uri, const std::string& directory, const std::function<bool()>& stopped);
/// A file's bytes become an object.
Status Send(const std::string& file, const std::string& uri, const std::function<bool()>& stopped);
/// A directory's files become objects below an s3 URI.
Status SendFolder(const std::string& directory, const std::string& uri, const std::function<bool()>& stopped);
/// A tar archive of a stranger's into a directory: files and directories, and nothing that leads out of it.
Status Unpack(const std::string& archive, const std::string& directory, const std::function<bool()>& stopped);
/// A zip, as base64 in a file, likewise.
Status UnpackZip(const std::string& base64_file, const std::string& directory);
/// A directory as .tar.gz.
Status Pack(const std::string& directory, const std::string& archive, const std::function<bool()>& stopped);

/// A job's own environment: all that `python`'s has, and what code/requirements.txt asks for besides.
/// \param index  as Images::package_index  \param variables  pip's  \error kUnavailable  pip's last words
Status InstallRequirements(const std::string& python, const std::string& code, const std::string& environment,
                           const std::string& index, std::map<std::string, std::string> variables,
                           const std::function<bool()>& stopped);

/// The command that keeps a prefix as a directory is, for Beside.
std::vector<std::string> SendCommand(const std::string& directory, const std::string& uri, bool deletes);

/// A program of ours that works beside a job until its standard input ends, and then finishes.
class Beside {
 public:
  Beside() = default;
  ~Beside();
  Beside(const Beside&) = delete;
  /// \param environment  asked at each start for what it has besides ours; may be empty
  Status Start(std::vector<std::string> command,
               std::function<std::map<std::string, std::string>()> environment = {});
  bool started() const { return child_ != nullptr; }
  /// Starts it again where somebody has killed it.
  void Look();
  /// \error  what it could not finish: the last line that it wrote to standard error, which goes to ours, too
  Status Finish(int64_t grace_millis);

 private:
  Status Spawn();

  std::vector<std::string> command_;
  std::function<std::map<std::string, std::string>()> environment_;
  base::UniqueFd said_;
  std::unique_ptr<base::Child> child_;
  int input_ = -1;
};

}  // namespace tdbg::service
