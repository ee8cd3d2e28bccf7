// AWS Signature Version 4, the published algorithm. Not left to libcurl: Debian 12's signs correctly only if
// a request is in canonical form already, and versions differ in what they normalise.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tdbg::storage {

struct Credentials {
  std::string access_key, secret_key;
  std::string session_token;  ///< empty: none
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct SignedRequest {
  std::string method;
  std::string path;  ///< from "/" on, not encoded
  Pairs query;       ///< not encoded, in any order
  Pairs headers;     ///< all that are signed; "host" must be one of them
  std::string payload_hash;
  /// S3 encodes a path once and does not normalise it; every other service normalises it and encodes it
  /// twice.
  bool s3 = true;
};

/// Percent-encodes by RFC 3986, in upper case. \param keep_slash  leave '/' as it is
std::string UriEncode(std::string_view text, bool keep_slash);
/// "a=1&b=", sorted and encoded, for the signature and for the request.
std::string CanonicalQuery(const Pairs& query);
std::string CanonicalRequest(const SignedRequest& request);
/// \param time  "20130524T000000Z"
std::string StringToSign(const SignedRequest& request, std::string_view time, std::string_view region,
                         std::string_view service);
/// The value of the Authorization header.
std::string Authorization(const SignedRequest& request, const Credentials& credentials, std::string_view time,
                          std::string_view region, std::string_view service);

}  // namespace tdbg::storage
