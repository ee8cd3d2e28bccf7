// Somebody else writes into the ring between two moments of ours: what is taken for good was good when it was
// looked at, and is what was looked at.
#include "base/overwritten.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "store/writer/journal_writer.h"
#include "store/writer/segment_builder.h"
#include "store/writer/worker_writer_fixture.h"

namespace tdbg::store {
namespace {

using format::RecordHeader;
using format::RecordType;

class OverwrittenTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;

  /// A new journal over the old one.
  JournalWriter Writer() {
    NewHeader(&own_, kBytes, /*writer_id=*/1, /*next_sequence=*/1, {});
    ring_ = Ring::Over(memory_.bytes(), &own_);
    ring_.Publish();
    return JournalWriter(ring_, &handoff_, WhenFull::kDropRaw, 0, 0, &base::SystemClock());
  }
  std::span<std::byte> TheirRing() const { return memory_.alias().subspan(format::kJournalHeaderBytes); }
  /// The header of the first record that `append` appends, many times, while others write where its payload
  /// goes.
  template <typename Append, typename Check>
  void Overwritten(size_t payload_bytes, Append append, Check check) {
    const base::Meanwhile others([this, payload_bytes] {
      std::ranges::fill(TheirRing().subspan(sizeof(RecordHeader), payload_bytes), std::byte{2});
    });
    for (int round = 0; round < 20'000 && !HasFailure(); ++round) {
      JournalWriter writer = Writer();
      append(writer);
      const auto header = base::Load<RecordHeader>(ring_.data);
      ASSERT_TRUE(format::CheckRecordHeader(header, 0, ring_.bytes).ok());
      ASSERT_EQ(header.payload_bytes, payload_bytes);
      check(header);
    }
  }

