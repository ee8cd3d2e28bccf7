// One connection of a client: its requests one after the other, and what goes back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/request.h"

namespace tdbg::http {

/// What one place where connections come in holds its clients to.
struct Limits {
  size_t connections = 64;  ///< at once; one more is closed
  uint32_t head_bytes = 32 << 10;
  uint64_t body_bytes = 0;
  std::chrono::milliseconds idle{30'000};  ///< for a request, from the answer before on; for taking an answer
};

/// A connection, plain or over TLS. Everything happens on the thread that serves (Run excepted), one call of
/// each kind at a time. A call that is under way keeps the connection, and what its `then` holds; without one
/// the connection is closed with its last shared_ptr. `then` is called once, unless the server is destroyed
/// before.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Reads the next request up to its body. `then` may be called before this returns.
  virtual void ReadHead(std::function<void(Progress)> then) = 0;
  /// Reads on to the end of that request, in the time that is left of it.
  virtual void ReadBody(std::function<void(Progress)> then) = 0;
  /// The request that is being read, or was read last.
  virtual const Request& request() const = 0;

  /// Writes two texts, one behind the other. \param then  whether all of it went out
  virtual void Write(std::string head, std::string body, std::function<void(bool ok)> then) = 0;
  /// Throws away what the client sends until it closes, however long that takes. Others may write meanwhile.
  virtual void AwaitClose(std::function<void()> then) = 0;
  /// Closes after an answer to a request that was not read to its end. The client reads the answer once it
  /// has sent all of that; closed before, the connection would be reset, and the answer lost.
  /// \param most  bytes that are thrown away, in the time that is left of the answer's
  virtual void LetSend(uint64_t most) = 0;
  /// What is under way ends with kGone or false. TLS is ended in order first, for which the client has ten
  /// seconds.
  virtual void Close() = 0;

  /// Calls it on the thread that serves: at once if that is the caller's. \threadsafety Any thread.
  virtual void Run(std::function<void()> what) = 0;
};

class Stream;

/// A connection over this stream once that is ready for it (TLS's handshake), for `visit`.
/// \param gone  called when the connection is no more
void Connect(std::unique_ptr<Stream> stream, const Limits& limits, std::function<void()> gone,
             const std::function<void(std::shared_ptr<Connection>)>& visit);

}  // namespace tdbg::http
