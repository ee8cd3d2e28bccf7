// A run that lives in a bucket comes back to this machine before its next attempt begins.
#pragma once

#include "cli/upload_process.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// Where the destination's bucket holds a run and its directory has none, brings it back, as `tdbg run --dir`
/// over a run of this machine needs it. A spool whose run went on elsewhere is set aside first. May take as
/// long as all of the run takes to be fetched; ctrl-C ends this process meanwhile, and the next call goes on.
/// \param must   there must be a run in the bucket
/// \param quiet  only errors are said
/// \pre a URL, and jobs::BlockForwardedSignals()
/// \error kNotFound       there must be one, and there is none
/// \error kAlreadyExists  an uploader elsewhere lives; the directory has another run, or one that is behind
/// \error kDataLoss       the bucket lacks a part of it
Status BringRunBack(const Destination& destination, bool must, bool quiet);

/// Before anything of a job is made: CheckUpload, and BringRunBack where the directory is the bucket, or the
/// run is to be resumed from there (`must`). \error as theirs
Status MakeReadyForUpload(const Destination& destination, bool must, bool quiet);

}  // namespace tdbg::cli