  const base::AliasedMemory memory_{kBytes};
  format::JournalHeader own_;
  Ring ring_;
  Handoff handoff_;
};

template <typename T>
uint64_t HashOf(const std::vector<T>& of) {
  return base::Hash64(std::as_bytes(std::span(of)));
}

TEST_F(OverwrittenTest, ACommitsHashIsOfWhatWasGiven) {
  format::Commit commit;
  commit.global_step = 5;
  Overwritten(
      sizeof(commit), [&](JournalWriter& writer) { (void)writer.Commit(commit); },
      [&](const RecordHeader& header) { EXPECT_EQ(header.payload_hash, HashOf(std::vector{commit})); });
}

TEST_F(OverwrittenTest, ThatOfScalarsToo) {
  const std::vector<format::ScalarRow> scalars(100);
  Overwritten(
      100 * sizeof(format::ScalarRow), [&](JournalWriter& writer) { writer.AppendScalars(0, scalars); },
      [&](const RecordHeader& header) { EXPECT_EQ(header.payload_hash, HashOf(scalars)); });
}

TEST_F(OverwrittenTest, ThatOfSummariesToo) {
  std::vector<format::SummaryRow> rows(50);
  for (auto& row : rows) row.count = 3;
  const format::SummariesHeader header{50, 0, 0};
  std::vector<std::byte> payload(sizeof(header) + 50 * sizeof(rows[0]));
  std::memcpy(payload.data(), &header, sizeof(header));
  std::memcpy(payload.data() + sizeof(header), rows.data(), 50 * sizeof(rows[0]));
  Overwritten(
      payload.size(), [&](JournalWriter& writer) { writer.AppendSummaries(0, rows, {}); },
      [&](const RecordHeader& found) { EXPECT_EQ(found.payload_hash, HashOf(payload)); });
}

TEST_F(OverwrittenTest, BothOfARawTensorToo) {
  const std::vector<float> values(1000, 1.5f);
  const int64_t shape[] = {1000};
  std::vector<std::byte> prefix(format::kRawDataOffset);
  format::RawHeader said;
  said.tensor = 7;
  said.dtype = static_cast<uint16_t>(DType::kFloat32);
  said.rank = 1;
  said.shape[0] = 1000;
  std::memcpy(prefix.data(), &said, sizeof(said));
  Overwritten(
      format::kRawDataOffset + values.size() * 4,
      [&](JournalWriter& writer) {
        EXPECT_TRUE(writer.AppendRaw(0, 7, {}, {values.data(), DType::kFloat32, shape, {}}, DropKind::kRaw));
      },
      [&](const RecordHeader& header) {
        EXPECT_EQ(header.payload_hash, HashOf(values));
        EXPECT_EQ(header.prefix_hash, HashOf(prefix));
      });
}

// Each record is there, then it is not, then it is: a segment has all of it or counts it as damaged.
TEST_F(OverwrittenTest, ASegmentHasWhatWasCheckedOrCountsIt) {
  constexpr int64_t kSteps = 20;
  const base::ScratchDirectory scratch;
  JournalWriter writer = Writer();
  format::TensorDef def;
  def.name = "w";
  def.dtype = DType::kFloat32;
  writer.AppendTensorDef(def);
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<float> values(10, static_cast<float>(step));
    const int64_t shape[] = {10};
    ASSERT_TRUE(writer.AppendRaw(step, 0, {}, {values.data(), DType::kFloat32, shape, {}}, DropKind::kRaw));
    std::vector<format::SummaryRow> rows(20);
    for (auto& row : rows) row.count = static_cast<uint64_t>(step) + 1;
    writer.AppendSummaries(step, rows, {});
    ASSERT_TRUE(writer.AppendJson(RecordType::kContext, step, R"({"global_step":0,"topic":"t","value":1})"));
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    ASSERT_TRUE(writer.Commit(commit));
  }
  std::vector<std::pair<size_t, size_t>> payloads;  // where, and how long; not those of raw values
  for (uint64_t at = 0; at < ring_.committed();) {
    const auto header = base::Load<RecordHeader>(ring_.At(at));
    const bool raw = header.type == static_cast<uint16_t>(RecordType::kRaw);
    payloads.emplace_back(at + sizeof(header), raw ? format::kRawDataOffset : header.payload_bytes);
    at += format::RecordBytes(header.payload_bytes);
  }
  const std::vector<std::byte> good(TheirRing().begin(), TheirRing().end());
  const base::Meanwhile others([&] {
    for (const auto& [at, bytes] : payloads) {
      std::ranges::fill(TheirRing().subspan(at, bytes), std::byte{2});
      std::ranges::copy(std::span(good).subspan(at, bytes), TheirRing().begin() + static_cast<ptrdiff_t>(at));
    }
  });
  SegmentOrigin origin;
  origin.directory = scratch.path();
  SegmentBuilder builder(&base::LocalFileSystem(), origin);
  size_t sealed_whole = 0;
  for (int round = 0; round < 500; ++round) {
    TensorTable tensors;
    const auto sealed = builder.SealNext(ring_, 0, ring_.committed(), {}, false, 0, &tensors, {});
    ASSERT_TRUE(sealed.ok()) << sealed.status().ToString();
    ASSERT_EQ(sealed->commits, static_cast<uint64_t>(kSteps)) << "headers are left alone";
    Decoded read;
    ASSERT_NO_THROW(DecodeSegmentInto(base::Slurp(sealed->path), &read));
    int64_t step = 0;
    uint64_t rows = 0;
    for (const Decoded::Step& s : read.steps) {
      ASSERT_EQ(s.commit.global_step, step++);
      for (const Decoded::Row& row : s.rows) {
        ASSERT_EQ(row.row.tensor, 0u);
        ASSERT_EQ(row.row.count, static_cast<uint64_t>(row.step) + 1);
      }
      rows += s.rows.size();
    }
    for (const std::string& context : read.contexts) ASSERT_THAT(context, testing::HasSubstr("\"topic\""));
    for (const auto& [id, name] : read.tensors) ASSERT_EQ(name, "w");
    const bool whole = rows == 20 * kSteps && read.raws.size() == kSteps && read.contexts.size() == kSteps &&
                       read.tensors.size() == 1;
    ASSERT_TRUE(whole || !sealed->damage.empty());
    sealed_whole += whole;
  }
  RecordProperty("sealed_whole", static_cast<int>(sealed_whole));
}

TEST_F(OverwrittenTest, AnEndForWhichThereIsNoJournalIsRefusedAndComesWhole) {
  JournalWriter writer = Writer();
  handoff_.renewal = Renewal::kWanted;
  EXPECT_FALSE(writer.CommitEnd(R"({"reason":"done"})", {}));
  EXPECT_TRUE(writer.refused_by_renewal());
  ASSERT_EQ(handoff_.renewal.load(), Renewal::kLetGo);
  RenewHeader(&own_, kBytes);
  ring_ = Ring::Over(memory_.bytes(), &own_);
  ring_.Publish();
  handoff_.fresh = ring_;
  handoff_.renewal = Renewal::kReady;
  EXPECT_TRUE(writer.CommitEnd(R"({"reason":"done"})", {}));
  EXPECT_TRUE(DropsIn(own_).empty());
  Decoded read;
  DecodeJournalInto({reinterpret_cast<const char*>(ring_.shared), kBytes}, &read);
  EXPECT_EQ(read.end, R"({"reason":"done"})");
  EXPECT_EQ(read.steps.size(), 1u);
}

}  // namespace
}  // namespace tdbg::store
