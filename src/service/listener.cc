#include "service/listener.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <type_traits>
#include <utility>

#include "events/change.h"
#include "server/access.h"

namespace tdbg::service {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace asio = boost::asio;
namespace ssl = asio::ssl;
using asio::ip::tcp;
using std::chrono::seconds;

constexpr size_t kMostConnections = 128;  // of each way
constexpr uint32_t kMostHeaderBytes = 32 << 10;
constexpr uint64_t kMostBodyBytes = 8u << 20;
// Of a stranger's request, read to its end so that the answer arrives.
constexpr uint64_t kMostRefusedBytes = 64u << 10;
// Of a request that is too long, thrown away for the same reason.
constexpr uint64_t kMostUnreadBytes = 256u << 20;
constexpr size_t kPieceBytes = 64 << 10;
constexpr seconds kIdle{60};
constexpr seconds kHandshake{10};
constexpr seconds kLookEvery{2};
constexpr const char* kMediaType = "application/x-amz-json-1.1";
constexpr std::string_view kFunctions = "/2015-03-31/functions";

/// "AWS4-HMAC-SHA256 Credential=KEY/20261124/us-east-1/sagemaker/aws4_request, ..." -> KEY
std::string_view AccessKeyOf(std::string_view authorization) {
  constexpr std::string_view kCredential = "Credential=";
  const size_t at = authorization.find(kCredential);
  if (at == std::string_view::npos) return {};
  authorization.remove_prefix(at + kCredential.size());
  return authorization.substr(0, authorization.find('/'));
}

using Headers = http::request<http::string_body>;

std::string_view Header(const Headers& request, std::string_view name) {
  const auto text = request[beast::string_view(name.data(), name.size())];
  return {text.data(), text.size()};
}

// Without the token, which is the first component where one is asked for; nothing: it is another one.
std::optional<std::string_view> PathBehind(const std::string& token, std::string_view path) {
  if (token.empty()) return path;
  if (path.size() < token.size() + 1 || path.front() != '/' ||
      !server::SameToken(path.substr(1, token.size()), token))
    return std::nullopt;
  path.remove_prefix(1 + token.size());
  if (path.empty()) return "/";
  return path.front() == '/' ? std::optional(path) : std::nullopt;
}

/// Why a request is not answered, by its headers alone.
std::optional<Refusal> Refused(const ListenerOptions& options, bool remote, const Headers& request) {
  // A page in a browser can send requests here, too; no client of AWS says where it came from.
  if (!Header(request, "Origin").empty() || !Header(request, "Sec-Fetch-Site").empty() ||
      request.count(http::field::host) != 1 || (!remote && !server::IsLoopbackHost(Header(request, "Host"))))
    return Refusal{"AccessDeniedException", remote ? "no page in a browser is answered"
                                                   : "requests come from this machine, and from no page in a "
                                                     "browser"};
  const std::string_view path(request.target().data(), request.target().size());
  if (remote && !PathBehind(options.tls->token, path))
    return Refusal{"UnrecognizedClientException",
                   "the address of this request has not the token of this service: `tdbg aws-env --remote` "
                   "prints the whole address"};
  const std::string_view key = AccessKeyOf(Header(request, "Authorization"));
  if (std::ranges::none_of(options.access_keys,
                           [&](const std::string& one) { return server::SameToken(key, one); }))
    return Refusal{"UnrecognizedClientException",
                   "the access key of this request is not this service's: `tdbg aws-env -- COMMAND` sets it"};
  return std::nullopt;
}

/// \param token  of the path; empty: none is asked for
Result<Request> RequestOf(const Headers& request, const std::string& token) {
  const auto path = PathBehind(token, std::string_view(request.target().data(), request.target().size()));
  if (!path) return NotFound("the token of the address is missing");
  const bool rest = path->starts_with(kFunctions);
  if (!rest && (request.method() != http::verb::post || request.count("X-Amz-Target") != 1))
    return NotFound(
        "this is no request of AWS's JSON protocol: S3, STS and IAM have endpoints of their own (`tdbg "
        "aws-env` "
        "prints all of them)");
  return Request{std::string_view(request.method_string().data(), request.method_string().size()),
                 *path,
                 rest ? std::string() : std::string(Header(request, "X-Amz-Target")),
                 request.body(),
                 Header(request, "X-Amz-Invocation-Type"),
                 Header(request, "X-Amz-Log-Type")};
}

int StatusOf(const Answer<Response>& answer, bool rest) {
  if (answer.ok()) return answer->status;
  const std::string& code = answer.refusal().code;
  if (code == "InternalFailure") return 500;
  if (!rest) return 400;
  return code == "ResourceNotFoundException"   ? 404
         : code == "ResourceConflictException" ? 409
         : code == "TooManyRequestsException"  ? 429
                                               : 400;
}

std::shared_ptr<http::response<http::string_body>> Written(const Answer<Response>& answer, bool rest,
                                                           bool keep) {
  const int status = StatusOf(answer, rest);
  auto response = std::make_shared<http::response<http::string_body>>(static_cast<http::status>(status), 11);
  response->set(http::field::content_type, kMediaType);
  response->set("x-amzn-RequestId", events::NewUuid());
  response->set(http::field::cache_control, "no-store");
  response->keep_alive(keep);
  if (answer.ok()) {
    for (const auto& [name, value] : answer->headers) response->set(name, value);
  }
  const Json refusal =
      answer.ok() ? Json() : Json{{"__type", answer.refusal().code}, {"message", answer.refusal().message}};
  if (status != 202 && status != 204)
    response->body() =
        (answer.ok() ? answer->body : refusal).dump(-1, ' ', false, Json::error_handler_t::replace);
  response->prepare_payload();
  return response;
}

// Asio leaves its sockets to every child, and jobs outlive the server: they would hold its port, where
// clients wait for ever and the next server cannot listen.
template <typename Socket>
void KeepFromChildren(Socket& socket) {
  (void)::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

class BeastListener;

/// One connection: requests one after the other. \tparam Stream  beast::tcp_stream, or TLS around it
template <typename Stream>
class Connection : public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kRemote = !std::is_same_v<Stream, beast::tcp_stream>;

  template <typename... Args>
  explicit Connection(BeastListener& listener, Args&&... args);
  ~Connection();
  void Begin();

 private:
  void Read();
  void GotHeader(beast::error_code error);
  void Got(beast::error_code error);
  void Send(const Answer<Response>& answer, bool keep);
  void LetSend(uint64_t most);
  void Close();

  BeastListener* listener_;
  Stream stream_;
  bool rest_ = false;
  bool sends_on_ = false;  ///< a request that was answered before it was there
  beast::flat_buffer buffer_{kMostHeaderBytes + (64 << 10)};
  std::optional<http::request_parser<http::string_body>> parser_;
};

class BeastListener final : public Listener {
 public:
  BeastListener(ListenerOptions options, std::unique_ptr<asio::io_context> context, tcp::acceptor acceptor)
      : options_(std::move(options)),
        context_(std::move(context)),
        signals_(*context_, SIGINT, SIGTERM),
        look_(*context_),
        local_(std::move(acceptor)) {}

