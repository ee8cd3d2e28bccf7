// What was found in a run, and one sentence that says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/answer.h"
#include "rules/engine.h"
#include "trial/access.h"
#include "trial/step_name.h"
#include "watch/origins.h"

namespace tdbg::query {

/// The first NaN or infinity in the statistics, whether or not a rule looked for it. Reads each step once.
/// Without gradients of steps that AMP skipped.
class Health {
 public:
  struct First {
    int64_t global_step = -1;
    TensorIndex tensor = 0;
    bool nan = false;
    size_t tensors = 0;  ///< how many have any at that step
  };

  void Update(const TrialAccess& access);
  const std::optional<First>& first_nonfinite() const { return first_; }
  /// Where single steps' rows were dropped, only those at which some tensor of a group was not finite first.
  size_t nonfinite_steps() const { return nonfinite_steps_; }

 private:
  size_t taken_ = 0, nonfinite_steps_ = 0;
  uint64_t overlay_generation_ = 0;
  std::optional<First> first_;
};

/// "running", "completed", "failed (exit code 1)", ...: from the run's files and its launcher's events.
std::string StateOf(const Trial& trial);
/// As the run's events say; none where they cannot be read.
std::vector<rules::RuleStatus> StatusesOf(const Trial& trial);
/// How the steps of these findings, of these origins and of what `health` saw are called: `at` of the
/// answers.
StepNames NamesFor(const Trial& trial, const std::vector<rules::RuleStatus>& statuses,
                   const std::vector<watch::Origin>& origins, const Health& health);
/// Statuses with their findings, and the incidents that those are.
Json VerdictsOf(const std::vector<rules::RuleStatus>& statuses, const StepNames& names);
/// \param origins  of the run, in whose words a NaN is told
Json IncidentsOf(const std::vector<rules::RuleStatus>& statuses, const std::vector<watch::Origin>& origins,
                 const StepNames& names);
/// What happened (starts, ends, stalls, findings), as a list.
Json EventsOf(const Trial& trial);
Json OriginsOf(const std::vector<watch::Origin>& origins, const StepNames& names);
/// One sentence for a person, and "bad", "good" or "unknown": {"text", "mood", "step", "tensor"}.
/// \param verdicts, incidents, origins  of the same statuses
Json SentenceOf(const Trial& trial, const Health& health, const Json& verdicts, const Json& incidents,
                const Json& origins, const StepNames& names);

}  // namespace tdbg::query
