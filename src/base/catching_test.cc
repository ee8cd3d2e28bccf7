#include "base/catching.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

namespace tdbg::base {
namespace {

TEST(Catching, WhatIsThrownIsAStatusAndWhatIsReturnedIsItself) {
  EXPECT_EQ(*Catching([]() -> Result<int> { return 7; }), 7);
  EXPECT_TRUE(Catching([] { return OkStatus(); }).ok());
  const Status memory = Catching([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.ToString(), "resource_exhausted: out of memory");
  const auto thread = Catching([]() -> Result<int> {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(thread.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(Catching([]() -> Status { throw std::logic_error("why"); }).ToString(), "internal: why");
  EXPECT_EQ(Catching([]() -> Status { throw 1; }).code(), Code::kInternal);
}

}  // namespace
}  // namespace tdbg::base
