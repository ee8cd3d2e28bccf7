// AWS's JSON protocol over HTTP: on this machine's loopback, and elsewhere over TLS.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/reply.h"
#include "tdbg/status.h"

namespace tdbg::service {

struct Request {
  std::string_view method, path;
  std::string target;  ///< X-Amz-Target; empty: a REST call
  std::string_view body;
  /// X-Amz-Invocation-Type and X-Amz-Log-Type, Lambda's.
  std::string_view invocation_type, log_type;
};

using Done = std::function<void(const Answer<Response>& answer)>;

/// Where others than this machine ask.
struct TlsOptions {
  std::string address;           ///< an IP address of this machine; 0.0.0.0 or :: are all of them
  uint16_t port = 0;             ///< 0: any that is free
  std::string certificate, key;  ///< files in PEM; the certificate with those that it is signed by
  std::string token;             ///< the first component of each request's path
};

struct ListenerOptions {
  uint16_t port = 0;  ///< 0: any that is free
  std::optional<TlsOptions> tls;
  /// Access keys that may ask. A signature is not looked at: who reads the server's files has its secrets,
  /// too.
  std::vector<std::string> access_keys;
  /// Answers one request by calling `done`, once: at once, or later and from any thread, as long as the
  /// listener is there. What it throws is an InternalFailure.
  std::function<void(const Request& request, Done done)> handle;
  /// Called every few seconds.
  std::function<void()> look;
};

/// Serves until it is stopped. A request that is none gets an error or its connection closed; whatever it
/// holds, nothing else happens.
class Listener {
 public:
  /// \error kUnavailable      the port is taken
  /// \error kInvalidArgument  no such address, or no such certificate
  static Result<std::unique_ptr<Listener>> Listen(ListenerOptions options);
  virtual ~Listener() = default;
  virtual uint16_t port() const = 0;
  virtual uint16_t tls_port() const = 0;  ///< 0: none
  /// Answers, on the calling thread, until SIGINT, SIGTERM, or Stop from `look` or `handle`.
  virtual void Serve() = 0;
  virtual void Stop() = 0;
};

}  // namespace tdbg::service
