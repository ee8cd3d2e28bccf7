#include "service/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "events/change.h"
#include "http/access.h"
#include "http/response.h"
#include "http/server.h"

namespace tdbg::service {
namespace {

// Of each way.
constexpr http::Limits kLimits{
    .connections = 128, .head_bytes = 32 << 10, .body_bytes = 8u << 20, .idle = std::chrono::seconds(60)};
// Of a stranger's request, read to its end so that the answer arrives.
constexpr uint64_t kMostRefusedBytes = 64u << 10;
// Of a request that is too long, thrown away for the same reason.
constexpr uint64_t kMostUnreadBytes = 256u << 20;
constexpr std::chrono::seconds kLookEvery{2};
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

// Without the token, which is the first component where one is asked for; nothing: it is another one.
std::optional<std::string_view> PathBehind(const std::string& token, std::string_view path) {
  if (token.empty()) return path;
  if (path.size() < token.size() + 1 || path.front() != '/' ||
      !http::SameToken(path.substr(1, token.size()), token))
    return std::nullopt;
  path.remove_prefix(1 + token.size());
  if (path.empty()) return "/";
  return path.front() == '/' ? std::optional(path) : std::nullopt;
}

/// Why a request is not answered, by its headers alone.
std::optional<Refusal> Refused(const ListenerOptions& options, bool remote, const http::Request& request) {
  // A page in a browser can send requests here, too; no client of AWS says where it came from.
  if (!request.Header("Origin").empty() || !request.Header("Sec-Fetch-Site").empty() ||
      request.Count("Host") != 1 || (!remote && !http::IsLoopbackHost(request.Header("Host"))))
    return Refusal{"AccessDeniedException", remote ? "no page in a browser is answered"
                                                   : "requests come from this machine, and from no page in a "
                                                     "browser"};
  if (remote && !PathBehind(options.tls->token, request.target()))
    return Refusal{"UnrecognizedClientException",
                   "the address of this request has not the token of this service: `tdbg aws-env --remote` "
                   "prints the whole address"};
  const std::string_view key = AccessKeyOf(request.Header("Authorization"));
  if (std::ranges::none_of(options.access_keys,
                           [&](const std::string& one) { return http::SameToken(key, one); }))
    return Refusal{"UnrecognizedClientException",
                   "the access key of this request is not this service's: `tdbg aws-env -- COMMAND` sets it"};
  return std::nullopt;
}

/// \param token  of the path; empty: none is asked for
Result<Request> RequestOf(const http::Request& request, const std::string& token) {
  const auto path = PathBehind(token, request.target());
  if (!path) return NotFound("the token of the address is missing");
  const bool rest = path->starts_with(kFunctions);
  if (!rest && (request.method() != "POST" || request.Count("X-Amz-Target") != 1))
    return NotFound(
        "this is no request of AWS's JSON protocol: S3, STS and IAM have endpoints of their own (`tdbg "
        "aws-env` "
        "prints all of them)");
  return Request{request.method(),
                 *path,
                 rest ? std::string() : std::string(request.Header("X-Amz-Target")),
                 request.body(),
                 request.Header("X-Amz-Invocation-Type"),
                 request.Header("X-Amz-Log-Type")};
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

/// Head and body.
std::pair<std::string, std::string> Written(const Answer<Response>& answer, bool rest, bool keep) {
  const int status = StatusOf(answer, rest);
  http::Headers headers = {
      {"Content-Type", kMediaType}, {"x-amzn-RequestId", events::NewUuid()}, {"Cache-Control", "no-store"}};
  if (answer.ok()) headers.insert(headers.end(), answer->headers.begin(), answer->headers.end());
  const Json refusal =
      answer.ok() ? Json() : Json{{"__type", answer.refusal().code}, {"message", answer.refusal().message}};
  std::string body;
  if (status != 202 && status != 204)
    body = (answer.ok() ? answer->body : refusal).dump(-1, ' ', false, Json::error_handler_t::replace);
  return {http::ResponseHead(status, headers, keep, body.size()), std::move(body)};
}

/// One client: requests one after the other.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  /// \param remote  over TLS, from elsewhere
  Visit(const ListenerOptions& options, bool remote, std::shared_ptr<http::Connection> connection)
      : options_(&options), remote_(remote), connection_(std::move(connection)) {}

  void Read() {
    connection_->ReadHead([self = shared_from_this()](http::Progress progress) { self->GotHead(progress); });
  }

 private:
  void GotHead(http::Progress progress) {
    const bool too_long = progress == http::Progress::kBodyTooLong;
    if (progress != http::Progress::kThere && !too_long) return connection_->Close();
    // Nothing of a stranger's is kept.
    const http::Request& request = connection_->request();
    const auto refused = Refused(*options_, remote_, request);
    if (refused && too_long) return Send(*refused, false);
    if (too_long) return Got(progress);
    const auto length = request.content_length();
    if (refused && (request.chunked() || (length && *length > kMostRefusedBytes)))
      return Send(*refused, false);
    connection_->ReadBody([self = shared_from_this(), refused](http::Progress whole) {
      if (whole == http::Progress::kThere && refused)
        return self->Send(*refused, self->connection_->request().keep_alive());
      self->Got(whole);
    });
  }

  void Got(http::Progress progress) {
    if (progress == http::Progress::kBodyTooLong) {
      sends_on_ = true;
      return Send(Refusal{"RequestEntityTooLargeException", "a request holds 8 MiB at most"}, false);
    }
    // What is behind a request that was not understood is not to be taken for the next one.
    if (progress != http::Progress::kThere) return connection_->Close();
    const bool keep = connection_->request().keep_alive();
    const auto request = RequestOf(connection_->request(), remote_ ? options_->tls->token : std::string());
    if (!request.ok()) return Send(Refusal{"UnknownOperationException", request.status().message()}, keep);
    rest_ = request->target.empty();
    try {
      // Its request stays where it is until it is answered.
      options_->handle(*request, [self = shared_from_this(), keep](const Answer<Response>& answer) {
        self->connection_->Run([self, keep, answer] { self->Send(answer, keep); });
      });
    } catch (const std::exception& defect) {
      Send(Refusal{"InternalFailure", std::string("a defect of tdbg: ") + defect.what()}, false);
    }
  }

  void Send(const Answer<Response>& answer, bool keep) {
    auto [head, body] = Written(answer, rest_, keep);
    connection_->Write(std::move(head), std::move(body), [self = shared_from_this(), keep](bool ok) {
      if (ok && !keep && self->sends_on_) return self->connection_->LetSend(kMostUnreadBytes);
      if (!ok || !keep) return self->connection_->Close();
      self->Read();
    });
  }

  const ListenerOptions* options_;
  const bool remote_;
  const std::shared_ptr<http::Connection> connection_;
  bool rest_ = false;
  bool sends_on_ = false;  ///< a request that was answered before it was there
};

Result<std::shared_ptr<http::Tls>> TlsOf(const TlsOptions& options) {
  auto tls = std::make_shared<http::Tls>();
  if (const Status read = tls->UseCertificate(options.certificate); !read.ok())
    return InvalidArgument(fmt::format("--tls-cert {}: no certificate in PEM can be read: {}",
                                       options.certificate, read.message()));
  if (const Status read = tls->UseKey(options.key); !read.ok())
    return InvalidArgument(
        fmt::format("--tls-key {}: no private key in PEM that belongs to {} can be read: {}", options.key,
                    options.certificate, read.message()));
  return tls;
}

class HttpListener final : public Listener {
 public:
  explicit HttpListener(ListenerOptions options)
      : options_(std::move(options)), http_(http::Server::Create()) {}

