// By what a server shows who it is.
#pragma once

#include <memory>
#include <string>

#include "tdbg/status.h"

namespace tdbg::http {

/// A certificate and its key, for TLS 1.2 and later.
class Tls {
 public:
  Tls();
  ~Tls();
  /// \param file  PEM, with the certificates that it is signed by \error kInvalidArgument  OpenSSL's reason
  Status UseCertificate(const std::string& file);
  /// After UseCertificate. \param file  PEM \error kInvalidArgument  OpenSSL's reason
  Status UseKey(const std::string& file);

  struct Context;
  Context& context() { return *context_; }

 private:
  std::unique_ptr<Context> context_;
};

}  // namespace tdbg::http
