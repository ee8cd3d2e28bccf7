// Every copy of the kernels that this machine can run gives the definition's answer, for every element type,
// every small size and every kind of value.
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "stats/summarizer_testing.h"

namespace tdbg {
namespace {

// As real tensors are, and as none is: half of all bit patterns of a type are met.
enum class Kind { kNormal, kRectified, kHeavyTailed, kSmall, kAnyBits };

struct Type {
  DType dtype;
  std::function<double(const std::byte*)> decode;
  std::function<void(float, std::byte*)> encode;
  double unit;
};

template <typename T>
double DecodeAs(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return static_cast<double>(v);
}

template <typename T>
Type Plain(DType dtype, double unit, double scale) {
  const auto encode = [scale](float v, std::byte* at) {
    const T x = static_cast<T>(std::is_unsigned_v<T> ? std::abs(v) * scale : v * scale);
    std::memcpy(at, &x, sizeof x);
  };
  return {dtype, DecodeAs<T>, encode, unit};
}

uint16_t HalfOf(float v) {  // cut off; what is too small for a normal one becomes a subnormal one
  const auto sign = static_cast<uint16_t>(std::signbit(v) ? 0x8000 : 0);
  const float a = std::abs(v);
  if (a < 0x1p-14f) return static_cast<uint16_t>(sign | static_cast<uint16_t>(a * 0x1p24f));
  return static_cast<uint16_t>(sign | ((std::bit_cast<uint32_t>(a) >> 13) - (112u << 10)));
}

std::vector<Type> AllTypes() {
  const auto bits16 = [](const std::byte* at) {
    uint16_t v;
    std::memcpy(&v, at, 2);
    return v;
  };
  const auto put16 = [](uint16_t v, std::byte* at) { std::memcpy(at, &v, 2); };
  return {
      Plain<float>(DType::kFloat32, kFloatUnit, 1),
      Plain<double>(DType::kFloat64, kDoubleUnit, 1.0 / 3),
      {DType::kBFloat16, [=](const std::byte* at) { return FromBFloat(bits16(at)); },
       [=](float v, std::byte* at) { put16(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16), at); },
       kFloatUnit},
      {DType::kFloat16, [=](const std::byte* at) { return FromHalf(bits16(at)); },
       [=](float v, std::byte* at) { put16(HalfOf(v), at); }, kFloatUnit},
      Plain<int8_t>(DType::kInt8, kFloatUnit, 20),
      Plain<uint8_t>(DType::kUInt8, kFloatUnit, 40),
      Plain<int16_t>(DType::kInt16, kFloatUnit, 5000),
      Plain<uint16_t>(DType::kUInt16, kFloatUnit, 10000),
      Plain<int32_t>(DType::kInt32, kDoubleUnit, 1e8),
      Plain<uint32_t>(DType::kUInt32, kDoubleUnit, 2e8),
      Plain<int64_t>(DType::kInt64, kDoubleUnit, 1e17),
      Plain<uint64_t>(DType::kUInt64, kDoubleUnit, 2e17),
  };
}

std::vector<std::byte> Make(const Type& type, Kind kind, size_t n, size_t before, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.1f, 1);
  const size_t size = ItemSize(type.dtype);
  std::vector<std::byte> bytes(before + n * size);
  for (size_t i = 0; i < n; ++i) {
    std::byte* at = bytes.data() + before + i * size;
    float v = normal(random);
    switch (kind) {
      case Kind::kNormal:
        break;
      case Kind::kRectified:
        v = v > 0 ? v : (i % 2 != 0 ? 0.0f : -0.0f);
        break;
      case Kind::kHeavyTailed:
        v *= normal(random) * 1e-2f * normal(random);
        v *= i % 31 == 0 ? 1e-6f : 1;
        break;
      case Kind::kSmall:
        v *= 1e-5f;
        break;
      case Kind::kAnyBits: {
        const uint64_t bits = random();
        std::memcpy(at, &bits, size);
        continue;
      }
    }
    type.encode(v, at);
  }
  return bytes;
}

class VariantsTest : public SummarizerTest {
 protected:
  void CheckAll(const Type& type, Kind kind, const std::vector<size_t>& sizes) {
    for (const size_t n : sizes) {
      const size_t size = ItemSize(type.dtype);
      // Aligned to the element alone, and every tenth not even to that.
      const size_t before = n % 10 == 9 ? 1 : n % 4 * size;
      Data data{n, before, Make(type, kind, n, before, static_cast<unsigned>(n + 1)), {}};
      std::vector<double> values;
      for (size_t i = 0; i < n; ++i) values.push_back(type.decode(data.bytes.data() + before + i * size));
      data.want = Define(values);
      data_.push_back(std::move(data));
    }
    OnEveryTarget([&](const std::string& variant) {
      for (const Data& data : data_) {
        const std::string what = std::string(DTypeName(type.dtype)) + " kind " +
                                 std::to_string(static_cast<int>(kind)) + " n=" + std::to_string(data.n) +
                                 " on " + variant;
        const int64_t shape[] = {static_cast<int64_t>(data.n)};
        const TensorView view{data.bytes.data() + data.before, type.dtype, shape, {}};
        Histogram h;
        const Summary without = Of(view);
        const Summary with = Of(view, &h);
        ASSERT_EQ(h, data.want.h) << what;
        // Powers of any double leave the range in which the bounds are given.
        if (type.dtype == DType::kFloat64 && kind == Kind::kAnyBits) {
          ExpectExactParts(without, data.want.s, what);
          ExpectExactParts(with, data.want.s, what);
        } else {
          ExpectWithinBounds(without, data.want.s, type.unit, what + " without");
          ExpectWithinBounds(with, data.want.s, type.unit, what + " with");
        }
        if (HasFailure()) return;
      }
    });
    data_.clear();
  }

 private:
  struct Data {
    size_t n, before;
    std::vector<std::byte> bytes;
    Expected want;
  };
  std::vector<Data> data_;
};

constexpr Kind kAllKinds[] = {Kind::kNormal, Kind::kRectified, Kind::kHeavyTailed, Kind::kSmall,
                              Kind::kAnyBits};

TEST_F(VariantsTest, EverySmallSize) {
  std::vector<size_t> sizes;
  for (size_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (const Type& type : AllTypes()) {
    for (const Kind kind : kAllKinds) CheckAll(type, kind, sizes);
  }
}

TEST_F(VariantsTest, LargeTensors) {
  for (const Type& type : AllTypes()) {
    for (const Kind kind : kAllKinds) CheckAll(type, kind, {2047, 2049, 16447, 33000});
  }
  // From here on elements are counted by pairs where there are no slices.
  for (const Type& type : AllTypes()) {
    if (ItemSize(type.dtype) > 4) continue;
    for (const Kind kind : {Kind::kNormal, Kind::kHeavyTailed, Kind::kRectified})
      CheckAll(type, kind, {100003});
  }
}

// A name that means nothing here is refused, and the best variant is the one that is used.
TEST(KernelVariantsTest, AreNamedAndChosenByName) {
  const std::vector<std::string> names = stats::KernelVariants();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) EXPECT_TRUE(stats::UseKernels(name)) << name;
  EXPECT_FALSE(stats::UseKernels("mmx"));
  EXPECT_TRUE(stats::UseKernels(""));
  EXPECT_EQ(stats::KernelVariants(), names);
}

}  // namespace
}  // namespace tdbg
