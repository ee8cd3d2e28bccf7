// Rehearsed reclaims (`tdbg run --interrupt-every`): when the next one is due, and what is lost with the
// machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cli/job_flags.h"
#include "jobs/job.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {

/// Whether the next reclaim is due, for JobOptions::interrupts_now: after a time since now, or after a number
/// of the attempt's steps. Empty: none is to come.
std::function<bool()> ReclaimDue(const Rehearsal& rehearsal, const jobs::PreparedAttempt& prepared);

/// A $TMPDIR of an attempt's own, which is lost with its machine: removed when this goes away.
class Scratch {
 public:
  Scratch() = default;
  /// Makes it, and names it in the environment; without it the attempt has the user's own.
  Scratch(const jobs::PreparedAttempt& prepared, std::map<std::string, std::string>* environment);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(Scratch&& other) noexcept;

 private:
  std::string path_;
};

/// What is lost with each attempt: "; its predecessor's $TMPDIR is wiped". Empty where nothing is rehearsed.
std::string LossText(const Rehearsal& rehearsal);

}  // namespace tdbg::cli
