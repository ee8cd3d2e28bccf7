// The last step before a job's command: its /opt/ml becomes the one that is seen, its variables are set.
#pragma once

#include <string>

#include "service/job_files.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// What `tdbg serve --enter` does: this process becomes the job's command, inside its /opt/ml. Returns only
/// where that failed.
Status EnterContainer(const std::string& job_directory);

/// Another machine takes over a training that was interrupted: its /opt/ml has the inputs, the code as it was
/// sent, and what the buckets hold of checkpoints and of TensorBoard's files. Whatever else the last attempt
/// has left there is gone.
/// \param root  as LayOutContainer
/// \error  what could not be done; the training finds the rest of the old disk, and no file is half there
Status RenewDisk(const JobDocument& job, const JobPaths& paths, const std::string& root);

/// Removes what no bucket keeps of a folder that was sent there: links, pipes, names that end in ".tmp",
/// directories without a file.
void KeepWhatIsSent(const std::string& directory);

}  // namespace tdbg::service
