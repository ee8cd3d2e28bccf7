// For tests: memory into which somebody else writes, as another process does into a file that is mapped.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "base/posix.h"

namespace tdbg::base {

/// The same pages at two addresses: what is written through the one is no race with what is done through the
/// other, as it is none where processes are two.
class AliasedMemory {
 public:
  explicit AliasedMemory(size_t bytes) : bytes_(bytes) {
    const UniqueFd fd(::memfd_create("tdbg-test", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    for (void*& at : at_) {
      at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
      EXPECT_NE(at, MAP_FAILED);
    }
  }
  ~AliasedMemory() {
    for (void* at : at_) ::munmap(at, bytes_);
  }
  AliasedMemory(const AliasedMemory&) = delete;

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_[0]), bytes_}; }
  std::span<std::byte> alias() const { return {static_cast<std::byte*>(at_[1]), bytes_}; }

 private:
  const size_t bytes_;
  void* at_[2] = {};
};

/// Does something again and again on a thread of its own, for as long as it lives; once before it is made.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> act)
      : thread_([this, act = std::move(act)] {
          for (; !over_.load(std::memory_order_relaxed); began_ = true) act();
        }) {
    while (!began_) std::this_thread::yield();
  }
  ~Meanwhile() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Meanwhile(const Meanwhile&) = delete;

 private:
  std::atomic<bool> began_{false}, over_{false};
  std::thread thread_;
};

}  // namespace tdbg::base
