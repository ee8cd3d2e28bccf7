// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for signatures that other programs check.
#pragma once

#include <string>
#include <string_view>

namespace tdbg::base {

/// 32 bytes.
std::string Sha256(std::string_view text);
std::string HmacSha256(std::string_view key, std::string_view text);
/// Lower-case hexadecimal.
std::string HexOf(std::string_view bytes);

}  // namespace tdbg::base
