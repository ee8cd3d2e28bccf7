#include "server/server.h"

#include <fmt/format.h>

#include <chrono>
#include <set>
#include <utility>

#include "format/json_fields.h"
#include "http/access.h"
#include "http/response.h"
#include "http/server.h"
#include "page/files.h"
#include "server/target.h"

namespace tdbg::server {
namespace {

using std::chrono::milliseconds;

// `rows` of a layer map: a module of a filtered model of 100,000 tensors names each of them.
constexpr http::Limits kLimits{
    .connections = 64, .head_bytes = 1 << 20, .body_bytes = 0, .idle = std::chrono::seconds(30)};
// How often a run is looked at for new steps.
constexpr milliseconds kLookEvery{100};
constexpr int kPingLooks = 150;
constexpr int kUnavailableLooks = 100;  // ten seconds

// Content security policy: nothing from other hosts, no inline script or style, not in a frame.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: "
    "blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

int StatusOf(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

class Session;

class PageServer final : public Server {
 public:
  explicit PageServer(RunLister lister)
      : runs_(std::move(lister)), token_(http::RandomToken()), http_(http::Server::Create()) {}

  Status Open(uint16_t port);
  const std::string& address() const override { return address_; }
  void Serve() override { http_->Serve(); }
  void Stop() override { http_->Stop(); }

  Runs& runs() { return runs_; }
  const std::string& token() const { return token_; }
  void Forget(Session* session) { listeners_.erase(session); }
  void Listen(Session* session) {
    listeners_.insert(session);
    if (!looking_) Look();
  }

 private:
  void Look();

  Runs runs_;
  const std::string token_;
  std::string address_;
  std::set<Session*> listeners_;
  bool looking_ = false;
  // Sessions are owned by its handlers and leave the set above when destroyed, so it must be destroyed first.
  std::unique_ptr<http::Server> http_;
};

/// One connection: requests one after the other, or news until it is closed.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(PageServer& server, std::shared_ptr<http::Connection> connection)
      : server_(&server), connection_(std::move(connection)) {}
  ~Session() { server_->Forget(this); }

  void Read() {
    head_only_ = false;
    connection_->ReadHead([self = shared_from_this()](http::Progress progress) {
      if (progress != http::Progress::kThere) return self->GotNone(progress);
      self->connection_->ReadBody([self](http::Progress whole) {
        if (whole != http::Progress::kThere) return self->GotNone(whole);
        self->Got(self->connection_->request());
      });
    });
  }

  /// Sends news of the run that this connection follows.
  void Tell() {
    if (writing_) return;
    const auto run = server_->runs().Get(run_);
    if (!run.ok()) {
      // Out of descriptors, a file server that takes its time: it may be there at the next look.
      if (run.status().code() == Code::kUnavailable && ++unavailable_looks_ < kUnavailableLooks) return;
      return Push(fmt::format("event: gone\ndata: {}\n\n", format::DumpJson(run.status().message())), true);
    }
    unavailable_looks_ = 0;
    const uint64_t generation = (*run)->generation();
    if (generation != told_) {
      told_ = generation;
      quiet_ = 0;
      return Push("event: news\ndata: " + format::DumpJson((*run)->News()) + "\n\n", false);
    }
    // Only writing shows that a connection is gone.
    if (++quiet_ >= kPingLooks) {
      quiet_ = 0;
      Push(": still here\n\n", false);
    }
  }

 private:
  // Close after a malformed request: what follows must not be taken for the next request.
  void GotNone(http::Progress progress) {
    if (progress == http::Progress::kGone) return connection_->Close();
    Refuse(progress == http::Progress::kBodyTooLong   ? 413
           : progress == http::Progress::kHeadTooLong ? 431
                                                      : 400,
           "this is no request for the page", false);
  }

  void Got(const http::Request& request) {
    const bool keep = request.keep_alive();
    head_only_ = request.method() == "HEAD";
    const std::string_view host = request.Header("Host");
    if (request.Count("Host") != 1 || !http::IsLoopbackHost(host))
      return Refuse(403, "the Host of this request is not this machine", false);
    // A link in somebody's notes leads here from another site. Whoever follows it sees a page, and no script
    // of that site does.
    const bool followed =
        request.Header("Sec-Fetch-Mode") == "navigate" && request.Header("Sec-Fetch-Dest") == "document";
    if (!http::IsOwnOrigin(request.Header("Origin"), host,
                           followed ? std::string_view() : request.Header("Sec-Fetch-Site")) ||
        request.Count("Origin") > 1)
      return Refuse(403, "another page may not ask here", false);
    if (request.method() != "GET" && !head_only_)
      return Refuse(405, "only GET: this server reads and changes nothing", false);
    const auto target = ParseTarget(request.target());
    if (!target) return Refuse(400, "this address cannot be read", keep);
    if (!http::SameToken(target->token, server_->token()))
      return Refuse(403, "the address lacks its token: open the one that tdbg view printed", keep);
    Answer(*target, keep);
  }

  void Answer(const Target& target, bool keep) {
    if (target.path == "/")
      return Send(301, "text/plain", "", keep, {{"Location", "/" + server_->token() + "/"}});
    if (target.question.name == "news" && !head_only_) return Listen(target.question);
    if (!target.question.name.empty()) {
      auto answer = server_->runs().Ask(target.question);
      if (answer.ok()) return Send(200, answer->media_type, std::move(answer->body), keep);
      return Send(StatusOf(answer.status()), "application/json",
                  query::JsonAnswer({{"error", answer.status().message()},
                                     {"kind", std::string(CodeName(answer.status().code()))}})
                      .body,
                  keep);
    }
    if (const page::File* const file = page::FindFile(target.path))
      return Send(200, std::string(file->media_type), std::string(file->body), keep);
    Refuse(404, "nothing lies here", keep);
  }

  void Refuse(int status, std::string why, bool keep) {
    Send(status, "text/plain; charset=utf-8", std::move(why) + "\n", keep);
  }

  static http::Headers Dressed(const std::string& media_type) {
    return {{"Content-Type", media_type},
            {"Cache-Control", "no-store"},
            {"Content-Security-Policy", kPolicy},
            {"X-Content-Type-Options", "nosniff"},
            {"Referrer-Policy", "no-referrer"},  // the token is part of the address
            {"Cross-Origin-Resource-Policy", "same-origin"},
            {"Cross-Origin-Opener-Policy", "same-origin"}};
  }

  void Send(int status, const std::string& media_type, std::string body, bool keep,
            const http::Headers& more = {}) {
    http::Headers headers = Dressed(media_type);
    headers.insert(headers.end(), more.begin(), more.end());
    std::string head = http::ResponseHead(status, headers, keep, body.size());
    if (head_only_) body.clear();
    connection_->Write(std::move(head), std::move(body), [self = shared_from_this(), keep](bool ok) {
      if (!ok || !keep) return self->connection_->Close();
      self->Read();
    });
  }

  void Listen(const query::Question& question) {
    if (const Status known = question.CheckKeys({"run"}); !known.ok())
      return Refuse(400, known.message(), false);
    run_ = question.Text("run");
    if (const auto run = server_->runs().Get(run_); !run.ok())
      return Refuse(StatusOf(run.status()), run.status().message(), false);
    connection_->Write(http::ResponseHead(200, Dressed("text/event-stream"), false, std::nullopt), "",
                       [self = shared_from_this()](bool ok) {
                         if (!ok) return self->connection_->Close();
                         // The client sends nothing more; only reading shows that it has closed.
                         self->connection_->AwaitClose([self] { self->connection_->Close(); });
                         self->server_->Listen(self.get());
                         self->Tell();
                       });
  }
  void Push(std::string text, bool last) {
    writing_ = true;
    connection_->Write("", std::move(text), [self = shared_from_this(), last](bool ok) {
      self->writing_ = false;
      if (!ok || last) self->connection_->Close();
    });
  }

  PageServer* server_;
  const std::shared_ptr<http::Connection> connection_;
  bool head_only_ = false, writing_ = false;
  std::string run_;
  uint64_t told_ = 0;
  int quiet_ = 0, unavailable_looks_ = 0;
};

Status PageServer::Open(uint16_t port) {
  http::Door door;
  door.port = port;
  door.limits = kLimits;
  door.visit = [this](std::shared_ptr<http::Connection> connection) {
    std::make_shared<Session>(*this, std::move(connection))->Read();
  };
  const auto opened = http_->Open(std::move(door));
  if (!opened.ok())
    return Unavailable(fmt::format("cannot listen on 127.0.0.1:{}: {}; choose another with --port", port,
                                   opened.status().message()));
  address_ = fmt::format("http://127.0.0.1:{}/{}/", *opened, token_);
  return OkStatus();
}

void PageServer::Look() {
  looking_ = true;
  http_->After(kLookEvery, [this] {
    looking_ = false;
    const std::set<Session*> listeners = listeners_;
    for (Session* const session : listeners) {
      if (listeners_.contains(session)) session->Tell();
    }
    if (!listeners_.empty() && !looking_) Look();
  });
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Listen(Options options) {
  auto server = std::make_unique<PageServer>(std::move(options.runs));
  TDBG_RETURN_IF_ERROR(server->Open(options.port));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace tdbg::server
