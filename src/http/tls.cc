#include "http/tls.h"

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <utility>

#include "http/stream.h"

namespace tdbg::http {
namespace asio = boost::asio;
namespace ssl = asio::ssl;

struct Tls::Context {
  ssl::context of_asio{ssl::context::tls_server};
};

Tls::Tls() : context_(std::make_unique<Context>()) {
  context_->of_asio.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                                ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
}
Tls::~Tls() = default;

Status Tls::UseCertificate(const std::string& file) {
  Error error;
  context_->of_asio.use_certificate_chain_file(file, error);
  return error ? InvalidArgument(error.message()) : OkStatus();
}

Status Tls::UseKey(const std::string& file) {
  Error error;
  context_->of_asio.use_private_key_file(file, ssl::context::pem, error);
  return error ? InvalidArgument(error.message()) : OkStatus();
}

namespace {

class Secure final : public Stream {
 public:
  Secure(Socket socket, std::shared_ptr<Tls> tls)
      : tls_(std::move(tls)), stream_(std::move(socket), tls_->context().of_asio) {}
  bool Begin(std::function<void(Error)> then) override {
    stream_.async_handshake(ssl::stream_base::server, std::move(then));
    return true;
  }
  void Read(std::span<char> room, Then then) override {
    stream_.async_read_some(asio::buffer(room.data(), room.size()), std::move(then));
  }
  void Write(const std::array<asio::const_buffer, 2>& bytes, Then then) override {
    stream_.async_write_some(bytes, std::move(then));
  }
  void StopSending() override {}  // its end is one message for both directions
  bool End(std::function<void()> then) override {
    stream_.async_shutdown([then = std::move(then)](Error) { then(); });
    return true;
  }
  Socket& socket() override { return stream_.next_layer(); }

 private:
  std::shared_ptr<Tls> tls_;  // before the stream, which uses it
  ssl::stream<Socket> stream_;
};

}  // namespace

std::unique_ptr<Stream> TlsStream(Socket socket, std::shared_ptr<Tls> tls) {
  return std::make_unique<Secure>(std::move(socket), std::move(tls));
}

}  // namespace tdbg::http
