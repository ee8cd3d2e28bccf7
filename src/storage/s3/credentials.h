// Credentials, region and endpoint, found as AWS's own tools find them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "storage/s3/http.h"
#include "storage/s3/sigv4.h"
#include "tdbg/status.h"

namespace tdbg::storage {

/// Looks up a variable of the environment; empty: not set.
using Environment = std::function<std::string(const std::string&)>;
std::string ProcessEnvironment(const std::string& name);

/// The sections of AWS's INI files: [default], [profile NAME], [NAME].
using IniFile = std::map<std::string, std::map<std::string, std::string>>;
/// Lines that are not a section, setting or comment are ignored, as AWS's tools do.
IniFile ParseIni(std::string_view text);

struct Settings {
  std::string region;    ///< us-east-1 if none is set
  std::string endpoint;  ///< "https://host:port/base"; empty: AWS's endpoint of the region
  bool path_style = false;
  std::map<std::string, std::string>
      profile;  ///< the profile's settings in both files; those of the credentials file win
  std::string profile_name;
  std::string certificates;  ///< a file of those that a store's certificate must lead to; empty: the system's
};

/// AWS_REGION, AWS_DEFAULT_REGION, AWS_PROFILE, AWS_ENDPOINT_URL(_S3), AWS_CA_BUNDLE, AWS_CONFIG_FILE,
/// AWS_SHARED_CREDENTIALS_FILE and the profile. \error kInvalidArgument  the named profile does
/// not exist, or the endpoint is not an http URL
Result<Settings> ReadSettings(const Environment& environment);

/// Credentials from the first source that has any: variables, web identity, the profile, the container's
/// endpoint, the instance's. Renewed shortly before they expire. \threadsafety Any thread.
class CredentialSource {
 public:
  CredentialSource(Settings settings, Environment environment, HttpClient* http);
  /// \error kFailedPrecondition  no source has any (the message names them); kUnavailable  an endpoint failed
  Result<Credentials> Get();
  /// Call when credentials were refused as expired: the next Get asks their source again.
  void Forget();

 private:
  struct Found {
    Credentials credentials;
    int64_t expires_wall_nanos = 0;  ///< 0: never
  };
  Result<Found> Look();
  Result<Found> WebIdentity(const std::string& role, const std::string& token_file,
                            const std::string& session);
  Result<Found> Container();
  Result<std::optional<Found>> Instance();
  Result<HttpAnswer> Ask(const HttpRequest& request);

  const Settings settings_;
  const Environment environment_;
  HttpClient* const http_;
  std::mutex mutex_;
  std::optional<Found> found_;  ///< guarded by mutex_
};

}  // namespace tdbg::storage
