// What is sealed stays what it is, byte for byte: the same records, sealed by this version, are the segment
// that the first version of this format minor made of them (sealed-1.2.safetensors). Other bytes are another
// format: raise the minor, say it in docs/format.md, and freeze the new segment with TDBG_GOLDEN_WRITE=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/hash.h"
#include "base/testing.h"
#include "format/journal.h"
#include "format/segment.h"
#include "store/writer/segment_builder.h"

namespace tdbg {
extern const char* const kGoldenDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)

namespace {

using format::RecordType;

// A journal in memory whose every byte follows from the calls.
class FixedJournal {
 public:
  FixedJournal() {
    header_ = std::make_unique<format::JournalHeader>();
    store::NewHeader(header_.get(), format::kJournalHeaderBytes + kRingBytes, 0x1234567890abc, 1, {});
    ring_.header = header_.get();
    ring_.data = bytes_.get();
    ring_.bytes = kRingBytes;
  }

  void Append(RecordType type, int64_t step, const std::string& payload, uint64_t prefix_hash = 0) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(payload));
    const std::span<const std::byte> hashed =
        type == RecordType::kRaw ? bytes.subspan(format::kRawDataOffset) : bytes;
    const format::RecordHeader record = format::MakeRecordHeader(type, ++sequence_, position_, payload.size(),
                                                                 step, base::Hash64(hashed), prefix_hash);
    std::memcpy(ring_.At(position_), &record, sizeof(record));
    std::memcpy(ring_.At(position_) + sizeof(record), payload.data(), payload.size());
    position_ += format::RecordBytes(payload.size());
  }
  void Define(uint32_t id, const std::string& name, DType dtype) {
    format::TensorDef def;
    def.id = id;
    def.name = name;
    def.dtype = dtype;
    def.shape = {2, 3};
    const std::string json = def.ToJson();
    tensors_.Add(json);
    Append(RecordType::kTensorDef, 0, json);
  }
  // Every field of every row has a value of its own, so that no two columns can change places unseen.
  void Rows(int64_t step, std::span<const uint32_t> tensors, const std::string& histogram) {
    std::string rows, histograms;
    for (const uint32_t tensor : tensors) {
      format::SummaryRow row;
      const uint64_t n = 100 * static_cast<uint64_t>(step) + 10 * tensor + rows.size();
      const auto x = static_cast<double>(n);
      row.tensor = tensor;
      row.sub = static_cast<uint16_t>(tensor == 2 ? 1 + step : 0);
      row.point = tensor == 3 ? 2 : 0;
      row.count = 1'000 + n, row.nan_count = 2'000 + n, row.pos_inf_count = 3'000 + n,
      row.neg_inf_count = 4'000 + n, row.zero_count = 5'000 + n;
      row.min = x + 0.25, row.max = x + 0.5, row.mean = x + 0.75, row.variance = x + 1.25, row.m3 = x + 1.5,
      row.m4 = x + 1.75, row.l1 = x + 2.25, row.l2 = x + 2.5, row.abs_min = x + 2.75, row.abs_max = x + 3.25;
      row.level = tensor + 7;
      row.flags = tensor % 2 == 0 ? 0 : 2;
      if (tensor % 2 == 0) {
        row.histogram_offset = static_cast<uint32_t>(histograms.size());
        row.histogram_bytes = static_cast<uint32_t>(histogram.size());
        histograms += histogram;
      }
      rows.append(reinterpret_cast<const char*>(&row), sizeof(row));
    }
    const format::SummariesHeader header{static_cast<uint32_t>(tensors.size()), 0, histograms.size()};
    Append(RecordType::kSummaries, step,
           std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + rows + histograms);
  }
  void Scalars(int64_t step, std::span<const double> values) {
    std::string rows;
    for (const double value : values) {
      format::ScalarRow row;
      row.tensor = 4;
      row.sub = static_cast<uint16_t>(rows.size() / sizeof(row));
      row.point = static_cast<uint16_t>(step % 4);
      row.value = value;
      rows.append(reinterpret_cast<const char*>(&row), sizeof(row));
    }
    Append(RecordType::kScalars, step, rows);
  }
  void Raw(int64_t step, uint32_t tensor, DType dtype) {
    format::RawHeader header;
    header.tensor = tensor;
    header.dtype = static_cast<uint16_t>(dtype);
    header.rank = 2;
    header.shape[0] = 2;
    header.shape[1] = 3;
    std::string payload(format::kRawDataOffset + 6 * ItemSize(dtype), '\0');
    std::memcpy(payload.data(), &header, sizeof(header));
    for (size_t i = format::kRawDataOffset; i < payload.size(); ++i)
      payload[i] = static_cast<char>(i * 7 + static_cast<size_t>(step) + tensor);
    Append(RecordType::kRaw, step, payload,
           base::Hash64(std::as_bytes(std::span(payload)).first(format::kRawDataOffset)));
  }
  void Commit(int64_t step, uint32_t rows, uint32_t scalars, uint32_t raws) {
    format::Commit commit;
    commit.global_step = step;
    commit.mode_step = step / 2;
    commit.wall_nanos = 1'700'000'000'000'000'000 + step;
    commit.monotonic_nanos = 5'000 + step;
    commit.flags = step == 2 ? format::kCommitSkipped : 0;
    commit.mode = static_cast<uint16_t>(1 + step % 2);
    commit.summary_rows = rows;
    commit.scalar_rows = scalars;
    commit.raw_tensors = raws;
    commit.shed = static_cast<uint32_t>(10 + step);
    Append(RecordType::kCommit, step, std::string(reinterpret_cast<const char*>(&commit), sizeof(commit)));
    header_->last_seen_step = step;
    header_->last_seen_wall_nanos = 1'700'000'000'000'000'000 + step;
  }

  std::string Sealed(const std::string& directory) {
    store::SegmentBuilder builder(&base::LocalFileSystem(), {directory, "00112233445566778899aabbccddeeff", 3,
                                                             "worker_0", header_->writer_id});
    const auto sealed = builder.SealNext(ring_, 0, position_, {}, /*verify=*/true, 0, &tensors_, {});
    EXPECT_TRUE(sealed.ok()) << sealed.status().ToString();
    return sealed.ok() ? base::Slurp(sealed->path) : std::string();
  }

 private:
  static constexpr uint64_t kRingBytes = 64 << 10;
  std::unique_ptr<format::JournalHeader> header_;
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique<std::byte[]>(kRingBytes);
  store::Ring ring_;
  store::TensorTable tensors_;
  uint64_t position_ = 0, sequence_ = 0;
};

