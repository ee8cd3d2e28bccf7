#include "http/stream.h"

#include <utility>

namespace tdbg::http {
namespace {

namespace asio = boost::asio;

class Plain final : public Stream {
 public:
  explicit Plain(Socket socket) : socket_(std::move(socket)) {}
  bool Begin(std::function<void(Error)>) override { return false; }
  void Read(std::span<char> room, Then then) override {
    socket_.async_read_some(asio::buffer(room.data(), room.size()), std::move(then));
  }
  void Write(const std::array<asio::const_buffer, 2>& bytes, Then then) override {
    socket_.async_write_some(bytes, std::move(then));
  }
  void StopSending() override {
    Error ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  bool End(std::function<void()>) override {
    StopSending();
    Error ignored;
    socket_.close(ignored);
    return false;
  }
  Socket& socket() override { return socket_; }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<Stream> PlainStream(Socket socket) { return std::make_unique<Plain>(std::move(socket)); }

}  // namespace tdbg::http
