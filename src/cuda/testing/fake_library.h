// The fake driver, loaded as the real one is, and its controls: for this room's tests.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "cuda/driver.h"
#include "cuda/testing/fake_driver.h"

namespace tdbg {
extern const char* const kFakeCudaLibrary;  // of this clone (tdbg_path in cmake/rooms.cmake)
}

namespace tdbg::cuda {

struct FakeDriver {
  FakeDriver() : library(dlopen(kFakeCudaLibrary, RTLD_NOW | RTLD_LOCAL)) {
    Get(&reset, "fake_cuda_reset");
    Get(&set, "fake_cuda_set");
    Get(&calls, "fake_cuda_calls");
    Get(&drain, "fake_cuda_drain");
    Get(&begin_capture, "fake_cuda_begin_capture");
    Get(&end_capture, "fake_cuda_end_capture");
    Get(&replay, "fake_cuda_replay");
  }
  template <typename F>
  void Get(F* function, const char* name) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
  }
  void* library;
  decltype(&fake_cuda_reset) reset;
  decltype(&fake_cuda_set) set;
  decltype(&fake_cuda_calls) calls;
  decltype(&fake_cuda_drain) drain;
  decltype(&fake_cuda_begin_capture) begin_capture;
  decltype(&fake_cuda_end_capture) end_capture;
  decltype(&fake_cuda_replay) replay;
};

/// The fake driver as it is when new, and loaded.
class FakeDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake.reset();
    auto loaded = Driver::Load(kFakeCudaLibrary);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    driver = *loaded;
  }
  void TearDown() override { fake.reset(); }

  static inline FakeDriver fake;
  Driver driver;
};

}  // namespace tdbg::cuda
