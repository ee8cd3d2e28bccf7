#include "cuda/image.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace tdbg::cuda {
namespace {

TEST(CudaImageTest, IsAWholeFatBinaryAtAnAlignedAddress) {
  const std::span<const std::byte> image = Image();
  struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
  } header;
  ASSERT_GT(image.size(), sizeof header);
  std::memcpy(&header, image.data(), sizeof header);
  EXPECT_EQ(header.magic, 0xba55ed50u);
  EXPECT_EQ(header.header_bytes + header.bytes, image.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(image.data()) % 16, 0u);
}

}  // namespace
}  // namespace tdbg::cuda
