// The training thread's side alone, with the drain's moves made by hand: what happens between two of its
// calls.
#include "store/writer/journal_writer.h"

#include <gmock/gmock.h>

#include <vector>

#include "store/writer/testing.h"
#include "store/writer/worker_writer_fixture.h"

namespace tdbg::store {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

class JournalWriterTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  JournalWriterTest() {
    NewHeader(&own_, kBytes, /*writer_id=*/1, /*next_sequence=*/1, {});
    ring_ = Ring::Over(std::as_writable_bytes(std::span(first_)), &own_);
    ring_.Publish();
  }
  JournalWriter Writer(uint64_t budget) {
    return JournalWriter(ring_, &handoff_, WhenFull::kDropRaw, budget, 0, &base::SystemClock());
  }
  static void Define(JournalWriter& writer, uint32_t id, const std::string& name) {
    format::TensorDef def;
    def.id = id;
    def.name = name;
    writer.AppendTensorDef(def);
  }
  static void Rows(JournalWriter& writer, int64_t step, size_t count) {
    const std::vector<format::SummaryRow> rows(count);
    writer.AppendSummaries(step, rows, {});
  }
  static bool Commit(JournalWriter& writer, int64_t step) {
    format::Commit commit;
    commit.global_step = step;
    return writer.Commit(commit);
  }
  /// What Drain::TrySealOne says of all that is committed.
  void Seal() {
    ring_.Set(&format::JournalHeader::sealed_seq, own_.committed_seq.load());
    ring_.Set(&format::JournalHeader::sealed_pos, own_.committed_pos.load());
  }
  /// What Drain::Renew does once the training thread has let go.
  void Renew() {
    ASSERT_EQ(handoff_.renewal.load(), Renewal::kLetGo);
    RenewHeader(&own_, kBytes);
    ring_ = Ring::Over(std::as_writable_bytes(std::span(second_)), &own_);
    ring_.Publish();
    handoff_.fresh = ring_;
    handoff_.fresh_has_all = false;
    handoff_.renewal = Renewal::kReady;
  }
  Decoded Read() {
    Decoded out;
    out.last_sequence = own_.sealed_seq.load();
    DecodeJournalInto({reinterpret_cast<const char*>(ring_.shared), kBytes}, &out);
    return out;
  }

  std::vector<Line> first_ = std::vector<Line>(kBytes / 64), second_ = first_;
  format::JournalHeader own_;
  Ring ring_;
  Handoff handoff_;
};

TEST_F(JournalWriterTest, ANewJournalHasTheRecordsThatWaitedForItAndThoseOfTheLastOne) {
  JournalWriter writer = Writer(0);
  Define(writer, 0, "a");
  ASSERT_TRUE(writer.AppendJson(format::RecordType::kContext, 0, R"({"lr":1})"));
  ASSERT_TRUE(Commit(writer, 0));
  handoff_.renewal = Renewal::kWanted;
  Define(writer, 1, "b");  // lets go, and waits
  Renew();
  Define(writer, 2, "c");  // takes the new one, in the middle of writing what waits
  ASSERT_TRUE(Commit(writer, 1));
  const Decoded read = Read();
  EXPECT_THAT(read.tensors, UnorderedElementsAre(Pair(0, "a"), Pair(1, "b"), Pair(2, "c")));
  EXPECT_THAT(read.contexts, ElementsAre(R"({"lr":1})"));
}

TEST_F(JournalWriterTest, ANewJournalIsNoReasonToFindTheBudgetUsed) {
  JournalWriter writer = Writer(8 * kBytes);  // sealed bytes are the drain's to count, which counts none here
  int64_t step = 0;
  for (; own_.committed_pos.load() < 8 * kBytes; ++step) {
    Rows(writer, step, 1000);
    ASSERT_TRUE(Commit(writer, step));
    Seal();
  }
  handoff_.renewal = Renewal::kWanted;
  Rows(writer, step, 1);
  (void)Commit(writer, step++);
  Renew();
  Rows(writer, step, 1);
  EXPECT_TRUE(Commit(writer, step));
  EXPECT_EQ(Lost(DropsIn(own_), DropCause::kBudget, DropKind::kSummary), 0u);
  EXPECT_TRUE(handoff_.first_error().ok()) << handoff_.first_error().ToString();
  EXPECT_EQ(Read().steps.size(), 1u);
}

}  // namespace
}  // namespace tdbg::store
