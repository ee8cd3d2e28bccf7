#include "tfevents/event_writer.h"

#include <gtest/gtest.h>

#include <string>

namespace tdbg::tfevents {
namespace {

std::string Hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

// smdebug 1.0.34 wrote this record (step 3, TRAIN, mode step 2, "foo:0", float32 [[0,1,2],[3,4,5]]), except
// that it also names each axis, which no reader looks at: lengths and nothing else differ by that.
TEST(EventWriter, ATensorRecordIsSmdebugs) {
  const float content[] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[] = {2, 3};
  const std::pair<std::string, std::string> plugins[] = {{"mode_step", "2"}, {"mode", "1"}};
  const TensorRecord record =
      FrameTensor(1700000000.5, 3, "foo:0", DType::kFloat32, shape, sizeof(content), plugins);
  std::string bytes = record.before;
  bytes.append(reinterpret_cast<const char*>(content), sizeof(content));
  bytes += record.after;
  ASSERT_EQ(bytes.size(), record.bytes);
  EXPECT_EQ(Hex(bytes.substr(12)),
            "0900002040fc54d9411003"
            "2a4e0a4c"
            "0a05666f6f3a30"
            "4226"
            "0801"
            "1208"
            "12020802"
            "12020803"
            "2218000000000000803f0000004000004040000080400000a040"
            "4a1b0a0e0a096d6f64655f73746570120132"
            "0a090a046d6f6465120131"
            "b3c02d06");
  const auto decoded = DecodeRecord(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->bytes, record.bytes);
  EXPECT_EQ(decoded->footer, Footer::kSmdebug);
}

TEST(EventWriter, LongContentIsCountedRight) {
  const int64_t shape[] = {100000};
  const TensorRecord record = FrameTensor(1, 1, std::string(300, 'x'), DType::kFloat32, shape, 400000, {});
  std::string bytes = record.before + std::string(400000, '\1') + record.after;
  ASSERT_EQ(bytes.size(), record.bytes);
  EXPECT_TRUE(DecodeRecord(std::as_bytes(std::span(bytes))).ok());
}

TEST(EventWriter, ScalarsAndHistogramsShareAnEvent) {
  SummaryEvent event(2.0, 7);
  EXPECT_TRUE(event.empty());
  event.AddScalar("a", 1.5);
  event.AddHistogram("b", {-1, 2, 3, 4, 5, {0.5, 2}, {1, 2}});
  EXPECT_EQ(Hex(event.Payload()),
            "0900000000000000401007"  // wall time, step
            "2a62"
            "0a080a0161150000c03f"  // tag a, simple_value
            "0a560a01622a51"        // tag b, histo
            "09000000000000f0bf"
            "110000000000000040"
            "190000000000000840"
            "210000000000001040"
            "290000000000001440"
            "3210000000000000e03f0000000000000040"
            "3a10000000000000f03f0000000000000040");
}

TEST(EventWriter, FilesBeginWithTheirVersion) {
  EXPECT_EQ(Hex(FileVersionEvent(2.0, "me")),
            "0900000000000000401a0d" + Hex("brain.Event:2") + "52040a02" + Hex("me"));
  EXPECT_EQ(Hex(SessionStartEvent(2.0, 5)), "09000000000000004010053a020801");
}

TEST(EventWriter, AFileSaysWhoWroteIt) {
  std::string file;
  AppendRecord(FileVersionEvent(1.7e9, "me"), Footer::kPayloadCrc, &file);
  EXPECT_TRUE(IsWrittenBy(file, "me"));
  EXPECT_TRUE(IsWrittenBy(file + "more", "me"));
  EXPECT_FALSE(IsWrittenBy(file, "you"));
  EXPECT_FALSE(IsWrittenBy(file.substr(0, 30), "me"));
  EXPECT_FALSE(IsWrittenBy("", "me"));
}

}  // namespace
}  // namespace tdbg::tfevents
