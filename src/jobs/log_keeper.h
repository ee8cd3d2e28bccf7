// The process that stands between a training and where its output goes, and keeps a copy of it.
//
//   training --stdout--> pipe (or pty) --> tdbg-log --> our stdout
//                                             |
//                                             +-----> RUN/logs/attempt-N.out, .index
//
// A separate process, not a thread of the launcher: if the launcher is killed, the pipe would lose its
// reader, and the training would end at its next print. This process lives until the last writer is gone,
// whatever signals come. If it is killed itself, the launcher, which has the same descriptors, starts another
// one.
#pragma once

namespace tdbg::jobs {

/// main() of tdbg-log. Standard input is the launcher's socket, which passes the descriptors to read from;
/// what is read from them goes to standard output and error.
int KeepLog();

}  // namespace tdbg::jobs