  Status AddTls() {
    const TlsOptions& tls = *options_.tls;
    tls_.emplace(ssl::context::tls_server);
    tls_->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                      ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
    beast::error_code error;
    tls_->use_certificate_chain_file(tls.certificate, error);
    if (error)
      return InvalidArgument(fmt::format("--tls-cert {}: no certificate in PEM can be read: {}",
                                         tls.certificate, error.message()));
    tls_->use_private_key_file(tls.key, ssl::context::pem, error);
    if (error)
      return InvalidArgument(
          fmt::format("--tls-key {}: no private key in PEM that belongs to {} can be read: {}", tls.key,
                      tls.certificate, error.message()));
    const auto address = asio::ip::make_address(tls.address, error);
    if (error)
      return InvalidArgument(fmt::format(
          "--host {}: accepted: an IP address of this machine, or 0.0.0.0 for all of them", tls.address));
    remote_.emplace(*context_);
    remote_->acceptor.open(address.is_v4() ? tcp::v4() : tcp::v6(), error);
    if (!error) KeepFromChildren(remote_->acceptor);
    if (!error) remote_->acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) remote_->acceptor.bind({address, tls.port}, error);
    if (!error) remote_->acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      return Unavailable(
          fmt::format("cannot listen on {} port {}: {}", tls.address, tls.port, error.message()));
    return OkStatus();
  }

