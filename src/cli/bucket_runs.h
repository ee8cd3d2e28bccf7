// tdbg ls s3://BUCKET/PREFIX: the runs of a bucket, as their uploaders speak of them.
#pragma once

#include <string>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Prints the runs below a bucket's prefix, by name, or by size. Opens none of them: two requests a run.
/// \error  what tdbg-store says
Status PrintBucketRuns(const std::string& url, bool by_size, bool json);

}  // namespace tdbg::cli
