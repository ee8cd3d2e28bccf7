#include "cuda/connection.h"

#include <unistd.h>

#include <utility>

namespace tdbg::cuda {

Connection::Connection(const Driver* driver) : driver_(*driver), process_(getpid()) {}

bool Connection::in_its_process() const { return getpid() == process_; }

void Connection::Fail(std::string sentence) {
  if (trouble_.empty()) trouble_ = std::move(sentence);
}

bool Connection::Check(Error error, const char* what) {
  if (error == kSuccess) return true;
  Fail(std::string(what) + ": " + driver_.NameOf(error));
  return false;
}

Connection::Entered::Entered(Connection* connection, int device) : driver_(connection->driver_) {
  int wanted = 0, current = -1;
  if (!connection->Check(driver_.DeviceGet(&wanted, device), "cuDeviceGet")) return;
  if (driver_.GetDevice(&current) == kSuccess && current == wanted) {
    ok_ = true;
    return;
  }
  unsigned flags = 0;
  int active = 0;
  if (!connection->Check(driver_.PrimaryContextState(wanted, &flags, &active), "cuDevicePrimaryCtxGetState"))
    return;
  if (active == 0) {
    connection->Fail("device " + std::to_string(device) + " has tensors, and no context");
    return;
  }
  Handle& context = connection->contexts_[device];
  if (context == nullptr &&
      !connection->Check(driver_.PrimaryContextRetain(&context, wanted), "cuDevicePrimaryCtxRetain")) {
    return;
  }
  ok_ = pushed_ = connection->Check(driver_.PushContext(context), "cuCtxPushCurrent");
}

Connection::Entered::~Entered() {
  Handle context;
  if (pushed_) (void)driver_.PopContext(&context);
}

namespace {
constexpr const char* kExchange = "cuThreadExchangeStreamCaptureMode";
}

Connection::Relaxed::Relaxed(Connection* connection) : connection_(connection) {
  ok_ = connection_->Check(connection_->driver().ExchangeCaptureMode(&mode_), kExchange);
}

Connection::Relaxed::~Relaxed() {
  if (ok_) (void)connection_->Check(connection_->driver().ExchangeCaptureMode(&mode_), kExchange);
}

}  // namespace tdbg::cuda
