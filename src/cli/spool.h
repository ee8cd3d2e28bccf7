// Where a run whose directory is a bucket (--dir s3://...) is kept on this machine until all of it is there:
// spool/<hash of the URL>/<the URL's last part> in the user's state directory, with the URL in a file beside
// it. The last part is what the job is called.
#pragma once

#include <string>

#include "tdbg/status.h"

namespace tdbg::cli {

/// Without slashes at its end: one prefix has one URL.
std::string NormalUrl(std::string url);
/// The directory of the run that is kept at this URL; made together with the run.
/// \error kFailedPrecondition  the user has no state directory
Result<std::string> SpoolOf(const std::string& url);
/// Writes the URL beside a spool, for UrlOfSpool. A failure is ignored: messages then name the directory.
void MarkSpool(const std::string& directory, const std::string& url);
/// The URL of a spool, or of what is below one; empty: the path is neither.
std::string UrlOfSpool(const std::string& path);
/// Moves a spool out of the way of the run that went on elsewhere. \return where it is now
Result<std::string> SetSpoolAside(const std::string& directory);
/// Removes a spool and what is beside it.
void RemoveSpool(const std::string& directory);

}  // namespace tdbg::cli
