#include "store/writer/leftover_sealer.h"

#include <utility>

#include "base/background.h"
#include "base/catching.h"
#include "store/writer/worker_writer.h"

namespace tdbg::store {

LeftoverSealer::LeftoverSealer(base::FileSystem* files, std::vector<std::string> worker_directories)
    : files_(files), worker_directories_(std::move(worker_directories)) {
  // No thread to be had: `tdbg run` seals them, or the next attempt.
  if (auto started = base::StartInBackground("tdbg-leftovers", [this] { Run(); }); started.ok())
    thread_ = *std::move(started);
}

LeftoverSealer::~LeftoverSealer() {
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

void LeftoverSealer::Run() noexcept {
  for (const std::string& directory : worker_directories_) {
    if (stop_.load(std::memory_order_relaxed)) return;
    (void)base::Catching([&] { return SealLeftovers(*files_, directory, &stop_); }).ok();
  }
}

}  // namespace tdbg::store
