// The driver as one process uses it: the first error ends it, and a device's context is current while we
// call.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "cuda/driver.h"

namespace tdbg::cuda {

/// What all that calls the driver for one training shares. After an error (a context that died, above all)
/// the driver is not called again: `usable` is asked before every call.
///
/// \threadsafety  One thread at a time. After fork() the child's copy is not usable.
class Connection {
 public:
  /// `driver` outlives it.
  explicit Connection(const Driver* driver);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Driver& driver() const { return driver_; }
  bool usable() const { return trouble_.empty() && in_its_process(); }
  bool in_its_process() const;
  /// The first error, in one sentence; empty while all is well.
  const std::string& trouble() const { return trouble_; }
  void Fail(std::string sentence);
  /// False, and the end of the connection, unless `error` is kSuccess.
  bool Check(Error error, const char* what);

  class Entered;
  class Relaxed;

 private:
  const Driver& driver_;
  const pid_t process_;
  std::string trouble_;
  std::map<int, Handle> contexts_;  // of devices that were not the thread's current one
};

/// While it lives, the device's own context is the thread's current one, as it is nearly always.
class Connection::Entered {
 public:
  /// \param device  the framework's number of it
  Entered(Connection* connection, int device);
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  bool ok() const { return ok_; }

 private:
  const Driver& driver_;
  bool ok_ = false, pushed_ = false;
};

/// While it lives, this thread may allocate, free and load kernels although somebody captures a CUDA graph:
/// the driver takes all three for calls that may wait, refuses them and breaks the capture, this thread's or
/// that of any other which captures in the default mode, unless the calling thread says that it knows.
/// \pre a context is current: `Entered`
class Connection::Relaxed {
 public:
  explicit Relaxed(Connection* connection);
  ~Relaxed();
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  bool ok() const { return ok_; }

 private:
  Connection* const connection_;
  int mode_ = kCaptureModeRelaxed;
  bool ok_ = false;
};

}  // namespace tdbg::cuda
