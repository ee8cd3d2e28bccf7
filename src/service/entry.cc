#include "service/entry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "service/container.h"
#include "service/helpers.h"
#include "service/private_root.h"
#include "service/requests.h"

namespace tdbg::service {
namespace {

namespace fs = std::filesystem;

// Into the training's log, which is where its user looks.
void Say(const std::string& line) { ::dprintf(STDOUT_FILENO, "%s\n", line.c_str()); }

bool Never() { return false; }

// A folder that the request names, as this machine spells it: without a slash at its end, which would make it
// another name than the one that a directory is listed with.
std::string FolderOf(const JobPaths& paths, const std::string& container_path) {
  std::string path = fs::path(container_path).lexically_normal();
  while (path.ends_with('/')) path.pop_back();
  return HostPath(paths, path);
}

// Of what a training made, links lead anywhere: they are removed, and never followed.
void RemoveAllBut(const std::string& directory, const std::set<std::string>& kept) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (auto it = fs::directory_iterator(directory, error); !error && it != fs::end(it); it.increment(error))
    entries.push_back(*it);
  for (const fs::directory_entry& entry : entries) {
    const std::string path = entry.path();
    if (kept.contains(path)) continue;
    const bool inside =
        std::ranges::any_of(kept, [&](const std::string& one) { return one.starts_with(path + "/"); });
    std::error_code ignored;
    if (!inside)
      fs::remove_all(path, ignored);
    else if (!entry.is_symlink(ignored))
      RemoveAllBut(path, kept);
  }
}

// Otherwise it is a command, or an algorithm, and what is in the code's folder was written there.
bool HasSentCode(const JobDocument& job) {
  return job.request.value("HyperParameters", Json::object()).contains("sagemaker_submit_directory");
}

// The code as it was sent: a script may have written beside itself. What buckets keep may lie there, too.
Status UnpackCodeAgain(const JobDocument& job, const JobPaths& paths,
                       const std::set<std::string>& in_buckets) {
  if (!HasSentCode(job)) return OkStatus();
  const Json parameters = job.request["HyperParameters"];
  const nlohmann::json uri = HyperParameter(parameters["sagemaker_submit_directory"].get<std::string>());
  if (!uri.is_string()) return OkStatus();
  const std::string sent =
      base::JoinPath(paths.directory, "source/" + base::BaseName(uri.get<std::string>()));
  const std::string fresh = base::JoinPath(paths.directory, "code"), code = paths.ml + "/code";
  std::error_code error;
  fs::remove_all(fresh, error);  // of an attempt that was killed here
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(fresh));
  TDBG_RETURN_IF_ERROR(Unpack(sent, fresh, Never));
  if (std::error_code ignored; fs::is_symlink(code, ignored))
    fs::remove(code, error);
  else if (!in_buckets.contains(code) && !in_buckets.contains(paths.ml))
    RemoveAllBut(code, in_buckets);
  // A checkpoint of the same name wins: at the job's start it came after the code as well.
  if (!error)
    fs::copy(fresh, code,
             fs::copy_options::recursive | fs::copy_options::skip_existing | fs::copy_options::copy_symlinks,
             error);
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  return error ? Unavailable(code + ": " + error.message()) : OkStatus();
}

}  // namespace

void KeepWhatIsSent(const std::string& directory) {
  std::error_code error;
  if (fs::is_symlink(directory, error)) return;  // where it leads to is somebody else's
  std::vector<fs::path> files, directories;
  for (auto it = fs::recursive_directory_iterator(directory, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code ignored;
    const fs::file_status status = it->symlink_status(ignored);
    if (fs::is_directory(status))
      directories.push_back(it->path());
    else if (!fs::is_regular_file(status) || it->path().string().ends_with(".tmp"))
      files.push_back(it->path());
  }
  for (const fs::path& file : files) fs::remove(file, error);
  // The innermost first. One with a file in it is not removed by this, which is what is wanted.
  std::ranges::sort(directories, std::greater<>());
  for (const fs::path& one : directories) fs::remove(one, error);
}

Status RenewDisk(const JobDocument& job, const JobPaths& paths, const std::string& root) {
  std::set<std::string> in_buckets;
  const Json& request = job.request;
  Status first;
  if (request.contains("CheckpointConfig")) {
    const Json& checkpoints = request["CheckpointConfig"];
    const std::string folder = FolderOf(paths, checkpoints.value("LocalPath", "/opt/ml/checkpoints"));
    in_buckets.insert(folder);
    // A machine that is taken away is told two minutes before. Fetching what has just been sent would bring
    // the same bytes back, so only what the bucket cannot have goes. Where it does not answer, nothing does.
    first = SendFolder(folder, checkpoints["S3Uri"], Never).Annotate("checkpoints");
    if (first.ok()) KeepWhatIsSent(folder);
  }
  if (request.contains("TensorBoardOutputConfig"))
    in_buckets.insert(
        FolderOf(paths, request["TensorBoardOutputConfig"].value("LocalPath", "/opt/ml/output/tensorboard")));
  std::set<std::string> kept = in_buckets;
  kept.insert(paths.ml + "/input");
  if (HasSentCode(job)) kept.insert(paths.ml + "/code");
  if (!kept.contains(paths.ml)) RemoveAllBut(paths.ml, kept);
  for (const Status& done : {UnpackCodeAgain(job, paths, in_buckets), LayOutContainer(job, paths, root)}) {
    if (first.ok()) first = done;
  }
  return first;
}

Status EnterContainer(const std::string& job_directory) {
  const JobPaths paths(job_directory);
  TDBG_ASSIGN_OR_RETURN(const Container container, ReadContainer(paths));
  const char* const attempt = ::getenv("TDBG_ATTEMPT");
  if (attempt != nullptr && base::ParseInt(attempt).value_or(0) > 0) {
    const auto job = ReadJob(job_directory);
    const Status renewed =
        job.ok() ? RenewDisk(*job, paths, container.private_root ? "/opt/ml" : paths.ml) : job.status();
    const std::string as = "as another machine would find it";
    Say(renewed.ok() ? "tdbg serve: /opt/ml is " + as
                     : "tdbg serve: /opt/ml is not all " + as + ": " + renewed.message());
  }
  if (container.private_root) TDBG_RETURN_IF_ERROR(MakeRootPrivate(container.ml));
  if (::chdir(container.directory.c_str()) != 0)
    return ErrnoStatus(errno, "cannot enter " + container.directory);
  ::unsetenv("TDBG_CONFIG");  // it was for `tdbg run`
  for (const auto& [name, value] : container.environment) {
    if (name != "PYTHONPATH") ::setenv(name.c_str(), value.c_str(), 1);
  }
  // Behind the folder that attaches, which is the first of what there is.
  std::string path;
  if (const char* const before = ::getenv("PYTHONPATH"); before != nullptr && *before)
    path = std::string(before) + ":";
  path += container.directory;
  if (const auto own = container.environment.find("PYTHONPATH"); own != container.environment.end())
    path += ":" + own->second;
  ::setenv("PYTHONPATH", path.c_str(), 1);
  if (!container.notice.empty()) Say(container.notice);
  std::vector<char*> words;
  for (const std::string& word : container.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return ErrnoStatus(errno, "cannot start " + container.command[0]);
}

}  // namespace tdbg::service