  uint16_t port() const override { return local_.acceptor.local_endpoint().port(); }
  uint16_t tls_port() const override { return remote_ ? remote_->acceptor.local_endpoint().port() : 0; }
  void Stop() override { context_->stop(); }
  void Serve() override {
    signals_.async_wait([this](beast::error_code error, int) {
      if (!error) context_->stop();
    });
    Accept<beast::tcp_stream>(&local_);
    if (remote_) Accept<beast::ssl_stream<beast::tcp_stream>>(&*remote_);
    Look();
    context_->run();
  }

  const ListenerOptions& options() const { return options_; }
  size_t connections[2] = {0, 0};  ///< from this machine, from elsewhere

 private:
  /// A place where connections come in.
  struct Door {
    explicit Door(asio::io_context& context) : acceptor(context), pause(context) {}
    explicit Door(tcp::acceptor open) : acceptor(std::move(open)), pause(acceptor.get_executor()) {}
    tcp::acceptor acceptor;
    asio::steady_timer pause;
  };

  template <typename Stream>
  void Accept(Door* door) {
    door->acceptor.async_accept([this, door](beast::error_code error, tcp::socket socket) {
      if (!error && connections[Connection<Stream>::kRemote] < kMostConnections) {
        beast::error_code ignored;
        KeepFromChildren(socket);
        socket.set_option(tcp::no_delay(true), ignored);
        if constexpr (Connection<Stream>::kRemote)
          std::make_shared<Connection<Stream>>(*this, std::move(socket), *tls_)->Begin();
        else
          std::make_shared<Connection<Stream>>(*this, std::move(socket))->Begin();
      }
      if (!error) return Accept<Stream>(door);
      if (error == asio::error::operation_aborted) return;
      // Out of descriptors: whoever waits in the backlog is taken when one is free again.
      door->pause.expires_after(std::chrono::milliseconds(100));
      door->pause.async_wait([this, door](beast::error_code) { Accept<Stream>(door); });
    });
  }
  void Look() {
    if (options_.look) options_.look();
    look_.expires_after(kLookEvery);
    look_.async_wait([this](beast::error_code error) {
      if (!error) Look();
    });
  }

  ListenerOptions options_;
  std::optional<ssl::context> tls_;  // before the context: connections that it still holds use it
  std::unique_ptr<asio::io_context> context_;
  asio::signal_set signals_;
  asio::steady_timer look_;
  Door local_;
  std::optional<Door> remote_;
};

template <typename Stream>
template <typename... Args>
Connection<Stream>::Connection(BeastListener& listener, Args&&... args)
    : listener_(&listener), stream_(std::forward<Args>(args)...) {
  ++listener_->connections[kRemote];
}
template <typename Stream>
Connection<Stream>::~Connection() {
  --listener_->connections[kRemote];
}

template <typename Stream>
void Connection<Stream>::Begin() {
  if constexpr (kRemote) {
    beast::get_lowest_layer(stream_).expires_after(kHandshake);
    stream_.async_handshake(ssl::stream_base::server,
                            [self = this->shared_from_this()](beast::error_code error) {
                              if (!error) self->Read();
                            });
  } else {
    Read();
  }
}

template <typename Stream>
void Connection<Stream>::Read() {
  parser_.emplace();
  parser_->header_limit(kMostHeaderBytes);
  parser_->body_limit(kMostBodyBytes);
  beast::get_lowest_layer(stream_).expires_after(kIdle);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = this->shared_from_this()](beast::error_code error, size_t) { self->GotHeader(error); });
}

