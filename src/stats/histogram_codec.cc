// The histogram's stored form.
//
//   varint(number of buckets) { varint(zigzag(bucket - previous bucket)) varint(count) }*
//
// Integers are LEB128 in their shortest form, buckets ascend, counts are not 0, and nothing follows.
#include <limits>
#include <string>

#include "stats/buckets.h"
#include "tdbg/summary.h"

namespace tdbg {
namespace {

uint8_t* PutVarint(uint64_t v, uint8_t* out) {
  while (v >= 0x80) {
    *out++ = static_cast<uint8_t>(v | 0x80);
    v >>= 7;
  }
  *out++ = static_cast<uint8_t>(v);
  return out;
}

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  size_t left() const { return static_cast<size_t>(end_ - at_); }

  bool Varint(uint64_t* v) {
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return false;
      const uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) return false;  // more than 64 bits
      *v |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return byte != 0 || shift == 0;  // a trailing zero group is a longer form
    }
    return false;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

constexpr uint32_t ZigZag(int32_t v) {
  return (static_cast<uint32_t>(v) << 1) ^ static_cast<uint32_t>(v >> 31);
}
constexpr int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1); }

constexpr size_t kMaxBucketBytes = 3 + 10;

}  // namespace

void EncodeHistogram(std::span<const HistogramBucket> h, std::vector<uint8_t>* append_to) {
  const size_t start = append_to->size();
  append_to->resize(start + 10 + h.size() * kMaxBucketBytes);
  uint8_t* out = PutVarint(h.size(), append_to->data() + start);
  int32_t previous = 0;
  for (const HistogramBucket& b : h) {
    out = PutVarint(ZigZag(b.bucket - previous), out);
    out = PutVarint(b.count, out);
    previous = b.bucket;
  }
  append_to->resize(static_cast<size_t>(out - append_to->data()));
}

Result<Histogram> DecodeHistogram(std::span<const uint8_t> bytes) {
  Cursor in(bytes);
  uint64_t count_untrusted = 0;
  if (!in.Varint(&count_untrusted)) return DataLoss("histogram: the number of buckets is cut off");
  // Two bytes is the least a bucket takes, so a hostile count cannot make us reserve more than we were sent.
  if (count_untrusted > in.left() / 2) return DataLoss("histogram: fewer bytes than buckets need");
  Histogram h;
  h.reserve(count_untrusted);
  int64_t bucket = 0;
  uint64_t total = 0;
  for (uint64_t i = 0; i < count_untrusted; ++i) {
    uint64_t step = 0;
    uint64_t count = 0;
    if (!in.Varint(&step) || !in.Varint(&count)) return DataLoss("histogram: a bucket is cut off");
    if (step > std::numeric_limits<uint32_t>::max()) return DataLoss("histogram: bucket out of range");
    const int64_t next = bucket + UnZigZag(step);
    if (i > 0 && next <= bucket) return DataLoss("histogram: buckets do not ascend");
    const int64_t k = (next < 0 ? -next : next) - kBucketBias;
    if (k < stats::kSmallestK || k > stats::kLargestK) return DataLoss("histogram: bucket out of range");
    if (count == 0) return DataLoss("histogram: empty bucket");
    if (__builtin_add_overflow(total, count, &total)) return DataLoss("histogram: counts overflow");
    bucket = next;
    h.push_back({static_cast<int16_t>(bucket), count});
  }
  if (in.left() != 0) return DataLoss("histogram: bytes left over");
  return h;
}

}  // namespace tdbg
