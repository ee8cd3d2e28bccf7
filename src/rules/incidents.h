// Findings of one cause are one incident.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/engine.h"
#include "rules/rule.h"

namespace tdbg::rules {

/// What users are told: a cause, its evidence, and its consequences.
struct Incident {
  std::string id;        ///< "no_gradient", a second one "no_gradient-2"; of other rules the rule's name
  std::string detector;  ///< the profile's detector, a section of docs/incidents.md; empty for other rules
  std::string rule;      ///< configuration name of the rule that found it
  std::string family;    ///< the detector's (profile/catalogue.h): "wiring", "boosting", ...; or "rule"
  std::string title;     ///< "parameters get no gradient"
  std::string sentence;  ///< all of it, with the numbers
  int64_t first_step = 0;
  std::string tensor, layer, worker;  ///< where it shows first; may be empty
  std::string confidence;             ///< "certain", "likely", "possible"
  std::string advice;                 ///< what to do next
  std::vector<Finding> evidence;      ///< the cause's findings, never empty
  std::vector<Finding> consequences;  ///< findings that follow from it, by step
  bool nonfinite = false;             ///< it is a NaN or an infinity: the run may say where it began
  std::string muted_because;          ///< the user has muted it, and why (mutes.h); empty: it is not muted
  bool muted() const { return !muted_because.empty(); }
};

/// Calls `put(name, value)` for each field by the name that it has in JSON, in the order in which it is
/// written; not for the findings.
template <typename F>
void ForEachField(const Incident& incident, F&& put) {
  put("id", incident.id);
  put("rule", incident.rule);
  put("detector", incident.detector);
  put("family", incident.family);
  put("title", incident.title);
  put("sentence", incident.sentence);
  put("first_step", incident.first_step);
  put("tensor", incident.tensor);
  put("layer", incident.layer);
  put("worker", incident.worker);
  put("confidence", incident.confidence);
  put("advice", incident.advice);
  put("muted", incident.muted());
  put("because", incident.muted_because);
}

/// Groups the findings of a run's statuses, which may come from an engine or from events: the same list live
/// and in a replay. Findings of wiring and start are causes first, then the earliest finding. Each rule that
/// the user named is an incident of its own, unless its finding follows from another rule's NaN; the earliest
/// comes first. Findings that are muted (MarkMuted) are grouped as if there were no others, and the others as
/// if there were no muted ones: what is muted hides nothing. Incidents that are muted come last.
std::vector<Incident> IncidentsOf(const std::vector<RuleStatus>& statuses);

}  // namespace tdbg::rules
