#include "service/local_aws.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "rulehost/host_command.h"
#include "service/reply.h"

namespace tdbg::service {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int64_t kStartMillis = 60'000;
constexpr int kLookMillis = 100;

tcp::endpoint At(uint16_t port) { return {asio::ip::address_v4::loopback(), port}; }

Result<uint16_t> FreePort() {
  asio::io_context context;
  tcp::acceptor acceptor(context);
  beast::error_code error;
  acceptor.open(tcp::v4(), error);
  if (!error) acceptor.bind(At(0), error);
  if (error) return Unavailable("no free port: " + error.message());
  return acceptor.local_endpoint().port();
}

std::string Between(const std::string& text, const std::string& tag) {
  const size_t begin = text.find("<" + tag + ">"), end = text.find("</" + tag + ">");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return text.substr(begin + tag.size() + 2, end - begin - tag.size() - 2);
}

}  // namespace

Status WriteEndpoints(const std::string& path, const Endpoints& endpoints) {
  const Json json = {{"service", endpoints.service},
                     {"remote", endpoints.remote},
                     {"s3", endpoints.s3},
                     {"region", endpoints.region},
                     {"account", endpoints.account},
                     {"access_key", endpoints.access_key},
                     {"secret_key", endpoints.secret_key},
                     {"session_token", endpoints.session_token},
                     {"pid", endpoints.pid}};
  // Credentials: nobody else's to read, from the first byte on.
  const mode_t before = ::umask(0077);
  const Status written = base::LocalFileSystem().WriteFileAtomic(path, json.dump(2) + "\n");
  ::umask(before);
  return written;
}

Result<Endpoints> ReadEndpoints(const std::string& path) {
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path));
  const Json json = Json::parse(text, nullptr, false);
  Endpoints endpoints;
  try {
    for (const auto& [name, member] :
         {std::pair("service", &endpoints.service), std::pair("remote", &endpoints.remote),
          std::pair("s3", &endpoints.s3), std::pair("region", &endpoints.region),
          std::pair("account", &endpoints.account), std::pair("access_key", &endpoints.access_key),
          std::pair("secret_key", &endpoints.secret_key),
          std::pair("session_token", &endpoints.session_token)})
      json.at(name).get_to(*member);
    json.at("pid").get_to(endpoints.pid);
  } catch (const Json::exception& wrong) {
    return DataLoss(path + ": " + wrong.what());
  }
  return endpoints;
}

LocalAws::~LocalAws() {
  child_.SignalGroup(SIGTERM);
  if (!child_.Wait(2000)) child_.SignalGroup(SIGKILL);
  (void)child_.Wait(2000);
}

Result<std::unique_ptr<LocalAws>> LocalAws::Start(uint16_t port, const std::string& region) {
  if (port == 0) {
    TDBG_ASSIGN_OR_RETURN(port, FreePort());
  }
  base::SpawnOptions spawn;
  spawn.argv = {rulehost::PythonInterpreter(), "-m", "moto.server", "-H", "127.0.0.1", "-p",
                std::to_string(port)};
  spawn.set_env = {{"MOTO_S3_CUSTOM_ENDPOINTS", ""}};
  spawn.pipe_stdin = true;
  spawn.die_with_thread = true;
  const base::UniqueFd nowhere = base::OpenFd("/dev/null", O_WRONLY);
  spawn.output_fd = nowhere.get();
  TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
  std::unique_ptr<LocalAws> aws(new LocalAws(std::move(child), port));
  const int64_t until = base::SystemClock().MonotonicNanos() + kStartMillis * 1'000'000;
  for (;;) {
    if (aws->child_.Wait(kLookMillis))
      return Unavailable(
          fmt::format("moto_server did not start: {} -m moto.server; `pip install 'moto[server,s3]'` into "
                      "that Python, or name another with TDBG_PYTHON",
                      spawn.argv[0]));
    asio::io_context context;
    tcp::socket socket(context);
    beast::error_code error;
    socket.connect(At(port), error);
    if (!error) break;
    if (base::SystemClock().MonotonicNanos() > until) return Unavailable("moto_server does not answer");
  }
  TDBG_RETURN_IF_ERROR(aws->AssumeRole(region));
  return aws;
}

Status LocalAws::AssumeRole(const std::string& region) {
  asio::io_context context;
  beast::tcp_stream stream(context);
  beast::error_code error;
  http::request<http::string_body> request(http::verb::post, "/", 11);
  request.set(http::field::host, fmt::format("127.0.0.1:{}", port_));
  request.set(http::field::content_type, "application/x-www-form-urlencoded");
  // moto tells services apart by the credential's scope.
  request.set(
      http::field::authorization,
      fmt::format("AWS4-HMAC-SHA256 Credential=tdbg/20200101/{}/sts/aws4_request, SignedHeaders=host, "
                  "Signature=0",
                  region));
  request.body() =
      "Action=AssumeRole&Version=2011-06-15&RoleSessionName=tdbg&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%"
      "3Arole%2F"
      "tdbg-service-role";
  request.prepare_payload();
  stream.expires_after(std::chrono::seconds(30));
  stream.connect(At(port_), error);
  if (!error) http::write(stream, request, error);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  if (!error) http::read(stream, buffer, response, error);
  if (error) return Unavailable("moto's STS: " + error.message());
  const std::string& xml = response.body();
  told_.access_key = Between(xml, "AccessKeyId");
  told_.secret_key = Between(xml, "SecretAccessKey");
  told_.session_token = Between(xml, "SessionToken");
  if (told_.access_key.empty()) return Unavailable("moto's STS gives no credentials: " + xml.substr(0, 200));
  return OkStatus();
}

void LocalAws::Tell(Endpoints* endpoints) const {
  endpoints->s3 = fmt::format("http://127.0.0.1:{}", port_);
  endpoints->account = "123456789012";
  endpoints->access_key = told_.access_key;
  endpoints->secret_key = told_.secret_key;
  endpoints->session_token = told_.session_token;
}

}  // namespace tdbg::service