std::string SealedByThisVersion(const std::string& directory) {
  FixedJournal journal;
  journal.Define(0, "gradient/w", DType::kFloat32);
  journal.Define(1, "odd@name.5", DType::kComplex64);
  journal.Define(2, "micro", DType::kFloat16);
  journal.Define(3, "clipped", DType::kFloat64);
  journal.Define(4, "lr", DType::kFloat64);
  const uint32_t first[] = {0, 2, 3}, second[] = {0}, third[] = {1, 0, 2, 3};
  const double rates[] = {0.125, 0.5}, rate[] = {-1.5};
  journal.Append(RecordType::kContext, 0, R"({"global_step":0,"topic":"optimizer","value":{"lr":0.125}})");
  journal.Rows(0, first, "0123456789a");
  journal.Scalars(0, rates);
  journal.Raw(0, 0, DType::kFloat32);
  journal.Raw(0, 1, DType::kComplex64);
  journal.Commit(0, 3, 2, 2);
  journal.Commit(1, 0, 0, 0);  // a step of nothing
  journal.Rows(2, second, "bcd");
  journal.Rows(2, third,
               "efghi");  // two records of one step: the histograms of the second lie behind the first's
  journal.Scalars(2, rate);
  journal.Raw(2, 2, DType::kFloat16);
  journal.Raw(2, 3, DType::kFloat64);
  journal.Append(RecordType::kAck, 2, R"({"id":"r1","done":true})");
  journal.Commit(2, 5, 1, 2);
  journal.Append(RecordType::kEnd, 2, R"({"reason":"done","message":""})");
  journal.Commit(3, 0, 0, 0);
  return journal.Sealed(directory);
}

TEST(SegmentBytes, TheSameRecordsAreSealedToTheSameBytesAsEver) {
  const std::string golden = std::string(kGoldenDirectory) + "/sealed-1.2.safetensors";
  const base::ScratchDirectory scratch;
  const std::string now = SealedByThisVersion(scratch.path());
  ASSERT_FALSE(now.empty());
  if (std::getenv("TDBG_GOLDEN_WRITE") != nullptr) base::Spill(golden, now);
  const std::string then = base::Slurp(golden);
  // First by entry, since "some byte differs" helps nobody.
  const auto read = [](const std::string& file) {
    return format::DecodeSegmentHeader(std::as_bytes(std::span(file)), file.size());
  };
  const auto header_now = read(now), header_then = read(then);
  TDBG_ASSERT_OK(header_now);
  TDBG_ASSERT_OK(header_then);
  ASSERT_EQ(header_now->entries.size(), header_then->entries.size());
  for (size_t i = 0; i < header_now->entries.size(); ++i) {
    const format::SegmentEntry &a = header_now->entries[i], &b = header_then->entries[i];
    ASSERT_EQ(a.key, b.key) << "at place " << i;
    EXPECT_EQ(a.dtype, b.dtype) << a.key;
    EXPECT_EQ(a.shape, b.shape) << a.key;
    // Not EXPECT_EQ, which would print 6 KB of bytes, four times.
    EXPECT_TRUE(now.substr(header_now->data_offset + a.begin, a.end - a.begin) ==
                then.substr(header_then->data_offset + b.begin, b.end - b.begin))
        << a.key;
  }
  EXPECT_EQ(header_now->tdbg_json, header_then->tdbg_json);
  EXPECT_TRUE(now == then);
}

}  // namespace
}  // namespace tdbg
