#include "store/writer/commit_mark.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tdbg::store {
namespace {

TEST(CommitMarkTest, CountsOnAcrossJournals) {
  CommitMark mark;
  EXPECT_EQ(mark.Get().count, 0u);
  mark.StartJournal(7);
  EXPECT_EQ(mark.Get().sequence, 7u);
  mark.Add(640, 9);
  mark.Add(1280, 12);
  mark.StartJournal(12);
  EXPECT_EQ(mark.Get().position, 0u);
  EXPECT_EQ(mark.Get().sequence, 12u);
  EXPECT_EQ(mark.Get().count, 2u);
}

TEST(CommitMarkTest, WhatIsReadBelongsTogether) {
  CommitMark mark;
  constexpr uint64_t kCommits = 200'000;
  std::atomic<uint64_t> torn{0}, seen{0};
  std::thread reader([&] {
    for (uint64_t last = 0; last < kCommits;) {
      const CommitMark::Mark now = mark.Get();
      torn += now.position != 64 * now.count || now.sequence != 3 * now.count || now.count < last;
      last = now.count;
      ++seen;
    }
  });
  for (uint64_t n = 1; n <= kCommits; ++n) mark.Add(64 * n, 3 * n);
  reader.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace tdbg::store
