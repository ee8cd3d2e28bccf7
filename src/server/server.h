// The page and the questions, served on this machine's loopback. Start here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/runs.h"
#include "tdbg/status.h"

namespace tdbg::server {

struct Options {
  uint16_t port = 0;  ///< 0: any that is free
  RunLister runs;
};

/// Serves until it is stopped. Reads runs, writes nothing, listens on 127.0.0.1 only, and refuses every
/// request that does not have the token in its address.
class Server {
 public:
  /// Listens, and answers nothing yet. \error kUnavailable  the port is taken
  static Result<std::unique_ptr<Server>> Listen(Options options);
  virtual ~Server() = default;
  /// "http://127.0.0.1:PORT/TOKEN/"
  virtual const std::string& address() const = 0;
  /// Answers, on the calling thread, until Stop, SIGINT or SIGTERM; it handles both signals meanwhile.
  virtual void Serve() = 0;
  /// \threadsafety Any thread.
  virtual void Stop() = 0;
};

}  // namespace tdbg::server
