#include "server/server.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <utility>

#include "page/files.h"
#include "server/access.h"
#include "server/target.h"

namespace tdbg::server {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMostConnections = 64;
// `rows` of a layer map: a module of a filtered model of 100,000 tensors names each of them.
constexpr uint32_t kMostHeaderBytes = 1 << 20;
constexpr seconds kIdle{30};
// How often a run is looked at for new steps.
constexpr milliseconds kLookEvery{100};
constexpr int kPingLooks = 150;
constexpr int kUnavailableLooks = 100;  // ten seconds

// Content security policy: nothing from other hosts, no inline script or style, not in a frame.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: "
    "blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

http::status StatusOf(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
      return http::status::bad_request;
    case Code::kNotFound:
      return http::status::not_found;
    case Code::kUnimplemented:
      return http::status::not_implemented;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return http::status::service_unavailable;
    default:
      return http::status::internal_server_error;
  }
}

class Session;

class BeastServer final : public Server {
 public:
  BeastServer(Options options, tcp::acceptor acceptor, std::unique_ptr<asio::io_context> context)
      : runs_(std::move(options.runs)),
        token_(RandomToken()),
        context_(std::move(context)),
        acceptor_(std::move(acceptor)),
        signals_(*context_, SIGINT, SIGTERM),
        look_(*context_),
        retry_(*context_),
        address_(fmt::format("http://127.0.0.1:{}/{}/", acceptor_.local_endpoint().port(), token_)) {}

  const std::string& address() const override { return address_; }
  void Serve() override;
  void Stop() override {
    asio::post(*context_, [this] { context_->stop(); });
  }

  Runs& runs() { return runs_; }
  const std::string& token() const { return token_; }
  void Add(Session* session) { sessions_.insert(session); }
  void Remove(Session* session) {
    sessions_.erase(session);
    listeners_.erase(session);
  }
  bool full() const { return sessions_.size() >= kMostConnections; }
  void Listen(Session* session) {
    listeners_.insert(session);
    if (listeners_.size() == 1) Look();
  }

 private:
  void Accept();
  void Look();

  Runs runs_;
  std::string token_;
  std::set<Session*> sessions_, listeners_;
  // Sessions are owned by the context's handlers and remove themselves from the sets above when destroyed, so
  // the context must be destroyed first.
  std::unique_ptr<asio::io_context> context_;
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer look_, retry_;
  std::string address_;
};

