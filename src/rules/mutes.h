// What a user has muted of the profile's incidents: it stays recorded and shown, and is no issue any more.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "rules/engine.h"
#include "rules/rule.h"

namespace tdbg::rules {

/// What a finding is about, whatever its step, its numbers and the run: the same in the script's next run.
struct Fingerprint {
  std::string detector;  ///< "dead_units"
  std::string place;     ///< its layer, else its tensor, else its worker
  auto operator<=>(const Fingerprint&) const = default;
};
Fingerprint FingerprintOf(const Finding& finding);

/// "Net_l1" of "gradient/Net_l1.weight"; empty where a tensor is of no layer.
std::string LayerOf(const std::string& tensor);

/// One incident that was muted, with what followed from it then: what follows later is news.
struct Mute {
  std::string id;     ///< the incident's, in the run in which it was muted
  std::string title;  ///< its headline
  std::string because;
  std::string run;     ///< the name of that run
  std::string script;  ///< in a user's own list: what is trained; empty in a run's
  int64_t wall_nanos = 0;
  std::vector<Fingerprint> what;  ///< never empty
};

/// Finding::muted_because of every finding of the profile, by these mutes alone.
void MarkMuted(const std::vector<Mute>& mutes, RuleStatus* status);
/// MarkMuted, and the profile's status without what is muted: where nothing else was found it is
/// NoIssuesFound, or InProgress if the rule still judges (`goes_on`), and its details say what is muted. Its
/// findings stay.
void ApplyMutes(const std::vector<Mute>& mutes, bool goes_on, std::vector<RuleStatus>* statuses);

}  // namespace tdbg::rules
