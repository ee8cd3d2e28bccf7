#include "storage/s3/sigv4.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/sha256.h"

namespace tdbg::storage {
namespace {

using base::HexOf;
using base::HmacSha256;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Trims blanks and replaces several in a row by one.
std::string Squeezed(std::string_view value) {
  std::string squeezed;
  for (const char c : value) {
    const bool blank = c == ' ' || c == '\t' || c == '\n';
    if (blank && (squeezed.empty() || squeezed.back() == ' ')) continue;
    squeezed += blank ? ' ' : c;
  }
  if (squeezed.ends_with(' ')) squeezed.pop_back();
  return squeezed;
}

// Lower-case name -> values in the order in which they were given.
std::map<std::string, std::string> CanonicalHeaders(const Pairs& headers) {
  std::map<std::string, std::string> canonical;
  for (const auto& [name, value] : headers) {
    const auto [at, is_new] = canonical.emplace(Lower(name), Squeezed(value));
    if (!is_new) at->second += "," + Squeezed(value);
  }
  return canonical;
}

std::string SignedHeaders(const Pairs& headers) {
  std::string names;
  for (const auto& [name, value] : CanonicalHeaders(headers)) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string Scope(std::string_view time, std::string_view region, std::string_view service) {
  return std::string(time.substr(0, 8)) + "/" + std::string(region) + "/" + std::string(service) +
         "/aws4_request";
}

// "/a/./b//../c" -> "/a/c": for services other than S3 (RFC 3986, 5.2.4; slashes that repeat are one).
std::string Normalized(std::string_view path) {
  std::vector<std::string_view> parts;
  const bool ends_with_slash = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
  for (size_t at = 0; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, slash - at);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    at = slash + 1;
  }
  std::string normal;
  for (const std::string_view part : parts) normal += "/" + std::string(part);
  if (normal.empty() || ends_with_slash) normal += "/";
  return normal;
}

}  // namespace

std::string UriEncode(std::string_view text, bool keep_slash) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keep_slash);
    if (plain) {
      encoded += c;
    } else {
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

std::string CanonicalQuery(const Pairs& query) {
  Pairs encoded;
  for (const auto& [name, value] : query)
    encoded.emplace_back(UriEncode(name, false), UriEncode(value, false));
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string CanonicalRequest(const SignedRequest& request) {
  const std::string path =
      request.s3 ? UriEncode(request.path, true) : UriEncode(UriEncode(Normalized(request.path), true), true);
  std::string text = request.method + "\n" + path + "\n" + CanonicalQuery(request.query) + "\n";
  for (const auto& [name, value] : CanonicalHeaders(request.headers)) text += name + ":" + value + "\n";
  return text + "\n" + SignedHeaders(request.headers) + "\n" + request.payload_hash;
}

std::string StringToSign(const SignedRequest& request, std::string_view time, std::string_view region,
                         std::string_view service) {
  return "AWS4-HMAC-SHA256\n" + std::string(time) + "\n" + Scope(time, region, service) + "\n" +
         HexOf(base::Sha256(CanonicalRequest(request)));
}

std::string Authorization(const SignedRequest& request, const Credentials& credentials, std::string_view time,
                          std::string_view region, std::string_view service) {
  const std::string day = HmacSha256("AWS4" + credentials.secret_key, time.substr(0, 8));
  const std::string key = HmacSha256(HmacSha256(HmacSha256(day, region), service), "aws4_request");
  return "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + Scope(time, region, service) +
         ", SignedHeaders=" + SignedHeaders(request.headers) +
         ", Signature=" + HexOf(HmacSha256(key, StringToSign(request, time, region, service)));
}

}  // namespace tdbg::storage
