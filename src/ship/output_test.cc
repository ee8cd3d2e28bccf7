#include "ship/output.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing.h"

namespace tdbg::ship {
namespace {

using base::ScratchDirectory;
using base::Slurp;
using base::Spill;

bool IsOurs(const std::string&, const std::string& inside) { return inside.ends_with(".ours"); }
bool IsOurFile(const std::string& path) { return Slurp(path) == "ours"; }

size_t EntriesOf(const std::string& directory) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) n += entry.exists();
  return n;
}

TEST(OutputDirectory, AppearsWholeOrNotAtAll) {
  const ScratchDirectory scratch;
  {
    auto output = OutputDirectory::Create(scratch / "new/", false, IsOurs);
    TDBG_ASSERT_OK(output);
    Spill(output->temporary_path() + "/a.ours", "1");
    EXPECT_FALSE(std::filesystem::exists(scratch / "new"));
  }
  EXPECT_EQ(EntriesOf(scratch.path()), 0u) << "what was dropped is gone";
  auto output = OutputDirectory::Create(scratch / "new/", false, IsOurs);
  TDBG_ASSERT_OK(output);
  Spill(output->temporary_path() + "/a.ours", "2");
  TDBG_ASSERT_OK(output->Commit());
  EXPECT_EQ(Slurp(scratch / "new/a.ours"), "2");
  EXPECT_EQ(EntriesOf(scratch.path()), 1u);
}

TEST(OutputDirectory, ReplacesAnEarlierExportOnlyWhenAskedTo) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "d/train");
  Spill(scratch / "d/train/old.ours", "old");
  EXPECT_EQ(OutputDirectory::Create(scratch / "d", false, IsOurs).status().code(), Code::kAlreadyExists);
  auto output = OutputDirectory::Create(scratch / "d", true, IsOurs);
  TDBG_ASSERT_OK(output);
  Spill(output->temporary_path() + "/new.ours", "new");
  TDBG_ASSERT_OK(output->Commit());
  EXPECT_EQ(Slurp(scratch / "d/new.ours"), "new");
  EXPECT_FALSE(std::filesystem::exists(scratch / "d/train"));
  EXPECT_EQ(EntriesOf(scratch.path()), 1u);
}

TEST(OutputDirectory, NeverReplacesAStrangersFiles) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "d/sub");
  Spill(scratch / "d/sub/thesis.tex", "years");
  const auto output = OutputDirectory::Create(scratch / "d", true, IsOurs);
  ASSERT_EQ(output.status().code(), Code::kAlreadyExists);
  EXPECT_NE(output.status().message().find("sub/thesis.tex"), std::string::npos) << output.status().message();
  EXPECT_EQ(Slurp(scratch / "d/sub/thesis.tex"), "years");
  std::filesystem::create_symlink(scratch / "d/sub/thesis.tex", scratch / "link");
  EXPECT_EQ(OutputDirectory::Create(scratch / "link", true, IsOurs).status().code(), Code::kAlreadyExists);
  std::filesystem::create_directories(scratch / "e");
  std::filesystem::create_directory_symlink(scratch / "d", scratch / "e/data");
  EXPECT_EQ(OutputDirectory::Create(scratch / "e", true, IsOurs).status().code(), Code::kAlreadyExists);
}

TEST(OutputDirectory, AnEmptyDirectoryIsFine) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "d");
  auto output = OutputDirectory::Create(scratch / "d", false, IsOurs);
  TDBG_ASSERT_OK(output);
  TDBG_ASSERT_OK(output->Commit());
}

TEST(CheckOutputFile, SaysWhatIsInTheWay) {
  const ScratchDirectory scratch;
  TDBG_EXPECT_OK(CheckOutputFile(scratch / "a.csv", false, IsOurFile));
  Spill(scratch / "a.csv", "ours");
  EXPECT_EQ(CheckOutputFile(scratch / "a.csv", false, IsOurFile).code(), Code::kAlreadyExists);
  TDBG_EXPECT_OK(CheckOutputFile(scratch / "a.csv", true, IsOurFile));
  Spill(scratch / "train.py", "mine");
  EXPECT_EQ(CheckOutputFile(scratch / "train.py", true, IsOurFile).code(), Code::kAlreadyExists);
  Spill(scratch / "mktemp", "");
  TDBG_EXPECT_OK(CheckOutputFile(scratch / "mktemp", true, IsOurFile));  // nothing is lost
  EXPECT_EQ(CheckOutputFile("/dev/null", true, IsOurFile).code(), Code::kAlreadyExists);
  EXPECT_EQ(CheckOutputFile(scratch.path(), true, IsOurFile).code(), Code::kAlreadyExists);
  EXPECT_EQ(CheckOutputFile(scratch / "no/a.csv", true, IsOurFile).code(), Code::kNotFound);
}

}  // namespace
}  // namespace tdbg::ship
