// For tests of any room: a directory that goes away, and statuses that say what went wrong.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::base {

/// A fresh directory, removed with all its contents.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tdbg-test-XXXXXX").string();
    if (::mkdtemp(name.data())) path_ = name;
    EXPECT_FALSE(path_.empty()) << "no scratch directory to be had: " << name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
inline void Spill(const std::string& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

}  // namespace tdbg::base

#define TDBG_EXPECT_OK(expr)                                                             \
  do {                                                                                   \
    const auto& tdbg_outcome_ = (expr);                                                  \
    EXPECT_TRUE(tdbg_outcome_.ok()) << ::tdbg::base::StatusOf(tdbg_outcome_).ToString(); \
  } while (0)
#define TDBG_ASSERT_OK(expr)                                                             \
  do {                                                                                   \
    const auto& tdbg_outcome_ = (expr);                                                  \
    ASSERT_TRUE(tdbg_outcome_.ok()) << ::tdbg::base::StatusOf(tdbg_outcome_).ToString(); \
  } while (0)
