#include "tfevents/record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing.h"
#include "tfevents/crc32c.h"

namespace tdbg::tfevents {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string Framed(std::string_view payload, Footer footer) {
  const auto head = EncodeRecordHeader(payload.size());
  const auto foot = EncodeRecordFooter(Bytes(payload), footer);
  std::string out(reinterpret_cast<const char*>(head.data()), head.size());
  out += payload;
  return out.append(reinterpret_cast<const char*>(foot.data()), foot.size());
}

// RFC 3720, B.4.
TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, TableAndInstructionAgree) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Crc32c(Bytes(text)), internal::Crc32cByTable(Bytes(text))) << text.size();
    text.push_back(static_cast<char>(i * 37 + 11));
  }
}

TEST(Record, SmdebugsConstantIsWhatItsWriterComputes) {
  EXPECT_EQ(MaskedCrc32c(Bytes("0x12345678")), kSmdebugFooter);
}

TEST(Record, RoundTrip) {
  for (const Footer footer : {Footer::kPayloadCrc, Footer::kSmdebug}) {
    for (const std::string& payload : {std::string(), std::string("x"), std::string(1000, 'y')}) {
      const std::string bytes = Framed(payload, footer) + "the next record";
      const auto record = DecodeRecord(Bytes(bytes));
      TDBG_ASSERT_OK(record);
      EXPECT_EQ(
          std::string_view(reinterpret_cast<const char*>(record->payload.data()), record->payload.size()),
          payload);
      EXPECT_EQ(record->bytes, payload.size() + kRecordOverheadBytes);
      EXPECT_EQ(record->footer, footer);
    }
  }
}

TEST(Record, TheLengthOfARecordThatSmdebugWrote) {
  EXPECT_EQ(Framed(std::string(0x6d, ' '), Footer::kSmdebug).substr(0, 12),
            std::string("\x6d\0\0\0\0\0\0\0\x3d\x4d\xe6\x71", 12));
}

TEST(Record, EveryPrefixIsCutShort) {
  const std::string bytes = Framed("payload", Footer::kPayloadCrc);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto record = DecodeRecord(Bytes(std::string_view(bytes).substr(0, n)));
    ASSERT_FALSE(record.ok()) << n;
    EXPECT_EQ(record.status().code(), Code::kDataLoss);
  }
}

TEST(Record, EveryFlippedBitIsFoundWhereThereIsAChecksum) {
  const std::string bytes = Framed("payload", Footer::kPayloadCrc);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(DecodeRecord(Bytes(damaged)).ok()) << bit;
  }
}

TEST(Record, AHugeLengthIsComparedBeforeItIsAdded) {
  for (const uint64_t length : {~uint64_t{0}, ~uint64_t{0} - 15, uint64_t{1} << 63, uint64_t{1} << 40}) {
    const auto head = EncodeRecordHeader(length);
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.resize(64);
    const auto record = DecodeRecord(bytes);
    ASSERT_FALSE(record.ok());
    EXPECT_NE(record.status().message().find(std::to_string(length)), std::string::npos);
  }
}

}  // namespace
}  // namespace tdbg::tfevents
