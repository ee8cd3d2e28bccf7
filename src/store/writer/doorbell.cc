#include "store/writer/doorbell.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/below.h"

namespace tdbg::store {

void Doorbell::Open() {
  if (!lock_->CheckInPlace().ok()) return;
  fd_ = base::LastingFd::Open(path_.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW,
                              base::FileModeIn(path_.substr(0, path_.rfind('/'))));
}

void Doorbell::Ring(uint64_t committed_seq) {
  if (committed_seq == rung_) return;
  if (!fd_.Mine()) {  // never opened, or closed by the script: its number may be another file's by now
    if (skip_ > 0) {
      --skip_;
      return;
    }
    Open();
    if (!fd_.ok()) {
      skip_ = 100;
      return;
    }
  }
  if (::pwrite(fd_.Unchecked(), &committed_seq, sizeof(committed_seq), 0) ==
      static_cast<ssize_t>(sizeof(committed_seq))) {
    rung_ = committed_seq;
  }
}

}  // namespace tdbg::store
