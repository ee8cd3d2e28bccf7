// SHA-256 and MD5 by OpenSSL, which uses the processor's instructions, so that uploads are hashed at the
// speed of memory. base::Sha256 is for a few hundred bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tdbg::storage {

/// Lower-case hexadecimal.
std::string Sha256Hex(std::span<const std::byte> bytes);
/// Likewise; empty where the system's OpenSSL has no MD5 (FIPS).
std::string Md5Hex(std::span<const std::byte> bytes);

}  // namespace tdbg::storage
