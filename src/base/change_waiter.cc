#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"

namespace tdbg::base {
namespace {

constexpr int kPollMillis = 200;

// IN_ATTRIB tells that a watched file was replaced by rename while somebody still holds the old one open: its
// link count fell, and nothing else would be reported.
constexpr uint32_t kFileEvents = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr uint32_t kDirectoryEvents = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr uint32_t kMayBeReplaced = IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED;

struct Signature {
  bool exists = false;
  bool is_directory = false;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_nanos = 0;
  bool operator==(const Signature&) const = default;
};

Signature SignatureOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  return {true, S_ISDIR(info.st_mode), static_cast<uint64_t>(info.st_ino), static_cast<int64_t>(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// On these file systems inotify accepts a watch and then never reports what other hosts write.
bool ChangesElsewhere(const std::string& path) {
  struct statfs info;
  if (::statfs(path.c_str(), &info) != 0) return false;
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0x6969u:      // NFS
    case 0x517Bu:      // SMB
    case 0xFF534D42u:  // CIFS
    case 0xFE534D42u:  // SMB2
    case 0x65735546u:  // FUSE
    case 0x01021997u:  // 9p
    case 0x0BD00BD0u:  // Lustre
    case 0x47504653u:  // GPFS
    case 0x00C36400u:  // Ceph
    case 0x19830326u:  // BeeGFS
      return true;
    default:
      return false;
  }
}

}  // namespace

struct ChangeWaiter::Impl {
  struct Watched {
    int descriptor = -1;  ///< of inotify; -1: polled
    Signature seen;       ///< kept for polled ones
  };
  UniqueFd inotify{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
  UniqueFd doorbell{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::atomic<bool> woken{false};  // for Wake where eventfd could not be had (no descriptors left)
  std::map<std::string, Watched> paths;

  bool AnyPolled() const {
    return std::any_of(paths.begin(), paths.end(),
                       [](const auto& entry) { return entry.second.descriptor < 0; });
  }

  bool IsWatched(int descriptor) const {
    return std::any_of(paths.begin(), paths.end(),
                       [=](const auto& entry) { return entry.second.descriptor == descriptor; });
  }

  // The watch is placed before the signature is taken: a change in between is then seen twice and not never.
  void Arm(const std::string& path, Watched& watched) {
    const int before = watched.descriptor;
    watched.descriptor = -1;
    if (inotify.ok() && !ChangesElsewhere(path)) {
      const uint32_t events = SignatureOf(path).is_directory ? kDirectoryEvents : kFileEvents;
      watched.descriptor = ::inotify_add_watch(inotify.get(), path.c_str(), events);
    }
    watched.seen = SignatureOf(path);
    if (before >= 0 && before != watched.descriptor && !IsWatched(before)) {
      ::inotify_rm_watch(inotify.get(), before);  // of the file that used to have this name
    }
  }

  bool DrainInotify() {
    bool changed = false;
    alignas(inotify_event) char buffer[4096];
    ssize_t got;
    while (inotify.ok() && (got = ::read(inotify.get(), buffer, sizeof(buffer))) > 0) {
      for (ssize_t at = 0; at < got;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        if (event->mask & IN_Q_OVERFLOW) changed = true;
        for (auto& [path, watched] : paths) {
          if (watched.descriptor != event->wd) continue;
          changed = true;
          if (event->mask & IN_IGNORED) watched.descriptor = -1;  // the kernel has dropped it already
          if (event->mask & kMayBeReplaced) Arm(path, watched);
        }
      }
    }
    return changed;
  }

  bool PollTheRest() {
    bool changed = false;
    for (auto& [path, watched] : paths) {
      if (watched.descriptor >= 0) continue;
      const Signature now = SignatureOf(path);
      if (now == watched.seen) continue;
      changed = true;
      Arm(path, watched);
    }
    return changed;
  }

  bool DrainDoorbell() {
    uint64_t rings = 0;
    const bool rung = doorbell.ok() && ::read(doorbell.get(), &rings, sizeof(rings)) == sizeof(rings);
    return woken.exchange(false) || rung;
  }
};

ChangeWaiter::ChangeWaiter() : impl_(std::make_unique<Impl>()) {}
ChangeWaiter::~ChangeWaiter() = default;

void ChangeWaiter::Watch(const std::string& path) {
  const auto [entry, is_new] = impl_->paths.try_emplace(path);
  if (is_new) impl_->Arm(path, entry->second);
}

bool ChangeWaiter::Wait(int timeout_millis) {
  const int64_t deadline = SystemClock().MonotonicNanos() + int64_t{timeout_millis} * 1'000'000;
  while (true) {
    // All three, and not the first that says yes: what is left unread would report the same change again.
    const bool changed = impl_->DrainInotify();
    const bool polled = impl_->PollTheRest();
    if (impl_->DrainDoorbell() || changed || polled) return true;
    int64_t left_millis = -1;
    if (timeout_millis >= 0) {
      const int64_t left_nanos = deadline - SystemClock().MonotonicNanos();
      if (left_nanos <= 0) return false;
      left_millis = (left_nanos + 999'999) / 1'000'000;
    }
    if ((impl_->AnyPolled() || !impl_->doorbell.ok()) && (left_millis < 0 || left_millis > kPollMillis)) {
      left_millis = kPollMillis;
    }
    // poll ignores negative descriptors.
    pollfd sources[] = {{impl_->inotify.get(), POLLIN, 0}, {impl_->doorbell.get(), POLLIN, 0}};
    (void)::poll(sources, 2, static_cast<int>(left_millis));
  }
}

void ChangeWaiter::Wake() {
  const int saved_errno = errno;  // a signal handler's caller has its own
  impl_->woken.store(true);
  const uint64_t one = 1;
  if (impl_->doorbell.ok()) (void)!::write(impl_->doorbell.get(), &one, sizeof(one));
  errno = saved_errno;
}

}  // namespace tdbg::base
