// Child processes in their own process group.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::base {

struct SpawnOptions {
  std::vector<std::string> argv = {};               ///< argv[0] is looked up in PATH
  std::map<std::string, std::string> set_env = {};  ///< on top of the caller's environment
  std::string working_directory = {};               ///< empty: the caller's
  std::string stdin_text = {};                      ///< with pipe_stdin: what the child reads
  bool pipe_stdin = false;
  int input_fd = -1;   ///< becomes the child's stdin; -1: see pipe_stdin. Not for a child that may have the
                       ///< terminal: it is not given it
  int output_fd = -1;  ///< becomes the child's stdout and stderr; -1: the caller's
  int error_fd = -1;   ///< becomes its stderr, in output_fd's place; -1: see there
  /// The child is killed when the calling thread ends, and with it the process. Its own children are not.
  bool die_with_thread = false;
  /// Limit of its private writable memory (RLIMIT_DATA), and no core dumps; 0: as the caller's. Not
  /// RLIMIT_AS: that counts files which are mapped to be read, and a run's segments are.
  uint64_t memory_bytes = 0;
  /// The child leads its own process group; on a terminal it is made the foreground group, so that
  /// ctrl-C and job control reach it as they would without us.
  bool own_group = true;
};

struct ExitState {
  bool signaled = false;
  int code = 0;  ///< exit code, or the signal's number
  /// What a shell would report: code, or 128 + signal.
  int shell_code() const { return signaled ? 128 + code : code; }
};

class Child {
 public:
  /// \error kNotFound  no such command (or not executable), found out before returning.
  static Result<Child> Spawn(const SpawnOptions& options);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) noexcept;
  ~Child();  ///< does not kill or wait

  pid_t pid() const { return pid_; }
  /// Nothing while it runs. \param timeout_millis  0 polls, -1 waits.
  std::optional<ExitState> Wait(int timeout_millis);
  /// Readable once it has ended, for poll; -1 before Linux 5.3.
  int poll_fd() const { return pidfd_; }
  /// To the whole group. Harmless once everything in it is gone.
  void SignalGroup(int signal_number);
  /// Somebody of the group (a grandchild too) is still alive.
  bool GroupAlive() const;

 private:
  Child() = default;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool own_group_ = true;
  /// The group has stopped on ctrl-Z, or wants the terminal: hands job control on to our own shell.
  void FollowStop(int signal_number);

  bool gave_terminal_ = false;
  mutable bool group_gone_ =
      false;  ///< seen once, believed for ever: the number may be somebody else's by then
  std::optional<ExitState> exit_;
};

/// Path of the running executable; its host's name; this machine's boot id.
std::string SelfExecutable();
std::string HostName();
std::string BootId();

}  // namespace tdbg::base
