// Who may ask. Pure functions, so that a test can try every case.
#pragma once

#include <string>
#include <string_view>

namespace tdbg::http {

/// 32 random hexadecimal digits from the kernel's generator.
std::string RandomToken();

/// Compares in constant time, so that timing does not tell how many characters were right.
bool SameToken(std::string_view given, std::string_view token);

/// True if a request's Host is "127.0.0.1", "localhost" or "[::1]". Protects against DNS rebinding: the page
/// of another site whose name was rebound to 127.0.0.1 still sends its own name. The port may be any, since a
/// tunnel changes it.
bool IsLoopbackHost(std::string_view host);

/// Whether the page that asks is our own, by what the browser sends. \param origin, fetch_site  empty: not
/// sent
bool IsOwnOrigin(std::string_view origin, std::string_view host, std::string_view fetch_site);

}  // namespace tdbg::http
