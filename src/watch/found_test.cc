#include "watch/found.h"

#include <gmock/gmock.h>

#include <string>

#include "base/testing.h"
#include "watch/events.h"

namespace tdbg::watch {
namespace {

using testing::IsEmpty;

std::string FoundLine(const std::string& rule, int64_t step, int64_t attempt = 0,
                      std::string text = "it broke") {
  Found found;
  found.rule = rule;
  found.attempt = attempt;
  found.global_step = step;
  found.text = std::move(text);
  return EventLine("found", 1000 + step, FoundFields(found)) + "\n";
}

TEST(FoundReaderTest, ReadsWhatWasAddedAndEachOnce) {
  base::ScratchDirectory run;
  const std::string path = run / "events.jsonl";
  FoundReader reader(run.path());
  EXPECT_THAT(reader.Next(), IsEmpty()) << "there is no file yet";
  const std::string second = FoundLine("A", 7);
  base::Spill(path, "no event\n" + EventLine("rule_status", 1, R"({"name":"found"})") + "\n" +
                        FoundLine("A", 5) + FoundLine("A", 5) + second.substr(0, 20));
  auto found = reader.Next();
  ASSERT_EQ(found.size(), 1u) << "two watchers told of it";
  EXPECT_EQ(found[0].rule, "A");
  EXPECT_EQ(found[0].global_step, 5);
  EXPECT_EQ(found[0].text, "it broke");
  EXPECT_EQ(found[0].wall_nanos, 1005);
  EXPECT_THAT(reader.Next(), IsEmpty()) << "the last line is not whole";
  base::Spill(path, base::Slurp(path) + second.substr(20) + FoundLine("A", 5, /*attempt=*/1));
  found = reader.Next();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].global_step, 7);
  EXPECT_EQ(found[1].attempt, 1);
}

TEST(FoundReaderTest, ALineWithoutEndHidesNothingBehindIt) {
  base::ScratchDirectory run;
  base::Spill(run / "events.jsonl", std::string(40u << 20, 'x') + "\n" + FoundLine("A", 5));
  FoundReader reader(run.path());
  EXPECT_EQ(reader.Next().size(), 1u);
}

}  // namespace
}  // namespace tdbg::watch
