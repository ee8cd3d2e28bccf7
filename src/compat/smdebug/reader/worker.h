// One worker of an smdebug run behind the interface by which a run's workers are read.
#pragma once

#include <cstddef>
#include <memory>

#include "compat/smdebug/reader/run.h"
#include "store/reader/worker_reader.h"

namespace tdbg::compat::smdebug {

/// The reader answers from what the run's last Refresh saw; its own only tells whether that was anything of
/// its.
std::unique_ptr<store::WorkerReader> MakeWorkerReader(std::shared_ptr<Run> run, size_t worker);

}  // namespace tdbg::compat::smdebug
