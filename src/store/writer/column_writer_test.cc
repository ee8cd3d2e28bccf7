#include "store/writer/column_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace tdbg::store {
namespace {

struct Row {
  uint16_t small;
  uint32_t middle;
  double large;
};

// A room between two walls, which nothing may touch.
struct Walled {
  explicit Walled(size_t size) : bytes(size + 16, std::byte{0xee}), inside(size) {}
  std::span<std::byte> room() { return std::span(bytes).subspan(8, inside); }
  bool whole() const {
    for (size_t i = 0; i < 8; ++i) {
      if (bytes[i] != std::byte{0xee} || bytes[8 + inside + i] != std::byte{0xee}) return false;
    }
    return true;
  }
  template <typename T>
  T at(size_t i) const {
    return base::Load<T>(bytes.data() + 8 + i * sizeof(T));
  }
  std::vector<std::byte> bytes;
  size_t inside;
};

TEST(ColumnWriter, CopiesAFieldOfEachRow) {
  const std::array<Row, 3> rows = {{{1, 2, 3.5}, {4, 5, 6.5}, {7, 8, 9.5}}};
  const auto* const bytes = reinterpret_cast<const std::byte*>(rows.data());
  Walled small(6), middle(12), large(24);
  ColumnWriter a(small.room()), b(middle.room()), c(large.room());
  a.Copy<2>(bytes + offsetof(Row, small), sizeof(Row), 3);
  b.Copy<4>(bytes + offsetof(Row, middle), sizeof(Row), 3);
  c.Copy<8>(bytes + offsetof(Row, large), sizeof(Row), 3);
  EXPECT_TRUE(a.exact() && b.exact() && c.exact());
  EXPECT_EQ(small.at<uint16_t>(2), 7);
  EXPECT_EQ(middle.at<uint32_t>(1), 5u);
  EXPECT_EQ(large.at<double>(0), 3.5);
  EXPECT_TRUE(small.whole() && middle.whole() && large.whole());
}

TEST(ColumnWriter, WritesNothingBeyondItsRoomAndSaysSo) {
  const std::array<uint64_t, 4> numbers = {1, 2, 3, 4};
  const auto* const bytes = reinterpret_cast<const std::byte*>(numbers.data());
  Walled walled(24);
  ColumnWriter writer(walled.room());
  writer.Copy<8>(bytes, 8, 2);
  EXPECT_FALSE(writer.exact()) << "a row is missing";
  writer.Copy<8>(bytes, 8, 2);
  EXPECT_FALSE(writer.exact());
  writer.Fill<uint64_t>(1, [](uint64_t) { return 5; });  // would fit; but what came before it is not there
  EXPECT_FALSE(writer.exact());
  EXPECT_TRUE(walled.whole());

  Walled fill(8), blob(3);
  ColumnWriter filled(fill.room()), appended(blob.room());
  filled.Fill<int64_t>(2, [](uint64_t row) { return static_cast<int64_t>(row); });
  appended.Append(std::span(bytes, 4));
  EXPECT_FALSE(filled.exact() || appended.exact());
  EXPECT_TRUE(fill.whole() && blob.whole());
  ColumnWriter many(fill.room());
  many.Copy<8>(bytes, 8, ~uint64_t{0} / 4);  // as bytes, the count would overflow
  EXPECT_FALSE(many.exact());
  EXPECT_TRUE(fill.whole());
}

TEST(ColumnWriter, ARoomOfNothingIsFull) {
  ColumnWriter writer({});
  writer.Copy<8>(nullptr, 8, 0);
  writer.Append({});
  EXPECT_TRUE(writer.exact());
}

}  // namespace
}  // namespace tdbg::store
