#include "base/data_extents.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/testing.h"

namespace tdbg::base {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(DataExtentsTest, HolesOfATerabyteAreSkipped) {
  const ScratchDirectory directory;
  const std::string path = directory / "sparse";
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 1024 * kGiB), 0);
  if (::lseek(file.get(), 0, SEEK_HOLE) != 0) GTEST_SKIP() << "this file system does not know holes";
  ASSERT_EQ(::pwrite(file.get(), "a", 1, 0), 1);
  ASSERT_EQ(::pwrite(file.get(), "b", 1, 700 * kGiB + 100), 1);
  DataExtents extents(path);
  EXPECT_EQ(extents.From(0), 0u);
  const uint64_t second = extents.From(1 << 20);
  EXPECT_LE(second, 700 * kGiB + 100);
  EXPECT_GT(second, 699 * kGiB);
  EXPECT_EQ(extents.From(700 * kGiB + 100), 700 * kGiB + 100);
  EXPECT_EQ(extents.From(701 * kGiB), 1024 * kGiB);
  EXPECT_EQ(extents.From(0), 0u) << "in any order";
}

TEST(DataExtentsTest, WhereNobodyKnowsHolesASearchEndsAfterWhatTheFileTakes) {
  const auto no_holes = [](int64_t offset, int whence) -> int64_t {
    return whence == SEEK_HOLE ? static_cast<int64_t>(1024 * kGiB) : offset;
  };
  const auto searched = [](DataExtents extents) {
    uint64_t at = 0;
    constexpr uint64_t kStep = 1 << 20;
    while (at < 1024 * kGiB && extents.From(at) == at) at += kStep;
    return at;
  };
  EXPECT_EQ(searched({no_holes, 1024 * kGiB, 4096}), kGiB);
  EXPECT_EQ(searched({no_holes, 1024 * kGiB, 5 * kGiB}), 5 * kGiB);
  EXPECT_EQ(searched({no_holes, 1024 * kGiB, 1024 * kGiB}), 1024 * kGiB) << "all of it is data";
  const auto refused = [](int64_t, int) -> int64_t {
    errno = EINVAL;
    return -1;
  };
  EXPECT_EQ(searched({refused, 1024 * kGiB, 4096}), kGiB);
}

TEST(DataExtentsTest, WhatCannotBeOpenedIsAllData) {
  DataExtents extents("/not/there");
  EXPECT_EQ(extents.From(12345), 12345u);
}

}  // namespace
}  // namespace tdbg::base
