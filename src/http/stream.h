// Bytes from and to a client, plain or over TLS. For this room's files alone: it brings Asio's headers.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <span>

#include "http/tls.h"

namespace tdbg::http {

using Error = boost::system::error_code;
// With the executor's own type: the default, which stands for any of them, takes compilers and processors
// longer.
using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

/// One kind of bytes, so that what is above is compiled once for both. Handlers are called later, never from
/// within.
class Stream {
 public:
  using Then = std::function<void(Error, size_t)>;
  virtual ~Stream() = default;

  /// Before anything else. \return false: nothing is to be done, and `then` is not called
  virtual bool Begin(std::function<void(Error)> then) = 0;
  /// At least a byte, into what the caller keeps until then.
  virtual void Read(std::span<char> room, Then then) = 0;
  virtual void Write(const std::array<boost::asio::const_buffer, 2>& bytes, Then then) = 0;
  /// Tells the client that nothing more comes, if that can be said while it still sends.
  virtual void StopSending() = 0;
  /// Ends in order. \return false: it is closed already, and `then` is not called
  virtual bool End(std::function<void()> then) = 0;
  virtual Socket& socket() = 0;
};

std::unique_ptr<Stream> PlainStream(Socket socket);
std::unique_ptr<Stream> TlsStream(Socket socket, std::shared_ptr<Tls> tls);

}  // namespace tdbg::http
