#include "tfevents/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>

#include "base/testing.h"
#include "tfevents/record.h"

namespace tdbg::tfevents {
namespace {

using protozero::pbf_writer;
using testing::ElementsAre;
using testing::HasSubstr;

Bytes AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string Unhex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i < hex.size();) {
    if (hex[i] == ' ') {
      ++i;
      continue;
    }
    out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
    i += 2;
  }
  return out;
}

template <typename T>
std::vector<T> Elements(std::span<const std::byte> bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

std::string Shape(std::initializer_list<int64_t> extents) {
  std::string out;
  pbf_writer shape(out);
  for (const int64_t extent : extents) {
    pbf_writer dimension(shape, 2);
    dimension.add_int64(1, extent);
  }
  return out;
}

// As smdebug 1.0.34 wrote it (step 3, TRAIN, mode step 2, "foo:0", float32 [[0, 1, 2], [3, 4, 5]]).
TEST(Event, ARecordOfSmdebugReadsBack) {
  const std::string bytes = Unhex(
      "6d00000000000000 3d4de671 0900002040fc54d9411003 2a600a5e 0a05666f6f3a30 4238 0801 121a "
      "120b08021207666f6f3a305f32"
      "120b08031207666f6f3a305f33 2218 000000000000803f0000004000004040000080400000a040"
      "4a1b 0a0e0a096d6f64655f73746570120132 0a090a046d6f6465120131 b3c02d06");
  const auto record = DecodeRecord(AsBytes(bytes));
  TDBG_ASSERT_OK(record);
  EXPECT_EQ(record->bytes, 125u);
  EXPECT_EQ(record->footer, Footer::kSmdebug);
  const auto event = DecodeEvent(record->payload);
  TDBG_ASSERT_OK(event);
  EXPECT_EQ(event->wall_time, 1700000000.5);
  EXPECT_EQ(event->step, 3);
  ASSERT_EQ(event->values.size(), 1u);
  const auto value = DecodeSummaryValue(event->values[0]);
  TDBG_ASSERT_OK(value);
  EXPECT_EQ(value->tag, "foo:0");
  EXPECT_EQ(value->kind, ValueKind::kTensor);
  EXPECT_THAT(value->plugins, ElementsAre(std::pair<std::string_view, std::string_view>("mode_step", "2"),
                                          std::pair<std::string_view, std::string_view>("mode", "1")));
  const auto tensor = DecodeTensor(value->message);
  TDBG_ASSERT_OK(tensor);
  EXPECT_EQ(tensor->dtype, DType::kFloat32);
  EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
  EXPECT_THAT(Elements<float>(tensor->bytes), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Event, EveryPrefixEndsInAnErrorOrAShorterEvent) {
  std::string payload;
  pbf_writer writer(payload);
  writer.add_double(1, 2.5);
  writer.add_int64(2, 77);
  writer.add_string(5, std::string(301, '\x0a'));  // a summary that is none
  EXPECT_EQ(DecodeEvent(AsBytes(payload)).status().code(), Code::kDataLoss);
  for (size_t n = 0; n < payload.size(); ++n) (void)DecodeEvent(AsBytes(payload).first(n));
}

TEST(Event, FieldsOfTheWrongWireTypeAreSkipped) {
  std::string payload;
  pbf_writer writer(payload);
  writer.add_string(2, "a step that is text");
  writer.add_int64(1, 5);
  writer.add_int64(5, 5);
  const auto event = DecodeEvent(AsBytes(payload));
  TDBG_ASSERT_OK(event);
  EXPECT_EQ(event->step, 0);
  EXPECT_EQ(event->wall_time, 0);
  EXPECT_TRUE(event->values.empty());
}

struct TypeCase {
  int type;
  DType dtype;
};
class EveryType : public testing::TestWithParam<TypeCase> {};

TEST_P(EveryType, ReadsItsBytes) {
  const size_t item = ItemSize(GetParam().dtype);
  std::string proto;
  pbf_writer writer(proto);
  std::string content(3 * item, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i + 1);
  writer.add_string(4, content);  // before its type and shape: the order of fields is anyone's
  writer.add_message(2, Shape({3, 1}));
  writer.add_int32(1, GetParam().type);
  const auto tensor = DecodeTensor(AsBytes(proto));
  TDBG_ASSERT_OK(tensor);
  EXPECT_EQ(tensor->dtype, GetParam().dtype);
  EXPECT_THAT(tensor->shape, ElementsAre(3, 1));
  EXPECT_EQ(std::memcmp(tensor->bytes.data(), content.data(), content.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Tensorflow, EveryType,
                         testing::Values(TypeCase{1, DType::kFloat32}, TypeCase{2, DType::kFloat64},
                                         TypeCase{3, DType::kInt32}, TypeCase{4, DType::kUInt8},
                                         TypeCase{5, DType::kInt16}, TypeCase{6, DType::kInt8},
                                         TypeCase{8, DType::kComplex64}, TypeCase{9, DType::kInt64},
                                         TypeCase{10, DType::kBool}, TypeCase{11, DType::kInt8},
                                         TypeCase{12, DType::kUInt8}, TypeCase{13, DType::kInt32},
                                         TypeCase{14, DType::kBFloat16}, TypeCase{17, DType::kUInt16},
                                         TypeCase{18, DType::kComplex128}, TypeCase{19, DType::kFloat16},
                                         TypeCase{22, DType::kUInt32}, TypeCase{23, DType::kUInt64},
                                         TypeCase{24, DType::kFloat8E5M2}, TypeCase{25, DType::kFloat8E4M3FN},
                                         TypeCase{101, DType::kFloat32}),
                         [](const auto& one) { return "type" + std::to_string(one.param.type); });

TEST(Tensor, ElementsSpelledOneByOne) {
  std::string proto;
  pbf_writer writer(proto);
  writer.add_int32(1, 6);  // int8
  const std::vector<int32_t> packed{-1, 2};
  writer.add_packed_int32(7, packed.begin(), packed.end());
  writer.add_int32(7, -3);
  writer.add_message(2, Shape({3}));
  const auto tensor = DecodeTensor(AsBytes(proto));
  TDBG_ASSERT_OK(tensor);
  EXPECT_EQ(tensor->dtype, DType::kInt8);
  EXPECT_THAT(Elements<int8_t>(tensor->values), ElementsAre(-1, 2, -3));
}

TEST(Tensor, ANumberOfAnotherTypeThanTheTensorsIsNone) {
  std::string proto;
  pbf_writer writer(proto);
  writer.add_int32(1, 1);  // float32
  writer.add_message(2, Shape({1}));
  writer.add_int64(10, 5);
  writer.add_int32(7, 5);
  EXPECT_THAT(DecodeTensor(AsBytes(proto)).status().message(),
              HasSubstr("0 bytes where 1 element of float32"));
}

TEST(Tensor, TextWithoutAType) {
  std::string proto;
  pbf_writer writer(proto);
  writer.add_message(2, Shape({3}));
  for (const char* text : {"foo", "barz", ""}) writer.add_string(8, text);
  const auto tensor = DecodeTensor(AsBytes(proto));
  TDBG_ASSERT_OK(tensor);
  EXPECT_EQ(tensor->dtype, DType::kText);
  EXPECT_THAT(tensor->strings, ElementsAre("foo", "barz", ""));
}

TEST(Tensor, EmptyAndScalar) {
  std::string empty;
  pbf_writer(empty).add_int32(1, 1);
  pbf_writer(empty).add_message(2, Shape({0, 5}));
  const auto none = DecodeTensor(AsBytes(empty));
  TDBG_ASSERT_OK(none);
  EXPECT_THAT(none->shape, ElementsAre(0, 5));
  EXPECT_TRUE(none->bytes.empty());

  std::string scalar;
  pbf_writer(scalar).add_int32(1, 2);
  const double pi = 3.25;
  pbf_writer(scalar).add_bytes(4, reinterpret_cast<const char*>(&pi), sizeof(pi));
  const auto one = DecodeTensor(AsBytes(scalar));
  TDBG_ASSERT_OK(one);
  EXPECT_TRUE(one->shape.empty());
  EXPECT_THAT(Elements<double>(one->bytes), ElementsAre(3.25));
}

// What a shape claims costs nothing: only bytes that are there are believed.
TEST(Tensor, ClaimsThatTheBytesDoNotHold) {
  const auto status = [](std::initializer_list<int64_t> shape, const std::string& content) {
    std::string proto;
    pbf_writer writer(proto);
    writer.add_int32(1, 1);
    writer.add_message(2, Shape(shape));
    if (!content.empty()) writer.add_string(4, content);
    return DecodeTensor(AsBytes(proto)).status();
  };
  EXPECT_EQ(status({2}, std::string(8, 'x')).code(), Code::kOk);
  EXPECT_EQ(status({2}, std::string(7, 'x')).code(), Code::kDataLoss);
  EXPECT_EQ(status({3}, std::string(8, 'x')).code(), Code::kDataLoss);
  EXPECT_EQ(status({int64_t{1} << 62}, std::string(8, 'x')).code(), Code::kDataLoss);
  EXPECT_THAT(status({int64_t{1} << 62, 8}, std::string(8, 'x')).message(), HasSubstr("impossible shape"));
  EXPECT_THAT(status({-1}, std::string(8, 'x')).message(), HasSubstr("negative"));
  std::string deep;
  {
    pbf_writer writer(deep);
    std::string shape;
    pbf_writer axes(shape);
    for (int i = 0; i < 65; ++i) axes.add_message(2, std::string());
    writer.add_int32(1, 1);
    writer.add_message(2, shape);
  }
  EXPECT_THAT(DecodeTensor(AsBytes(deep)).status().message(), HasSubstr("64 axes"));
}

TEST(Tensor, ATypeWithoutCounterpartIsNamed) {
  std::string proto;
  pbf_writer(proto).add_int32(1, 20);
  const Status status = DecodeTensor(AsBytes(proto)).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("type 20"));
}

TEST(Histogram, ReadsBack) {
  std::string proto;
  pbf_writer writer(proto);
  writer.add_double(1, -1);
  writer.add_double(3, 7);
  const std::vector<double> limits{0, 1}, counts{3, 4};
  writer.add_packed_double(6, limits.begin(), limits.end());
  writer.add_packed_double(7, counts.begin(), counts.end());
  const auto histogram = DecodeHistogramProto(AsBytes(proto));
  TDBG_ASSERT_OK(histogram);
  EXPECT_EQ(histogram->min, -1);
  EXPECT_EQ(histogram->num, 7);
  EXPECT_THAT(histogram->limits, ElementsAre(0, 1));
  EXPECT_THAT(histogram->counts, ElementsAre(3, 4));
  proto.resize(proto.size() - 1);
  EXPECT_FALSE(DecodeHistogramProto(AsBytes(proto)).ok());
}

}  // namespace
}  // namespace tdbg::tfevents
