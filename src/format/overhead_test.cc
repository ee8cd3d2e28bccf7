#include "format/overhead.h"

#include <gtest/gtest.h>

namespace tdbg::format {
namespace {

TEST(Overhead, ComesBackAsItWasWritten) {
  const Overhead said{
      .from_step = 7, .share = 0.05, .every = 4, .rare = 3, .tensors = {{"e", 4096, 26.25}, {"f", 2, 0.5}}};
  const Overhead read = Overhead::FromJson(said.ToJson());
  EXPECT_EQ(read.ToJson(), said.ToJson());
  EXPECT_EQ(read.tensors[0].every, 4096);
  EXPECT_TRUE(read.holds());
}

TEST(Overhead, OfDamagedTextNothingHolds) {
  for (const char* text :
       {"", "[]", "{", "{\"every\": \"x\", \"tensors\": 3}", "{\"every\": -4, \"rare\": -1}"}) {
    EXPECT_FALSE(Overhead::FromJson(text).holds()) << text;
  }
  const Overhead read = Overhead::FromJson(R"({"rare": 1, "tensors": [3, {"name": 4}]})");
  ASSERT_EQ(read.tensors.size(), 1u);
  EXPECT_EQ(read.tensors[0].every, 1);
}

TEST(Overhead, IsSaidInOneSentence) {
  EXPECT_EQ((Overhead{.share = 0.05}.Words()), "everything at every step that is due");
  EXPECT_EQ((Overhead{.share = 0.05, .every = 16}.Words()),
            "statistics at one step in 16: more would take over 5 % of the training's time (overhead)");
  EXPECT_EQ((Overhead{.share = 0.05, .rare = 4, .tensors = {{"e", 4096, 26.25}, {"f", 2, 0.5}, {"g", 2, 0.4}}}
                 .Words()),
            "e at one in 4096, since a look takes 26 ms; f at one in 2, since a look takes 0.5 ms; 2 other "
            "tensors less "
            "often, too: more would take over 5 % of the training's time (overhead)");
}

}  // namespace
}  // namespace tdbg::format
