// A child process that judges: one question at a time, one answer to each, limits on time and memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/posix.h"
#include "base/process.h"
#include "tdbg/status.h"

namespace tdbg::rulehost {

struct HostOptions {
  std::vector<std::string> command = {};
  std::map<std::string, std::string> environment = {};
  int64_t start_millis = 120'000;  ///< until it has answered the first question (imports, opening the run)
  int64_t answer_millis = 60'000;  ///< for each further one
  uint64_t memory_bytes = 4ull << 30;  ///< of private memory; 0: no limit
};

/// Questions and answers are JSON objects, one a line, over the child's standard input (a socket); its
/// standard output and error are kept, the last kilobytes. A thread of its own talks to the child, so that a
/// limit holds while nobody asks, and starts it, so that the child dies with us whatever ends us.
/// \threadsafety Any thread.
class HostProcess {
 public:
  struct Reply {
    Status status;  ///< why there will be no more: what it was about, and what the child said
    nlohmann::json json;
  };

  /// Starts it with a first question. `answered` is called from the process's thread at each reply.
  HostProcess(HostOptions options, const nlohmann::json& first, std::function<void()> answered);
  ~HostProcess();  ///< ends the child and its children
  HostProcess(const HostProcess&) = delete;

  /// \param about  what is asked, for messages: "at step 12"
  void Ask(const nlohmann::json& question, std::string about);
  /// Says something that has no answer.
  void Tell(const nlohmann::json& message);
  /// Replies in the order of the questions, the first question's first. After one with a status, nothing.
  std::optional<Reply> Take();
  /// Waits for the reply: for a process that is asked only once.
  Reply Wait();
  /// Ends the child now. Its output stays.
  void End();
  std::string Output() const;  ///< valid UTF-8, at most 4 KiB

 private:
  struct Asked {
    std::string about;
    const char* limit_key;
    int64_t limit_millis;
  };

  /// What the thread does until something happens.
  struct Turn {
    std::string sending;
    int64_t deadline_nanos;  ///< of what it was asked first; -1: it was asked nothing
  };

  void Run();
  /// Nothing where it cannot be started, which is delivered.
  std::optional<base::Child> Start();
  /// Nothing where the end was asked for.
  std::optional<Turn> NextTurn();
  /// Waits until there is something to send, to read or to end, and sends and reads it.
  void Exchange(const base::Child& child, const Turn& turn);
  bool HasExited(base::Child* child);
  bool IsBroken() const;
  /// Ends it and delivers its last words, unless its answer came meanwhile.
  bool EndedForBeingLate(base::Child* child);
  void LetGo(base::Child* child);
  void Deliver(Reply reply);
  bool TakeLines();
  void DrainOutput();
  std::string LastWords();

  const HostOptions options_;
  const std::function<void()> answered_;
  base::UniqueFd wake_;

  mutable std::mutex mutex_;
  std::condition_variable news_;
  // Guarded by mutex_.
  std::deque<Asked> waiting_;
  std::deque<Reply> replies_;
  std::string to_send_;
  std::string output_;
  int64_t deadline_nanos_ = 0;  // of the first of waiting_
  bool ending_ = false, broken_ = false;

  // Used by `thread_` only.
  base::UniqueFd socket_, output_end_;
  bool talking_ = true;  // it has not closed its end
  std::string received_;

  std::thread thread_;  // last: it uses all the above
};

}  // namespace tdbg::rulehost
