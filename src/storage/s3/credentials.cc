#include "storage/s3/credentials.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "storage/s3/xml.h"

namespace tdbg::storage {
namespace {

constexpr int64_t kRefreshNanos = 300'000'000'000;  // before they expire, as AWS's tools do
constexpr uint64_t kMaxAnswer = 1u << 20;

std::string Home(const Environment& environment) { return environment("HOME"); }

std::string Expanded(std::string path, const Environment& environment) {
  if (path.starts_with("~/")) path = Home(environment) + path.substr(1);
  return path;
}

// A missing file counts as empty; one that cannot be read is an error.
Result<IniFile> ReadIni(const Environment& environment, const char* variable, const char* usual) {
  std::string path = environment(variable);
  if (path.empty()) path = usual;
  path = Expanded(std::move(path), environment);
  const auto text = base::LocalFileSystem().ReadFile(path);
  if (text.ok()) return ParseIni(*text);
  if (text.status().code() == Code::kNotFound) return IniFile();
  return FailedPrecondition("cannot read AWS's settings: " + text.status().message());
}

bool IsLoopback(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return false;
  // Whole, so that 127.0.0.1.example.org and localhost@example.org are what they are.
  std::string host = url.substr(scheme + 3, url.find_first_of("/?#\\", scheme + 3) - scheme - 3);
  if (const size_t port = host.rfind(':'); port != std::string::npos && host.find(']', port) == host.npos)
    host.resize(port);
  for (const char* const allowed :
       {"localhost", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"}) {
    if (host == allowed) return true;
  }
  in_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

std::string Field(const nlohmann::json& json, const char* name) {
  const auto at = json.find(name);
  return at != json.end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace

std::string ProcessEnvironment(const std::string& name) {
  const char* const value = ::getenv(name.c_str());
  return value ? value : "";
}

IniFile ParseIni(std::string_view text) {
  IniFile file;
  std::string section;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    // An indented line is a nested setting of the line before (s3 =\n  max_...).
    const bool nested = whole.starts_with(' ') || whole.starts_with('\t');
    const std::string_view line = base::Trim(whole);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      section = base::Trim(line.substr(1, line.find(']') == std::string_view::npos ? 0 : line.find(']') - 1));
      if (section.starts_with("profile ")) section = base::Trim(std::string_view(section).substr(8));
      continue;
    }
    const size_t equals = line.find('=');
    if (section.empty() || equals == std::string_view::npos) continue;
    const std::string name(base::Trim(line.substr(0, equals)));
    file[section][nested ? "s3." + name : name] = base::Trim(line.substr(equals + 1));
  }
  return file;
}

Result<Settings> ReadSettings(const Environment& environment) {
  Settings settings;
  TDBG_ASSIGN_OR_RETURN(const IniFile config, ReadIni(environment, "AWS_CONFIG_FILE", "~/.aws/config"));
  TDBG_ASSIGN_OR_RETURN(const IniFile credentials,
                        ReadIni(environment, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"));
  settings.profile_name = environment("AWS_PROFILE");
  const bool named = !settings.profile_name.empty();
  if (!named) settings.profile_name = "default";
  const auto of_config = config.find(settings.profile_name);
  const auto of_credentials = credentials.find(settings.profile_name);
  if (of_config != config.end()) settings.profile = of_config->second;
  if (of_credentials != credentials.end()) {
    for (const auto& [name, value] : of_credentials->second) settings.profile[name] = value;
  }
  if (named && of_config == config.end() && of_credentials == credentials.end())
    return InvalidArgument("AWS_PROFILE: found '" + settings.profile_name +
                           "'; neither ~/.aws/credentials nor ~/.aws/config has such a profile");
  const auto setting = [&](const char* name) {
    const auto at = settings.profile.find(name);
    return at == settings.profile.end() ? std::string() : at->second;
  };
  for (const std::string& region : {environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"),
                                    setting("region"), std::string("us-east-1")}) {
    if (settings.region.empty()) settings.region = region;
  }
  for (const std::string& endpoint :
       {environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"), setting("endpoint_url")}) {
    if (settings.endpoint.empty()) settings.endpoint = endpoint;
  }
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!settings.endpoint.empty() && !settings.endpoint.starts_with("http://") &&
      !settings.endpoint.starts_with("https://"))
    return InvalidArgument("AWS_ENDPOINT_URL: found '" + settings.endpoint +
                           "'; accepted: http://HOST:PORT, https://HOST:PORT");
  settings.certificates = environment("AWS_CA_BUNDLE");
  if (settings.certificates.empty()) settings.certificates = Expanded(setting("ca_bundle"), environment);
  // With a custom endpoint, BUCKET.HOST mostly does not resolve.
  settings.path_style = setting("s3.addressing_style") == "path" ||
                        (!settings.endpoint.empty() && setting("s3.addressing_style") != "virtual");
  return settings;
}

CredentialSource::CredentialSource(Settings settings, Environment environment, HttpClient* http)
    : settings_(std::move(settings)), environment_(std::move(environment)), http_(http) {}

void CredentialSource::Forget() {
  const std::lock_guard guard(mutex_);
  found_.reset();
}

Result<Credentials> CredentialSource::Get() {
  const std::lock_guard guard(mutex_);
  const int64_t now = base::SystemClock().WallNanos();
  const bool fresh =
      found_ && (found_->expires_wall_nanos == 0 || found_->expires_wall_nanos - kRefreshNanos > now);
  if (!fresh) {
    auto looked = Look();
    // The current ones are still valid for some minutes.
    const bool still = found_ && found_->expires_wall_nanos > now;
    if (!looked.ok() && !still) return looked.status();
    if (looked.ok()) found_ = *std::move(looked);
  }
  return found_->credentials;
}

Result<CredentialSource::Found> CredentialSource::Look() {
  Found found;
  found.credentials = {environment_("AWS_ACCESS_KEY_ID"), environment_("AWS_SECRET_ACCESS_KEY"),
                       environment_("AWS_SESSION_TOKEN")};
  if (!found.credentials.access_key.empty() && !found.credentials.secret_key.empty()) return found;
  const std::string token_file = environment_("AWS_WEB_IDENTITY_TOKEN_FILE"),
                    role = environment_("AWS_ROLE_ARN");
  if (!token_file.empty() && !role.empty())
    return WebIdentity(role, token_file, environment_("AWS_ROLE_SESSION_NAME"));
  const auto setting = [&](const char* name) {
    const auto at = settings_.profile.find(name);
    return at == settings_.profile.end() ? std::string() : at->second;
  };
  if (!setting("role_arn").empty() && !setting("web_identity_token_file").empty())
    return WebIdentity(setting("role_arn"), setting("web_identity_token_file"), setting("role_session_name"));
  found.credentials = {setting("aws_access_key_id"), setting("aws_secret_access_key"),
                       setting("aws_session_token")};
  if (!found.credentials.access_key.empty() && !found.credentials.secret_key.empty()) return found;
  if (!environment_("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
      !environment_("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty())
    return Container();
  TDBG_ASSIGN_OR_RETURN(std::optional<Found> instance, Instance());
  if (instance) return *std::move(instance);
  return FailedPrecondition(
      "no AWS credentials: none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in profile '" +
      settings_.profile_name + "' of ~/.aws/credentials, from a container or from this machine");
}

Result<HttpAnswer> CredentialSource::Ask(const HttpRequest& asked) {
  HttpRequest request = asked;
  request.most_bytes = kMaxAnswer;
  request.total_millis = 5'000;
  Result<HttpAnswer> answer = Unavailable("not asked");
  for (int i = 0; i < 3; ++i) {
    if (i > 0) ::usleep(200'000u << i);
    answer = http_->Send(request);
    if (answer.ok() && answer->status < 500) break;
  }
  return answer;
}

Result<CredentialSource::Found> CredentialSource::WebIdentity(const std::string& role,
                                                              const std::string& token_file,
                                                              const std::string& session) {
  const auto token = base::LocalFileSystem().ReadFile(Expanded(token_file, environment_), kMaxAnswer);
  if (!token.ok()) return FailedPrecondition("the web identity's token: " + token.status().message());
  std::string endpoint = environment_("AWS_ENDPOINT_URL_STS");
  if (endpoint.empty()) endpoint = environment_("AWS_ENDPOINT_URL");
  if (endpoint.empty()) endpoint = "https://sts." + settings_.region + ".amazonaws.com";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::string body = CanonicalQuery({{"Action", "AssumeRoleWithWebIdentity"},
                                           {"Version", "2011-06-15"},
                                           {"RoleArn", role},
                                           {"RoleSessionName", session.empty() ? "tdbg" : session},
                                           {"WebIdentityToken", std::string(base::Trim(*token))}});
  HttpRequest request;
  request.method = "POST";
  request.url = endpoint + "/";
  request.headers = {{"Content-Type", "application/x-www-form-urlencoded"}};
  request.body = std::as_bytes(std::span(body));
  TDBG_ASSIGN_OR_RETURN(const HttpAnswer answer, Ask(request));
  const auto xml = ParseXml(answer.body);
  const XmlNode* node = xml.ok() ? xml->Find("AssumeRoleWithWebIdentityResult") : nullptr;
  if (node != nullptr) node = node->Find("Credentials");
  if (answer.status != 200 || node == nullptr)
    return FailedPrecondition("STS gives no credentials for " + role + " (" + std::to_string(answer.status) +
                              ")");
  return Found{{node->TextOf("AccessKeyId"), node->TextOf("SecretAccessKey"), node->TextOf("SessionToken")},
               ParseIsoTime(node->TextOf("Expiration"))};
}

Result<CredentialSource::Found> CredentialSource::Container() {
  HttpRequest request;
  const std::string relative = environment_("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  request.url = relative.empty() ? environment_("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                                 : "http://169.254.170.2" + relative;
  // The answer is a secret: plain http is allowed only to this machine.
  if (!request.url.starts_with("https://") && !IsLoopback(request.url))
    return InvalidArgument("AWS_CONTAINER_CREDENTIALS_FULL_URI: found '" + request.url +
                           "'; accepted: https, or http to this machine");
  request.direct = !request.url.starts_with("https://");
  std::string token = environment_("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string file = environment_("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty()) {
    TDBG_ASSIGN_OR_RETURN(token, base::LocalFileSystem().ReadFile(file, kMaxAnswer));
    token = base::Trim(token);
  }
  if (token.find_first_of("\r\n") != std::string::npos)
    return InvalidArgument("AWS_CONTAINER_AUTHORIZATION_TOKEN has more than one line");
  if (!token.empty()) request.headers = {{"Authorization", token}};
  TDBG_ASSIGN_OR_RETURN(const HttpAnswer answer, Ask(request));
  const auto json = nlohmann::json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !json.is_object() || Field(json, "AccessKeyId").empty())
    return FailedPrecondition("the container's endpoint gives no credentials (" +
                              std::to_string(answer.status) + ")");
  return Found{{Field(json, "AccessKeyId"), Field(json, "SecretAccessKey"), Field(json, "Token")},
               ParseIsoTime(Field(json, "Expiration"))};
}

Result<std::optional<CredentialSource::Found>> CredentialSource::Instance() {
  if (environment_("AWS_EC2_METADATA_DISABLED") == "true") return std::optional<Found>();
  std::string endpoint = environment_("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (endpoint.empty()) endpoint = "http://169.254.169.254";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::string role_path = "/latest/meta-data/iam/security-credentials/";
  HttpRequest request;
  // Outside EC2 nothing answers at this address: give up after a second.
  request.connect_millis = 1'000;
  request.total_millis = 2'000;
  request.most_bytes = kMaxAnswer;
  request.direct = true;
  request.method = "PUT";
  request.url = endpoint + "/latest/api/token";
  request.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}};
  const auto token = http_->Send(request);
  if (!token.ok() || token->status != 200) return std::optional<Found>();
  request.method = "GET";
  request.headers = {{"X-aws-ec2-metadata-token", token->body}};
  request.url = endpoint + role_path;
  TDBG_ASSIGN_OR_RETURN(const HttpAnswer role, Ask(request));
  if (role.status != 200) return std::optional<Found>();
  request.url = endpoint + role_path + std::string(base::Trim(role.body));
  TDBG_ASSIGN_OR_RETURN(const HttpAnswer answer, Ask(request));
  const auto json = nlohmann::json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !json.is_object() || Field(json, "AccessKeyId").empty())
    return FailedPrecondition("this machine's metadata service gives no credentials (" +
                              std::to_string(answer.status) + ")");
  return std::optional<Found>(
      Found{{Field(json, "AccessKeyId"), Field(json, "SecretAccessKey"), Field(json, "Token")},
            ParseIsoTime(Field(json, "Expiration"))});
}

}  // namespace tdbg::storage
