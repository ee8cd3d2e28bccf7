#include "store/writer/syncer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>

#include "base/catching.h"
#include "base/posix.h"

namespace tdbg::store {
namespace {

Status SyncFile(const std::string& path) {
  // A disk may take seconds: long enough for a script to close what is not its own.
  const base::LastingFd fd = base::LastingFd::Open(path.c_str(), O_RDONLY);
  if (!fd.ok()) return OkStatus();  // deleted meanwhile: nothing to keep
  const int error = ::fdatasync(fd.Unchecked()) != 0 ? errno : 0;
  const size_t slash = path.rfind('/');
  const base::LastingFd directory =
      base::LastingFd::Open(path.substr(0, slash + 1).c_str(), O_RDONLY | O_DIRECTORY);
  if (directory.ok()) (void)::fsync(directory.Unchecked());  // the name; not every file system can
  return error == 0 ? OkStatus() : base::PathError(error, "cannot sync", path);
}

}  // namespace

Syncer::Syncer(Handoff* handoff) : state_(std::make_shared<State>()) {
  state_->handoff = handoff;
  thread_ = std::thread([state = state_] { Run(state.get()); });
}

Syncer::~Syncer() { Finish(0); }

bool Syncer::Finish(int64_t timeout_nanos) {
  if (!thread_.joinable()) return true;
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  if (state_->changed.wait_for(lock, std::chrono::nanoseconds(timeout_nanos),
                               [this] { return state_->done; })) {
    lock.unlock();
    thread_.join();
    return true;
  }
  state_->handoff = nullptr;
  thread_.detach();
  return false;
}

void Syncer::Enqueue(std::string path) {
  const std::lock_guard guard(state_->mutex);
  Status queued = base::Catching([&] {
    state_->queue.push_back(std::move(path));
    return OkStatus();
  });
  // A segment that cannot be queued for want of memory is written by the kernel, some seconds later.
  if (!queued.ok()) state_->handoff->NoteError(std::move(queued));
  state_->changed.notify_all();
}

void Syncer::Run(State* state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [state] { return state->stop || !state->queue.empty(); });
    if (state->queue.empty()) break;
    const std::string path = std::move(state->queue.front());
    state->queue.pop_front();
    lock.unlock();
    Status synced = base::Catching([&] { return SyncFile(path); });
    lock.lock();
    if (!synced.ok() && state->handoff != nullptr) state->handoff->NoteError(std::move(synced));
  }
  state->done = true;
  state->changed.notify_all();
}

}  // namespace tdbg::store
