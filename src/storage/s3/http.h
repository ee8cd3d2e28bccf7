// HTTP by libcurl: one request, one answer. No retries, no signatures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::storage {

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  std::span<const std::byte> body;  ///< borrowed
  uint64_t most_bytes = 0;          ///< of the answer's body; a longer one is an error
  int64_t connect_millis = 5'000, silent_millis = 20'000;
  int64_t total_millis = 0;  ///< 0: as long as something moves
  bool direct = false;       ///< past any proxy: what is asked of this machine is nobody else's
};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;

  std::string Header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? "" : at->second;
  }
};

/// Keeps connections open between requests. \threadsafety Any thread.
class HttpClient {
 public:
  /// \param certificates  a file of those that servers' certificates must lead to; empty: the system's
  explicit HttpClient(std::string certificates = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  /// The answer, whatever its status. Follows no redirection, since a signature is for one host.
  /// \error kUnavailable  no answer, or one that broke off (its body is shorter than announced);
  /// kFailedPrecondition  the server's certificate is not to be trusted, and nothing was sent
  Result<HttpAnswer> Send(const HttpRequest& request);

 private:
  const std::string certificates_;
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace tdbg::storage
