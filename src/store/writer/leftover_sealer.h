// Seals what dead workers left in other directories, beside the drain.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace tdbg::store {

/// Each directory in turn, on a thread of its own and in the background: a journal of 256 MiB takes a second,
/// in which the drain has one of its own to empty. What fails is left as it is; it stays readable in the
/// journal, and whoever comes next tries again. Nothing comes out of it, no exception and no signal.
class LeftoverSealer {
 public:
  LeftoverSealer(base::FileSystem* files, std::vector<std::string> worker_directories);
  /// Stops between two segments.
  ~LeftoverSealer();
  LeftoverSealer(const LeftoverSealer&) = delete;

 private:
  void Run() noexcept;

  base::FileSystem* const files_;
  const std::vector<std::string> worker_directories_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tdbg::store