  Status Open() {
    const auto opened = http_->Open(DoorAt("127.0.0.1", options_.port, nullptr));
    if (!opened.ok())
      return Unavailable(fmt::format("cannot listen on 127.0.0.1:{}: {}; choose another with --port",
                                     options_.port, opened.status().message()));
    port_ = *opened;
    return options_.tls ? OpenTls(*options_.tls) : OkStatus();
  }

  uint16_t port() const override { return port_; }
  uint16_t tls_port() const override { return tls_port_; }
  void Stop() override { http_->Stop(); }
  void Serve() override {
    Look();
    http_->Serve();
  }

 private:
  http::Door DoorAt(std::string address, uint16_t port, std::shared_ptr<http::Tls> tls) {
    http::Door door;
    door.address = std::move(address);
    door.port = port;
    door.limits = kLimits;
    door.visit = [this, remote = tls != nullptr](std::shared_ptr<http::Connection> connection) {
      std::make_shared<Visit>(options_, remote, std::move(connection))->Read();
    };
    door.tls = std::move(tls);
    return door;
  }
  Status OpenTls(const TlsOptions& options) {
    TDBG_ASSIGN_OR_RETURN(auto tls, TlsOf(options));
    const auto opened = http_->Open(DoorAt(options.address, options.port, std::move(tls)));
    if (opened.ok()) {
      tls_port_ = *opened;
      return OkStatus();
    }
    if (opened.status().code() == Code::kInvalidArgument)
      return InvalidArgument(fmt::format(
          "--host {}: accepted: an IP address of this machine, or 0.0.0.0 for all of them", options.address));
    return Unavailable(fmt::format("cannot listen on {} port {}: {}", options.address, options.port,
                                   opened.status().message()));
  }
  void Look() {
    if (options_.look) options_.look();
    http_->After(kLookEvery, [this] { Look(); });
  }

  const ListenerOptions options_;
  uint16_t port_ = 0, tls_port_ = 0;
  std::unique_ptr<http::Server> http_;  // below the options: visits that it still holds use them
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Listen(ListenerOptions options) {
  auto listener = std::make_unique<HttpListener>(std::move(options));
  TDBG_RETURN_IF_ERROR(listener->Open());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace tdbg::service
