#include "service/local_aws.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "format/json_fields.h"
#include "rulehost/host_command.h"
#include "service/loopback.h"

namespace tdbg::service {
namespace {

constexpr int64_t kStartMillis = 60'000;
constexpr int kLookMillis = 100;
constexpr int kAnswerMillis = 30'000;

constexpr std::pair<const char*, std::string Endpoints::*> kTexts[] = {
    {"service", &Endpoints::service},
    {"remote", &Endpoints::remote},
    {"s3", &Endpoints::s3},
    {"region", &Endpoints::region},
    {"account", &Endpoints::account},
    {"access_key", &Endpoints::access_key},
    {"secret_key", &Endpoints::secret_key},
    {"session_token", &Endpoints::session_token}};

std::string Between(const std::string& text, const std::string& tag) {
  const size_t begin = text.find("<" + tag + ">"), end = text.find("</" + tag + ">");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return text.substr(begin + tag.size() + 2, end - begin - tag.size() - 2);
}

}  // namespace

std::map<std::string, std::string> ClientEnvironment(const Endpoints& endpoints) {
  std::map<std::string, std::string> environment = {
      {"AWS_ACCESS_KEY_ID", endpoints.access_key},
      {"AWS_SECRET_ACCESS_KEY", endpoints.secret_key},
      {"AWS_REGION", endpoints.region},
      {"AWS_DEFAULT_REGION", endpoints.region},
      {"AWS_EC2_METADATA_DISABLED", "true"},
      {"AWS_ENDPOINT_URL_SAGEMAKER", endpoints.service},
      {"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", endpoints.service},
      {"AWS_ENDPOINT_URL_EVENTBRIDGE", endpoints.service},
      {"AWS_ENDPOINT_URL_LAMBDA", endpoints.service},
      {"SAGEMAKER_SUPPRESS_V2_WARNING", "1"},
  };
  if (!endpoints.session_token.empty()) environment["AWS_SESSION_TOKEN"] = endpoints.session_token;
  if (!endpoints.s3.empty()) {
    for (const char* const name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL_IAM"})
      environment[name] = endpoints.s3;
  }
  return environment;
}

Status WriteEndpoints(const std::string& path, const Endpoints& endpoints) {
  format::Json json;
  for (const auto& [name, member] : kTexts) json[name] = endpoints.*member;
  json["pid"] = endpoints.pid;
  // Credentials: nobody else's to read, from the first byte on.
  const mode_t before = ::umask(0077);
  const Status written = base::LocalFileSystem().WriteFileAtomic(path, format::DumpJson(json) + "\n");
  ::umask(before);
  return written;
}

Result<Endpoints> ReadEndpoints(const std::string& path) {
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path));
  TDBG_ASSIGN_OR_RETURN(const format::Json json, format::ParseJsonObject(text, path));
  Endpoints endpoints;
  bool whole = format::GetField(json, "pid", &endpoints.pid);
  for (const auto& [name, member] : kTexts)
    whole = format::GetField(json, name, &(endpoints.*member)) && whole;
  if (!whole) return DataLoss(path + ": these are not all of a server's endpoints");
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
    if (Connect(port).ok()) break;
    if (base::SystemClock().MonotonicNanos() > until) return Unavailable("moto_server does not answer");
  }
  TDBG_RETURN_IF_ERROR(aws->AssumeRole(region));
  return aws;
}

Status LocalAws::AssumeRole(const std::string& region) {
  constexpr std::string_view kBody =
      "Action=AssumeRole&Version=2011-06-15&RoleSessionName=tdbg&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%"
      "3Arole%2F"
      "tdbg-service-role";
  // HTTP/1.0: the answer ends with the connection. moto tells services apart by the credential's scope.
  const std::string request = fmt::format(
      "POST / HTTP/1.0\r\n"
      "Host: 127.0.0.1:{}\r\n"
      "Content-Type: application/x-www-form-urlencoded\r\n"
      "Authorization: AWS4-HMAC-SHA256 Credential=tdbg/20200101/{}/sts/aws4_request, SignedHeaders=host, "
      "Signature=0\r\n"
      "Content-Length: {}\r\n\r\n{}",
      port_, region, kBody.size(), kBody);
  const auto answer = Exchange(port_, request, kAnswerMillis);
  if (!answer.ok()) return Unavailable("moto's STS: " + answer.status().message());
  const std::string xml = answer->substr(std::min(answer->find("\r\n\r\n"), answer->size()));
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
