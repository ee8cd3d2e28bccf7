#include "http/access.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace tdbg::http {

std::string RandomToken() {
  std::array<unsigned char, 16> bytes{};
  TDBG_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

bool SameToken(std::string_view given, std::string_view token) {
  unsigned difference = given.size() == token.size() ? 0 : 1;
  for (size_t i = 0; i < token.size(); ++i) {
    const char c = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned>(static_cast<unsigned char>(c ^ token[i]));
  }
  return difference == 0;
}

bool IsLoopbackHost(std::string_view host) {
  if (host.starts_with("[::1]")) {
    host.remove_prefix(5);
  } else {
    const size_t colon = host.find(':');
    std::string name(host.substr(0, colon));
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (name != "127.0.0.1" && name != "localhost") return false;
    host = colon == std::string_view::npos ? std::string_view() : host.substr(colon);
  }
  if (host.empty()) return true;
  if (host.front() != ':' || host.size() < 2 || host.size() > 6) return false;
  return std::ranges::all_of(host.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsOwnOrigin(std::string_view origin, std::string_view host, std::string_view fetch_site) {
  // "none": the address was typed, or opened from another program.
  if (!fetch_site.empty() && fetch_site != "same-origin" && fetch_site != "none") return false;
  return origin.empty() || origin == "http://" + std::string(host);
}

}  // namespace tdbg::http
