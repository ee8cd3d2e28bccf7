#include "cli/not_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tdbg::cli {
namespace {

using Cause = NotRun::Cause;

TEST(NotRunTest, NamesAreGroupedByWhatCanBeDone) {
  const std::string text = FormatNotRun({{"AllZero", Cause::kParameters, "a reason of a screen"},
                                         {"DeadRelu", Cause::kNothing, "another"},
                                         {"TensorVariance", Cause::kParameters, "a third"},
                                         {"Confusion", Cause::kPart, "a fourth"}},
                                        "'my run'", Terminal{});
  EXPECT_EQ(text, R"(
could not run; tdbg check 'my run' --json says why of each
2 rules lacked a parameter:
  AllZero, TensorVariance
  next: tdbg rules all_zero lists them
  next: tdbg check 'my run' --rule all_zero KEY=VALUE
1 rule found nothing to judge:
  DeadRelu
  next: tdbg check 'my run' --rule dead_relu says what it looked for
  next: tdbg run --rule dead_relu keeps it next time
1 rule had only a part of the inputs:
  Confusion
  next: tdbg run --rule confusion keeps all of it next time
)");
  EXPECT_EQ(FormatNotRun({}, "last", Terminal{}), "");
}

TEST(NotRunTest, NamesFitTheTerminal) {
  Terminal narrow;
  narrow.is_terminal = true;
  narrow.columns = 24;
  const std::vector<NotRun> rules(3, {"UnchangedTensor", Cause::kNothing, ""});
  EXPECT_THAT(FormatNotRun(rules, "last", narrow),
              testing::HasSubstr(":\n  UnchangedTensor,\n  UnchangedTensor,\n  UnchangedTensor\n"));
  narrow.columns = 36;
  EXPECT_THAT(FormatNotRun(rules, "last", narrow),
              testing::HasSubstr(":\n  UnchangedTensor, UnchangedTensor,\n  UnchangedTensor\n"));
}

}  // namespace
}  // namespace tdbg::cli
