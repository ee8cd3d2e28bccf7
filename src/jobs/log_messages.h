// What a launcher and its tdbg-log say to each other, over a SOCK_SEQPACKET. Both are of one build.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/posix.h"

namespace tdbg::jobs {

/// The launcher's first message.
struct LogTask {
  struct Source {
    int read_fd = -1;     ///< a pipe's reading end, or a pty's master
    int forward_fd = -1;  ///< STDOUT_FILENO, STDERR_FILENO; -1: nowhere
    uint32_t stream = 0;  ///< OutputStream
    bool terminal = false;
  };
  std::string run_directory;
  int64_t attempt = 0, node = 0;
  uint64_t limit_bytes = 0;
  std::vector<std::string> secrets;
  std::vector<Source> sources;
};

/// Sends the task and its descriptors. \return 0 or errno
int SendTask(int socket, const LogTask& task);
/// Nothing if the other side is gone, or sent something else.
std::optional<LogTask> ReceiveTask(int socket);

/// Further messages are one word and a number.
enum class LogWord : uint8_t {
  kCommand = 'c',  ///< to tdbg-log: the process group that writes
  kFinish = 'f',   ///< to tdbg-log: answer once what was written so far has arrived
  kDone = 'd',     ///< from tdbg-log, with how many bytes the log could not keep
  /// From tdbg-log, with GoneNumber: what a source is forwarded to takes no more. Now everybody must close
  /// the reading end of the command's pipe, or the command would block for ever instead of getting an error.
  kOutputGone = 'r',
};
struct LogNote {
  LogWord word;
  int64_t number;
};
/// A source's index, and the errno with which writing failed; EPIPE: its reader went away.
inline int64_t GoneNumber(size_t index, int error) { return static_cast<int64_t>(index) << 32 | error; }
inline size_t IndexOfGone(int64_t number) { return static_cast<size_t>(number >> 32); }
inline int ErrorOfGone(int64_t number) { return static_cast<int>(number & 0xffffffff); }

bool SendNote(int socket, LogWord word, int64_t number = 0);
/// Nothing if no message came yet, or the other side is gone (then `gone` is set).
std::optional<LogNote> ReceiveNote(int socket, bool* gone);

}  // namespace tdbg::jobs
