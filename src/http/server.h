// Places where connections come in, and the one thread that serves them. Start here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/connection.h"
#include "http/tls.h"
#include "tdbg/status.h"

namespace tdbg::http {

/// A place where connections come in.
struct Door {
  std::string address = "127.0.0.1";  ///< an IP address of this machine; 0.0.0.0 or :: are all of them
  uint16_t port = 0;                  ///< 0: any that is free
  std::shared_ptr<Tls> tls;           ///< null: without
  Limits limits;
  /// Called for each connection. It keeps the connection by what it asks of it.
  std::function<void(std::shared_ptr<Connection>)> visit;
};

/// Serves until it is stopped. Its sockets are no child's. What its handlers hold is destroyed with it, so it
/// is to be destroyed before what these refer to.
class Server {
 public:
  static std::unique_ptr<Server> Create();
  virtual ~Server() = default;

  /// Listens; nothing is taken before Serve. \return the port
  /// \error kInvalidArgument  no address \error kUnavailable  the system's reason
  virtual Result<uint16_t> Open(Door door) = 0;
  /// Calls it once, on the thread that serves.
  virtual void After(std::chrono::milliseconds pause, std::function<void()> what) = 0;
  /// Serves on the calling thread, until Stop, SIGINT or SIGTERM; it handles both signals from Create on.
  virtual void Serve() = 0;
  /// \threadsafety Any thread.
  virtual void Stop() = 0;
};

}  // namespace tdbg::http
