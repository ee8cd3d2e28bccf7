#include "page/base64.h"

#include <gtest/gtest.h>

namespace tdbg::page {
namespace {

// Examples of RFC 4648, section 10, and others.
TEST(Base64, IsThatOfItsRfc) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("ab"), "YWI=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64(std::string_view("\0\xff\xfe", 3)), "AP/+");
}

}  // namespace
}  // namespace tdbg::page
