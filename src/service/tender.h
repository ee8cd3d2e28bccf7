// Looks after one job from Starting to its end: a process of its own, which outlives the server.
#pragma once

#include <string>

#include "tdbg/status.h"

namespace tdbg::service {

/// How the server tells whoever looks after a job of its package index (Images::package_index). A variable,
/// since it may hold a password; the training does not get it.
inline constexpr const char* kPackageIndexVariable = "TDBG_SERVICE_PACKAGE_INDEX";

/// Inputs and code come from the bucket, /opt/ml is laid out, `tdbg run` trains, judges and writes, what it
/// leaves goes into the bucket. Where a process like this one was killed, it goes on where that one stopped:
/// the training is `tdbg run`'s, and has not noticed.
/// \error kFailedPrecondition  somebody looks after it already; kDataLoss  its document is damaged
Status TendJob(const std::string& job_directory);

}  // namespace tdbg::service
