#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/hash_kernel.h"
#include "base/overwritten.h"

namespace tdbg::base {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// From the xxHash reference (XXH3_64bits, seed 0), so that files stay readable by other implementations.
TEST(HashTest, ValuesAreThoseOfXxh3) {
  EXPECT_EQ(Hex64(Hash64({})), "2d06800538d394c2");
  EXPECT_EQ(Hex64(Hash64(Bytes("a"))), "e6c632b61e964e1f");
  EXPECT_EQ(Hex64(Hash64(Bytes("abc"))), "78af5f94892f3950");
}

TEST(HashTest, CopyingHashEqualsThePlainOneAtEveryPieceBoundary) {
  std::mt19937_64 random(7);
  for (const size_t size : {0, 1, 7, 240, 241, 8191, 8192, 8193, 16384, 16385, 32768, 100000}) {
    std::vector<std::byte> from(size), to(size + 1, std::byte{0x5A});
    for (auto& b : from) b = static_cast<std::byte>(random());
    EXPECT_EQ(CopyAndHash64(to.data(), from), Hash64(from)) << size;
    EXPECT_TRUE(size == 0 || std::memcmp(to.data(), from.data(), size) == 0) << size;
    EXPECT_EQ(to[size], std::byte{0x5A}) << "wrote behind the end, size " << size;
    for (const size_t step : {1, 152, 8192, 9000}) {  // the same in pieces
      std::fill(to.begin(), to.end(), std::byte{0x5A});
      CopyingHash copy(to.data());
      for (size_t at = 0; at < size; at += step)
        copy.Put(std::span(from).subspan(at, std::min(step, size - at)));
      EXPECT_EQ(copy.Finish(), Hash64(from)) << size << " by " << step;
      EXPECT_TRUE(size == 0 || std::memcmp(to.data(), from.data(), size) == 0) << size << " by " << step;
      EXPECT_EQ(to[size], std::byte{0x5A}) << "wrote behind the end, size " << size << " by " << step;
    }
  }
}

// Another process can write to where a journal's records go.
TEST(HashTest, WhoOverwritesTheCopyDoesNotGetAHashOfTheirs) {
  const AliasedMemory memory(1 << 16);
  const Meanwhile others([&] { std::ranges::fill(memory.alias(), std::byte{2}); });
  const std::vector<std::byte> from(1 << 16, std::byte{1});
  for (const size_t size : {64, 8192, 1 << 16}) {
    const std::span bytes = std::span(from).first(size);
    const uint64_t expected = Hash64(bytes);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(CopyAndHash64(memory.bytes().data(), bytes), expected) << size;
  }
}

// xxhash.h as this file compiles it is the reference.
TEST(HashTest, EveryKernelGivesTheReferencesValues) {
  const HashKernel plain = {&HashMany, &Update};
  std::vector<std::byte> from(100000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
  for (const size_t size : {1000, 1024, 1025, 4096, 16384, 16385, 100000}) {
    const std::span bytes = std::span(from).first(size);
    const uint64_t expected = XXH3_64bits(from.data(), size);
    for (const HashKernel* kernel : {&plain, Avx2HashKernel()}) {
      if (kernel == nullptr) continue;
      EXPECT_EQ(kernel->hash(from.data(), size), expected) << size;
      XXH3_state_t state;
      XXH3_64bits_reset(&state);
      kernel->update(&state, from.data(), 700);
      kernel->update(&state, from.data() + 700, size - 700);
      EXPECT_EQ(XXH3_64bits_digest(&state), expected) << size;
    }
    EXPECT_EQ(Hash64(bytes), expected) << size;
  }
}

TEST(HashTest, OneFlippedBitChangesTheHash) {
  std::vector<std::byte> bytes(50000, std::byte{3});
  const uint64_t before = Hash64(bytes);
  bytes[49999] ^= std::byte{1};
  EXPECT_NE(Hash64(bytes), before);
}

TEST(HashTest, HexGoesThereAndBack) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{0x0123456789abcdef}, UINT64_MAX}) {
    uint64_t parsed = 42;
    ASSERT_TRUE(ParseHex64(Hex64(value), &parsed));
    EXPECT_EQ(parsed, value);
  }
}

TEST(HashTest, HexOfAnotherSpellingIsRefusedAndLeavesTheValueAlone) {
  uint64_t value = 42;
  for (const char* text : {"", "123", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF",
                           "0x23456789abcdef", "0123456789abcdeg", " 123456789abcdef"}) {
    EXPECT_FALSE(ParseHex64(text, &value)) << text;
  }
  EXPECT_EQ(value, 42u);
}

}  // namespace
}  // namespace tdbg::base