/// One connection: requests one after the other, or news until it is closed.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(BeastServer& server, tcp::socket socket) : server_(&server), stream_(std::move(socket)) {
    server_->Add(this);
  }
  ~Session() { server_->Remove(this); }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMostHeaderBytes);
    parser_->body_limit(0);
    stream_.expires_after(kIdle);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) { self->Got(error); });
  }

  /// Sends news of the run that this connection follows.
  void Tell() {
    if (writing_) return;
    const auto run = server_->runs().Get(run_);
    if (!run.ok()) {
      // Out of descriptors, a file server that takes its time: it may be there at the next look.
      if (run.status().code() == Code::kUnavailable && ++unavailable_looks_ < kUnavailableLooks) return;
      return Push(fmt::format("event: gone\ndata: {}\n\n",
                              query::Json(run.status().message())
                                  .dump(-1, ' ', false, query::Json::error_handler_t::replace)),
                  true);
    }
    unavailable_looks_ = 0;
    const uint64_t generation = (*run)->generation();
    if (generation != told_) {
      told_ = generation;
      quiet_ = 0;
      return Push("event: news\ndata: " + (*run)->News().dump() + "\n\n", false);
    }
    // Only writing shows that a connection is gone.
    if (++quiet_ >= kPingLooks) {
      quiet_ = 0;
      Push(": still here\n\n", false);
    }
  }

 private:
  void Got(beast::error_code error) {
    if (error == http::error::end_of_stream) return Close();
    if (error == beast::error::timeout || error == asio::error::operation_aborted) return Close();
    if (error) {
      // Close after a malformed request: what follows must not be taken for the next request.
      const bool body = error == http::error::body_limit || error == http::error::unexpected_body;
      const bool long_header = error == http::error::header_limit || error == http::error::buffer_overflow;
      if (error.category() != http::make_error_code(http::error::body_limit).category()) return Close();
      return Refuse(body          ? http::status::payload_too_large
                    : long_header ? http::status::request_header_fields_too_large
                                  : http::status::bad_request,
                    "this is no request for the page", false);
    }
    const auto& request = parser_->get();
    const bool keep = request.keep_alive();
    const auto view = [&](http::field field) {
      const auto text = request[field];
      return std::string_view(text.data(), text.size());
    };
    head_only_ = request.method() == http::verb::head;
    if (request.count(http::field::host) != 1 || !IsLoopbackHost(view(http::field::host)))
      return Refuse(http::status::forbidden, "the Host of this request is not this machine", false);
    // A link in somebody's notes leads here from another site. Whoever follows it sees a page, and no script
    // of that site does.
    const bool followed = request["Sec-Fetch-Mode"] == "navigate" && request["Sec-Fetch-Dest"] == "document";
    const auto fetch_site = request["Sec-Fetch-Site"];
    if (!IsOwnOrigin(
            view(http::field::origin), view(http::field::host),
            followed ? std::string_view() : std::string_view(fetch_site.data(), fetch_site.size())) ||
        request.count(http::field::origin) > 1)
      return Refuse(http::status::forbidden, "another page may not ask here", false);
    if (request.method() != http::verb::get && !head_only_)
      return Refuse(http::status::method_not_allowed, "only GET: this server reads and changes nothing",
                    false);
    const auto target = ParseTarget({request.target().data(), request.target().size()});
    if (!target) return Refuse(http::status::bad_request, "this address cannot be read", keep);
    if (!SameToken(target->token, server_->token()))
      return Refuse(http::status::forbidden,
                    "the address lacks its token: open the one that tdbg view printed", keep);
    if (target->path == "/") return Redirect(keep);
    if (target->question.name == "news" && !head_only_) return Listen(target->question);
    if (!target->question.name.empty()) {
      auto answer = server_->runs().Ask(target->question);
      if (answer.ok()) return Send(http::status::ok, answer->media_type, std::move(answer->body), keep);
      return Send(StatusOf(answer.status()), "application/json",
                  query::JsonAnswer({{"error", answer.status().message()},
                                     {"kind", std::string(CodeName(answer.status().code()))}})
                      .body,
                  keep);
    }
    if (const page::File* const file = page::FindFile(target->path))
      return Send(http::status::ok, std::string(file->media_type), std::string(file->body), keep);
    Refuse(http::status::not_found, "nothing lies here", keep);
  }

  void Refuse(http::status status, std::string why, bool keep) {
    Send(status, "text/plain; charset=utf-8", std::move(why) + "\n", keep);
  }
  void Redirect(bool keep) {
    location_ = "/" + server_->token() + "/";
    Send(http::status::moved_permanently, "text/plain", "", keep);
  }

  template <typename Message>
  void Dress(Message& message, const std::string& media_type) {
    message.set(http::field::content_type, media_type);
    message.set(http::field::cache_control, "no-store");
    message.set("Content-Security-Policy", kPolicy);
    message.set("X-Content-Type-Options", "nosniff");
    message.set("Referrer-Policy", "no-referrer");  // the token is part of the address
    message.set("Cross-Origin-Resource-Policy", "same-origin");
    message.set("Cross-Origin-Opener-Policy", "same-origin");
    if (!location_.empty()) message.set(http::field::location, std::exchange(location_, {}));
  }

  void Send(http::status status, const std::string& media_type, std::string body, bool keep) {
    auto response = std::make_shared<http::response<http::string_body>>(status, 11);
    Dress(*response, media_type);
    response->keep_alive(keep);
    response->body() = std::move(body);
    response->prepare_payload();
    if (head_only_) response->body().clear();
    stream_.expires_after(kIdle);
    http::async_write(stream_, *response,
                      [self = shared_from_this(), response, keep](beast::error_code error, size_t) {
                        if (error || !keep) return self->Close();
                        self->Read();
                      });
  }

  void Listen(const query::Question& question) {
    if (const Status known = question.CheckKeys({"run"}); !known.ok())
      return Refuse(http::status::bad_request, known.message(), false);
    run_ = question.Text("run");
    if (const auto run = server_->runs().Get(run_); !run.ok())
      return Refuse(StatusOf(run.status()), run.status().message(), false);
    auto response = std::make_shared<http::response<http::empty_body>>(http::status::ok, 11);
    Dress(*response, "text/event-stream");
    response->keep_alive(false);
    auto serializer = std::make_shared<http::response_serializer<http::empty_body>>(*response);
    stream_.expires_never();
    http::async_write_header(
        stream_, *serializer,
        [self = shared_from_this(), response, serializer](beast::error_code error, size_t) {
          if (error) return self->Close();
          self->AwaitClose();
          self->server_->Listen(self.get());
          self->Tell();
        });
  }
  // The client sends nothing more; we read only to learn that it closes.
  void AwaitClose() {
    stream_.async_read_some(buffer_.prepare(64),
                            [self = shared_from_this()](beast::error_code error, size_t) {
                              if (error) return self->Close();
                              self->AwaitClose();
                            });
  }
  void Push(std::string text, bool last) {
    writing_ = true;
    auto kept = std::make_shared<std::string>(std::move(text));
    stream_.expires_after(kIdle);
    asio::async_write(stream_, asio::buffer(*kept),
                      [self = shared_from_this(), kept, last](beast::error_code error, size_t) {
                        self->writing_ = false;
                        self->stream_.expires_never();
                        if (error || last) self->Close();
                      });
  }

  void Close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.close();
  }

  BeastServer* server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kMostHeaderBytes + 1024};
  std::optional<http::request_parser<http::empty_body>> parser_;
  bool head_only_ = false, writing_ = false;
  std::string location_;
  std::string run_;
  uint64_t told_ = 0;
  int quiet_ = 0, unavailable_looks_ = 0;
};

void BeastServer::Serve() {
  signals_.async_wait([this](beast::error_code error, int) {
    if (!error) context_->stop();
  });
  Accept();
  context_->run();
}

void BeastServer::Accept() {
  acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
    if (!error && !full()) {
      beast::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      std::make_shared<Session>(*this, std::move(socket))->Read();
    }
    // Out of descriptors: connections wait in the backlog until one is free.
    if (error && error != asio::error::operation_aborted) {
      retry_.expires_after(kLookEvery);
      retry_.async_wait([this](beast::error_code) { Accept(); });
      return;
    }
    if (!error) Accept();
  });
}

void BeastServer::Look() {
  look_.expires_after(kLookEvery);
  look_.async_wait([this](beast::error_code error) {
    if (error || listeners_.empty()) return;
    const std::set<Session*> listeners = listeners_;
    for (Session* const session : listeners) {
      if (listeners_.contains(session)) session->Tell();
    }
    Look();
  });
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Listen(Options options) {
  auto context = std::make_unique<asio::io_context>(1);
  tcp::acceptor acceptor(*context);
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), options.port);
  beast::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Unavailable(fmt::format("cannot listen on 127.0.0.1:{}: {}; choose another with --port",
                                   options.port, error.message()));
  }
  return std::unique_ptr<Server>(
      std::make_unique<BeastServer>(std::move(options), std::move(acceptor), std::move(context)));
}

}  // namespace tdbg::server
