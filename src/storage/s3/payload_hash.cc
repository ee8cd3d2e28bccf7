#include "storage/s3/payload_hash.h"

#include <openssl/evp.h>

#include <string_view>

#include "base/sha256.h"

namespace tdbg::storage {

std::string Sha256Hex(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    return base::HexOf(base::Sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  return base::HexOf({reinterpret_cast<const char*>(digest), size});
}

std::string Md5Hex(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_md5(), nullptr) != 1) return "";
  return base::HexOf({reinterpret_cast<const char*>(digest), size});
}

}  // namespace tdbg::storage