template <typename Stream>
void Connection<Stream>::GotHeader(beast::error_code error) {
  const bool too_long = error == http::error::body_limit;
  if (error && !too_long) return Close();
  // Nothing of a stranger's is kept.
  const auto refused = Refused(listener_->options(), kRemote, parser_->get());
  if (refused && too_long) return Send(*refused, false);
  if (too_long) return Got(error);
  const auto length = parser_->content_length();
  if (refused && (parser_->chunked() || (length && *length > kMostRefusedBytes)))
    return Send(*refused, false);
  http::async_read(stream_, buffer_, *parser_,
                   [self = this->shared_from_this(), refused](beast::error_code failed, size_t) {
                     if (!failed && refused) return self->Send(*refused, self->parser_->get().keep_alive());
                     self->Got(failed);
                   });
}

template <typename Stream>
void Connection<Stream>::Got(beast::error_code error) {
  if (error == http::error::body_limit) {
    sends_on_ = true;
    return Send(Refusal{"RequestEntityTooLargeException", "a request holds 8 MiB at most"}, false);
  }
  // What is behind a request that was not understood is not to be taken for the next one.
  if (error) return Close();
  const bool keep = parser_->get().keep_alive();
  const ListenerOptions& options = listener_->options();
  const auto request = RequestOf(parser_->get(), kRemote ? options.tls->token : std::string());
  if (!request.ok()) return Send(Refusal{"UnknownOperationException", request.status().message()}, keep);
  rest_ = request->target.empty();
  try {
    // Its request stays where it is until it is answered.
    options.handle(*request, [self = this->shared_from_this(), keep](const Answer<Response>& answer) {
      asio::dispatch(self->stream_.get_executor(), [self, keep, answer] { self->Send(answer, keep); });
    });
  } catch (const std::exception& defect) {
    Send(Refusal{"InternalFailure", std::string("a defect of tdbg: ") + defect.what()}, false);
  }
}

template <typename Stream>
void Connection<Stream>::Send(const Answer<Response>& answer, bool keep) {
  const auto response = Written(answer, rest_, keep);
  beast::get_lowest_layer(stream_).expires_after(kIdle);
  http::async_write(stream_, *response,
                    [self = this->shared_from_this(), response, keep](beast::error_code error, size_t) {
                      if (!error && !keep && self->sends_on_) return self->LetSend(kMostUnreadBytes);
                      if (error || !keep) return self->Close();
                      self->Read();
                    });
}

// Its client reads the answer once it has sent all of a request. Closed before that, the connection is reset,
// and the answer lost with it. The time that it has is what is left of the answer's.
template <typename Stream>
void Connection<Stream>::LetSend(uint64_t most) {
  auto& below = beast::get_lowest_layer(stream_);
  if constexpr (!kRemote) {
    beast::error_code ignored;
    below.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }
  buffer_.clear();
  below.async_read_some(buffer_.prepare(kPieceBytes),
                        [self = this->shared_from_this(), most](beast::error_code error, size_t bytes) {
                          if (error || bytes >= most) return self->Close();
                          self->LetSend(most - bytes);
                        });
}

template <typename Stream>
void Connection<Stream>::Close() {
  if constexpr (kRemote) {
    beast::get_lowest_layer(stream_).expires_after(kHandshake);
    stream_.async_shutdown([self = this->shared_from_this()](beast::error_code) {});
  } else {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.close();
  }
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Listen(ListenerOptions options) {
  auto context = std::make_unique<asio::io_context>();
  tcp::acceptor acceptor(*context);
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), options.port);
  beast::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) KeepFromChildren(acceptor);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return Unavailable(fmt::format("cannot listen on 127.0.0.1:{}: {}; choose another with --port",
                                   options.port, error.message()));
  auto listener =
      std::make_unique<BeastListener>(std::move(options), std::move(context), std::move(acceptor));
  if (listener->options().tls) TDBG_RETURN_IF_ERROR(listener->AddTls());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace tdbg::service
