#include "store/writer/syncer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/catching.h"
#include "base/posix.h"

namespace tdbg::store {
namespace {

Status SyncFile(const std::string& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return OkStatus();  // deleted meanwhile: nothing to keep
  const int error = ::fdatasync(fd.get()) != 0 ? errno : 0;
  const size_t slash = path.rfind('/');
  const base::UniqueFd directory(
      ::open(path.substr(0, slash + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.ok()) (void)::fsync(directory.get());  // the name; not every file system can
  return error == 0 ? OkStatus() : base::PathError(error, "cannot sync", path);
}

}  // namespace

Syncer::Syncer(Handoff* handoff) : handoff_(handoff), thread_([this] { Run(); }) {}

Syncer::~Syncer() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Syncer::Enqueue(std::string path) {
  Status queued = base::Catching([&] {
    const std::lock_guard guard(mutex_);
    queue_.push_back(std::move(path));
    return OkStatus();
  });
  if (!queued.ok())
    handoff_->NoteError(std::move(queued));  // it is the kernel's to write, some seconds later
  changed_.notify_one();
}

void Syncer::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::string path = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Status synced = base::Catching([&] { return SyncFile(path); });
    if (!synced.ok()) handoff_->NoteError(std::move(synced));
    lock.lock();
  }
}

}  // namespace tdbg::store
