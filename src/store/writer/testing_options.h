// For tests: how their workers are opened.
#pragma once

#include <string>

#include "store/writer/worker_writer.h"

namespace tdbg::store {

/// worker_0 in `directory`, its journal beside it: one that laps soon, waits for the disk where it is full
/// and keeps everything.
inline WriterOptions TestOptions(const std::string& directory) {
  WriterOptions options;
  options.worker_directory = directory;
  options.journal_path = directory + "/journal";
  options.worker.worker = "worker_0";
  options.run_id = "0123456789abcdef0123456789abcdef";
  options.when_full = WhenFull::kBlock;
  options.journal_bytes = 1 << 20;
  options.budget_bytes = 0;
  return options;
}

}  // namespace tdbg::store
