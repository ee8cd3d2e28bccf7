#include "tdbg/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace tdbg {
namespace {

using ::testing::StartsWith;

TEST(StatusTest, DefaultIsOkAndSaysSo) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(OkStatus().ToString(), "ok");
}

TEST(StatusTest, ToStringNamesTheKindThenTheMessage) {
  EXPECT_EQ(DataLoss("segment 7 is short").ToString(), "data_loss: segment 7 is short");
}

TEST(StatusTest, AnnotatePutsTheNameInFrontAndKeepsTheCode) {
  const Status s = NotFound("no such step").Annotate("tensor h.3.attn");
  EXPECT_EQ(s.code(), Code::kNotFound);
  EXPECT_EQ(s.message(), "tensor h.3.attn: no such step");
}

TEST(StatusTest, AnnotatingOkLeavesItOk) {
  EXPECT_TRUE(OkStatus().Annotate("anything").ok());
  EXPECT_EQ(OkStatus().Annotate("anything").message(), "");
}

TEST(StatusTest, ErrnoChoosesTheCode) {
  EXPECT_EQ(ErrnoStatus(ENOENT, "open x").code(), Code::kNotFound);
  EXPECT_EQ(ErrnoStatus(ENOSPC, "write x").code(), Code::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EDQUOT, "write x").code(), Code::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EFBIG, "write x").code(), Code::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EIO, "read x").code(), Code::kUnavailable);
  EXPECT_THAT(ErrnoStatus(ENOENT, "open x").message(), StartsWith("open x: No such file"));
}

TEST(StatusTest, EveryCodeHasANameAndUnknownNumbersDoNotCrash) {
  for (int i = 0; i <= 10; ++i) EXPECT_NE(CodeName(static_cast<Code>(i)), "unknown") << i;
  EXPECT_EQ(CodeName(static_cast<Code>(200)), "unknown");
}

TEST(ResultTest, HoldsAValueThatMayOnlyMove) {
  Result<std::unique_ptr<int>> r(std::make_unique<int>(7));
  ASSERT_TRUE(r.ok());
  const std::unique_ptr<int> taken = *std::move(r);
  EXPECT_EQ(*taken, 7);
}

TEST(ResultTest, MadeFromAnOkStatusIsADefectNotASuccess) {
  const Result<int> r{OkStatus()};
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), Code::kInternal);
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Status Quarter(int x, int* out) {
  TDBG_ASSIGN_OR_RETURN(const int half, Half(x));
  TDBG_ASSIGN_OR_RETURN(*out, Half(half));
  TDBG_RETURN_IF_ERROR(OkStatus());
  return OkStatus();
}

TEST(ResultTest, MacrosHandOnTheFirstError) {
  int out = 0;
  EXPECT_TRUE(Quarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Quarter(6, &out).code(), Code::kInvalidArgument);
  EXPECT_EQ(out, 3);
}

}  // namespace
}  // namespace tdbg
