// A launcher's entry in the registry of jobs. Nothing here fails: a job whose registry cannot be written is
// told so once, and runs unregistered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "jobs/registry.h"

namespace tdbg::cli {

class Registration {
 public:
  /// \param job  as for Registry::Launch
  void Launch(const jobs::JobRecord& job);
  /// Empty where it is not registered.
  const std::string& name() const { return name_; }

  void Training(int64_t pid, const std::string& message);
  void Move(jobs::JobPhase phase, const std::string& message);
  void BeginAttempt(int64_t attempt);
  void EndAttempt(int64_t attempt, int64_t exit_code, const std::string& message);

 private:
  void Say(const Status& status);

  std::optional<jobs::Registry> registry_;
  std::string run_id_, name_;
  bool said_ = false;
};

}  // namespace tdbg::cli
