#include "format/drop_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tdbg::format {
namespace {

constexpr auto kUnsupported = DropCause::kUnsupported;
constexpr auto kSummary = DropKind::kSummary;

TEST(DropDetailsTest, IsOneSentenceWithWhatItWas) {
  DropDetails details;
  EXPECT_EQ(details.Sentence(kUnsupported, kSummary), DropCauseText(kUnsupported));
  EXPECT_TRUE(details.Add(kUnsupported, kSummary, "trees/Tree: a linear booster has no trees"));
  EXPECT_FALSE(details.Add(kUnsupported, kSummary, "trees/Tree: a linear booster has no trees"));
  EXPECT_EQ(details.Sentence(kUnsupported, kSummary),
            "What tdbg cannot record: trees/Tree: a linear booster has no trees.");
  EXPECT_EQ(details.Sentence(kUnsupported, DropKind::kRaw), DropCauseText(kUnsupported));
  EXPECT_TRUE(details.Add(kUnsupported, kSummary, "a\nlayout"));
  EXPECT_EQ(details.Sentence(kUnsupported, kSummary),
            "What tdbg cannot record: trees/Tree: a linear booster has no trees (and 1 other cause).");
}

TEST(DropDetailsTest, IsBounded) {
  DropDetails details;
  for (int i = 0; i < 100; ++i)
    details.Add(kUnsupported, kSummary, std::to_string(i) + std::string(1000, 'x'));
  EXPECT_LT(details.ToJson().size(), 1500);
  EXPECT_THAT(details.Sentence(kUnsupported, kSummary), testing::HasSubstr("(and 3 other causes or more)"));
}

TEST(DropDetailsTest, HoldsNoSecret) {
  DropDetails details;
  details.Add(DropCause::kAdaptorError, kSummary, "cannot open https://me:hunter2@host/x");
  EXPECT_THAT(details.ToJson(), testing::Not(testing::HasSubstr("hunter2")));
}

TEST(DropDetailsTest, WhatItGivesItReads) {
  DropDetails before, after;
  before.Add(kUnsupported, kSummary, "größe");
  before.Add(DropCause::kIoError, DropKind::kStep, "pwrite: Input/output error");
  after.AddJson(before.ToJson());
  after.AddJson(before.ToJson());
  EXPECT_EQ(after.ToJson(), before.ToJson());
}

TEST(DropDetailsTest, DamageIsLeftOut) {
  DropDetails details;
  for (const char* json : {"", "[]", "{\"unsupported\": 1}", "{\"unsupported\": {\"summary\": 3}}",
                           "{\"unsupported\": {\"summary\": [1, null]}}"})
    details.AddJson(json);
  EXPECT_EQ(details.Sentence(kUnsupported, kSummary), DropCauseText(kUnsupported));
}

}  // namespace
}  // namespace tdbg::format
