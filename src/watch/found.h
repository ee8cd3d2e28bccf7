// What a person is told at the moment at which it is found.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rules/engine.h"
#include "tdbg/trial.h"
#include "trial/access.h"
#include "watch/origins.h"

namespace tdbg::watch {

/// An incident, or where a NaN began.
struct Found {
  std::string rule;      ///< configuration name; empty: the training process itself saw where a NaN began
  std::string detector;  ///< the profile's; empty for any other rule
  int64_t attempt = 0;
  int64_t global_step = 0;
  std::string text;        ///< for a person: "TRAIN step 137 (global 140): the loss became NaN in log, ..."
  int64_t wall_nanos = 0;  ///< when it was told; only of one that was read
};

/// Whose step the finding is at.
int64_t AttemptOf(const TrialAccess& access, const rules::Finding& finding);
/// The first finding that is not muted; of a status without one, the first. \pre there are findings
const rules::Finding& FirstHeard(const rules::RuleStatus& status);
/// (step, attempt): the first finding of the latest attempt in which there is one that is not muted.
std::pair<int64_t, int64_t> LatestFinding(const TrialAccess& access, const rules::RuleStatus& status);

/// Of the event `found` (docs/format.md).
std::string FoundFields(const Found& found);

/// Tells of each incident once, and of one NaN once, whether a rule or the training itself was first to see
/// it.
class FoundOnce {
 public:
  /// A watcher before this one has told of it. \return  false: this was known
  bool Told(const Found& found);
  /// What is new and not muted, at most kMost in all. \param first_attempt  what was found in an earlier one
  /// is another job's, and is not told
  /// \param waits_for_rules  a NaN may be one that is muted, which the profile's finding of it will show
  std::vector<Found> New(const Trial& trial, const std::vector<rules::RuleStatus>& statuses,
                         const std::vector<Origin>& origins, int64_t first_attempt,
                         bool waits_for_rules = false);

  static constexpr size_t kMost = 100;

 private:
  using Key = std::tuple<std::string, std::string, int64_t, int64_t>;  // rule, detector, attempt, step
  bool IsTold(const rules::Incident& incident, const TrialAccess& access) const;

  std::set<Key> told_;
  // Of a NaN: anything; where it began; by another rule than the profile.
  bool nonfinite_told_ = false, origin_told_ = false, nonfinite_of_rule_told_ = false;
};

/// What events.jsonl tells: each once, also where several watched the run.
class FoundReader {
 public:
  explicit FoundReader(std::string run_path);
  /// What was added since the last call. Damaged lines are skipped.
  std::vector<Found> Next();

 private:
  bool ReadSome(std::vector<Found>* found);

  std::string path_;
  uint64_t position_ = 0;
  FoundOnce once_;
};

}  // namespace tdbg::watch
