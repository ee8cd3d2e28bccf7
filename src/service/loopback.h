// A word with another program of this machine, by a socket, within a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/posix.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// A port of 127.0.0.1 that nobody listens on just now.
Result<uint16_t> FreePort();

/// A connection to that port of 127.0.0.1. \error kUnavailable  nobody listens there
Result<base::UniqueFd> Connect(uint16_t port);

/// Sends these bytes and returns what comes until the other side closes.
/// \param millis  for all of it, however little comes at a time
/// \error kDeadlineExceeded  \error kUnavailable  nobody listens there, or the connection broke
/// \error kResourceExhausted  more than 1 MiB came
Result<std::string> Exchange(uint16_t port, std::string_view request, int millis);

}  // namespace tdbg::service
