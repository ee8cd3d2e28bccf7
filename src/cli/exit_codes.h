// What the exit code says. A contract with scripts, documented in docs/cli.md; never renumber.
#pragma once

#include "tdbg/status.h"

namespace tdbg::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitIssues = 1;       ///< `check`: a rule found issues (`status`: with --exit-code)
inline constexpr int kExitDifferent = 1;    ///< `diff`: the runs differ
inline constexpr int kExitUsage = 2;        ///< flags, configuration, rule parameters
inline constexpr int kExitStopped = 3;      ///< `run`: a rule, or `tdbg stop`, stopped the command
inline constexpr int kExitNotFound = 4;     ///< no such run, tensor, step, file
inline constexpr int kExitDamaged = 5;      ///< damaged data
inline constexpr int kExitRefused = 6;      ///< not possible now: locked, full, gone, not yet
inline constexpr int kExitUnsupported = 7;  ///< a newer format, or something this build cannot do
inline constexpr int kExitNotJudged = 8;    ///< `check`: no issues, but some rule could not be judged
inline constexpr int kExitInternal = 70;    ///< a defect of tdbg
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNoCommand = 127;

inline int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return kExitOk;
    case Code::kInvalidArgument:
      return kExitUsage;
    case Code::kNotFound:
      return kExitNotFound;
    case Code::kDataLoss:
      return kExitDamaged;
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
    case Code::kResourceExhausted:
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return kExitRefused;
    case Code::kUnimplemented:
      return kExitUnsupported;
    case Code::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

}  // namespace tdbg::cli
