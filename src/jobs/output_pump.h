// Hands on what a command prints to one of its streams, on a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "jobs/log_messages.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// A thread for each stream: a reader that is slow, or a file on a disk that stalls, holds up who writes
/// there, as it would without us, and nobody else.
class OutputPump {
 public:
  struct Options {
    LogTask::Source source;  ///< `read_fd` is the pump's own from here on
    int changed_fd = -1;     ///< an eventfd that is written when idle() or ended() has changed; duplicated
    /// Gets what was handed on. On the pump's thread.
    std::function<void(std::string_view)> copy;
    /// Asked when the reader is gone (EPIPE): false where the command need not notice, and prints on to
    /// nobody. On the pump's thread.
    std::function<bool()> reader_counts;
  };
  /// \error  there is no thread, or no descriptor, to be had
  static Result<OutputPump> Start(Options options);
  OutputPump(OutputPump&&) = default;
  OutputPump& operator=(OutputPump&&) = default;
  /// Does not wait: a thread that is held up by a reader ends with it, or with the process.
  ~OutputPump();

  /// From now on idle() says whether all that was printed so far is handed on.
  void AskForIdle();
  bool idle() const;
  /// No writer is left, or what it is handed on to takes no more.
  bool ended() const;
  /// Why it takes no more; 0: it does. From then on the command's writes must fail: close all other
  /// descriptors of the reading end.
  int error() const;
  /// Of a terminal: takes over its size. \return true if it has changed
  bool FollowWindow();

 private:
  struct State;
  explicit OutputPump(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace tdbg::jobs
