#include "base/stable_sort.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace tdbg::base {
namespace {

TEST(StableSortTest, IsStdStableSort) {
  std::mt19937 random(1);
  for (size_t count = 0; count < 200; ++count) {
    std::vector<std::pair<int, size_t>> items;
    for (size_t i = 0; i < count; ++i) items.emplace_back(static_cast<int>(random() % 7), i);
    std::vector<std::pair<int, size_t>> expected = items;
    const auto larger = [](const auto& a, const auto& b) { return a.first > b.first; };
    // By its position, an item says itself which of two equal ones came first.
    std::sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    StableSort(&items, larger);
    EXPECT_EQ(items, expected);
  }
}

TEST(StableSortTest, MovesWhatCannotBeCopied) {
  std::vector<std::unique_ptr<int>> items;
  for (const int value : {3, 1, 2}) items.push_back(std::make_unique<int>(value));
  StableSort(&items, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_EQ(*items[0], 1);
  EXPECT_EQ(*items[2], 3);
}

}  // namespace
}  // namespace tdbg::base
