// The process that stands between a training and where its output goes, and keeps a copy of it.
//
//   training --stdout--> pipe (or pty) --> tdbg-log --> our stdout
//                                             |
//                                             +-----> RUN/logs/attempt-N.out, .index
//
// A process of its own, and not a thread of the launcher: a launcher that is killed would take the pipe's
// reader with it, and the training's next print would end the training. This one lives until the last who
// writes has gone, whatever signals come, and where it is killed itself the launcher, which has the same
// descriptors, starts another.
#pragma once

namespace tdbg::jobs {

/// main() of tdbg-log. Standard input is the launcher's socket, which hands over the descriptors to read
/// from; standard output and error are where what is read from them goes.
int KeepLog();

}  // namespace tdbg::jobs
