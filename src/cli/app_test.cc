#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/testing.h"
#include "cli/command.h"
#include "cli/exit_codes.h"

namespace tdbg::cli {
namespace {

int ExitCodeAfterATornMapping(const std::string& path, std::string command) {
  base::SurviveTornMappings();
  base::Spill(path, std::string(100, 'x'));
  const auto mapping = base::ReadOnlyMapping::Open(path);
  if (!mapping.ok() || ::truncate(path.c_str(), 0) != 0 || (*mapping)->bytes()[0] != std::byte{0}) return -1;
  std::string program = "tdbg";
  char* words[] = {program.data(), command.data(), nullptr};
  return Main(2, words);
}

TEST(App, AnAnswerFromAFileThatWasCutShortMeanwhileIsNotASuccess) {
  const base::ScratchDirectory scratch;
  EXPECT_EXIT(::_exit(ExitCodeAfterATornMapping(scratch / "segment", "--version")),
              testing::ExitedWithCode(kExitDamaged), "tdbg: cut short.*/segment; .* ask again");
}

}  // namespace
}  // namespace tdbg::cli
