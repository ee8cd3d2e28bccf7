// moto_server as S3, STS and IAM of this machine, and what the service's clients need to know.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/process.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// What a client's environment holds; server.json, for `tdbg aws-env`.
struct Endpoints {
  std::string service;  ///< "http://127.0.0.1:4040"
  std::string remote;   ///< the same from elsewhere, its token included; empty: it is not served there
  std::string s3;       ///< of S3, STS and IAM; empty: AWS's own
  std::string region, account;
  std::string access_key, secret_key, session_token;
  int64_t pid = 0;
};
Status WriteEndpoints(const std::string& path, const Endpoints& endpoints);
/// \error kNotFound  no server has been started there; kDataLoss
Result<Endpoints> ReadEndpoints(const std::string& path);

/// Below the directory of the service's jobs.
inline constexpr const char* kServerFile = "server.json";
/// What a program's environment holds that is to find the service and its bucket.
std::map<std::string, std::string> ClientEnvironment(const Endpoints& endpoints);

/// A running moto_server. It ends with this process; its bytes are in memory, and end with it.
class LocalAws {
 public:
  /// Waits until it answers, and takes credentials of a role from it, so that whoever asks STS is told of a
  /// role.
  /// \error kUnavailable  moto is not installed for the Python that tdbg uses, or does not start
  static Result<std::unique_ptr<LocalAws>> Start(uint16_t port, const std::string& region);
  ~LocalAws();
  uint16_t port() const { return port_; }
  /// Fills in s3, account and the credentials.
  void Tell(Endpoints* endpoints) const;
  bool Lives() { return !child_.Wait(0); }

 private:
  LocalAws(base::Child child, uint16_t port) : child_(std::move(child)), port_(port) {}
  Status AssumeRole(const std::string& region);

  base::Child child_;
  uint16_t port_;
  Endpoints told_;
};

}  // namespace tdbg::service
