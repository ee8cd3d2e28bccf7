#include "store/reader/dump.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "store/reader/testing.h"

namespace tdbg::store {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class DumpTest : public testing::Test {
 protected:
  json Json(const std::string& path) {
    const auto text = Dump(path, {.json = true});
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return text.ok() ? json::parse(*text) : json();
  }
  std::string Segment() const {
    return std::filesystem::directory_iterator(directory_ + "/segments")->path().string();
  }
  base::ScratchDirectory scratch_;
  const std::string directory_ = scratch_ / "worker_0";
};

TEST_F(DumpTest, AJournalShowsEveryRecordThatIsNotSealed) {
  WorkerFixture worker(directory_, {.tensors = 1});
  worker.Steps(0, 2);
  const json journal = Json(directory_ + "/journal");
  EXPECT_EQ(journal["kind"], "journal");
  EXPECT_EQ(journal["header"]["committed_seq"], journal["records"].back()["sequence"]);
  std::vector<std::string> types;
  for (const json& record : journal["records"]) types.push_back(record["type"]);
  EXPECT_THAT(types, testing::ElementsAre("kTensorDef", "kTensorDef", "kSummaries", "kScalars", "kRaw",
                                          "kCommit", "kSummaries", "kScalars", "kRaw", "kCommit"));
  EXPECT_EQ(journal["records"][2]["payload"]["row"][0]["mean"], WorkerFixture::Mean(0, 0));
  EXPECT_THAT(*Dump(directory_ + "/journal"), HasSubstr("committed_seq: 10\n"));
}

TEST_F(DumpTest, ASegmentShowsItsColumnsAndWhatIsDamaged) {
  {
    WorkerFixture worker(directory_, {.tensors = 1});
    worker.Steps(0, 2);
    worker.End();
  }
  json segment = Json(Segment());
  EXPECT_EQ(segment["tdbg"]["tensors"][0]["name"], "tensor/0");
  json steps;
  for (const json& entry : segment["entries"]) {
    EXPECT_FALSE(entry.contains("damage")) << entry;
    if (entry["key"] == "step/global") steps = entry["values"];
  }
  EXPECT_EQ(steps, json::array({0, 1, 1})) << "two steps, and the commit that follows the end";
  std::string bytes = base::Slurp(Segment());
  bytes.back() ^= 1;
  base::Spill(Segment(), bytes);
  segment = Json(Segment());
  EXPECT_TRUE(segment["entries"].back().contains("damage"));
}

TEST_F(DumpTest, SmallFilesAreRepeatedAndOthersRefused) {
  WorkerFixture worker(directory_, {});
  EXPECT_EQ(Json(directory_ + "/worker.json")["worker"], "worker_0");
  base::Spill(scratch_ / "noise", "no file of ours");
  EXPECT_EQ(Dump(scratch_ / "noise").status().code(), Code::kDataLoss);
  EXPECT_EQ(Dump(scratch_ / "nothing").status().code(), Code::kNotFound);
  base::Spill(scratch_ / "empty", "");
  EXPECT_FALSE(Dump(scratch_ / "empty").ok());
}

}  // namespace
}  // namespace tdbg::store
