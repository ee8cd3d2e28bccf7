#include "watch/incident_lines.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "rules/profile/catalogue.h"

namespace tdbg::watch {

using base::Printable;

bool IsExplained(const rules::Incident& incident, const std::vector<Origin>& origins) {
  if (!incident.nonfinite || origins.empty() || !origins.front().seen) return false;
  // A later NaN, where an earlier one is muted, began elsewhere.
  return incident.detector.empty() || incident.sentence == origins.front().sentence;
}

std::vector<std::string> IncidentLines(const rules::Incident& incident, const std::vector<Origin>& origins,
                                       const StepNames& names) {
  std::vector<std::string> lines;
  const bool explained = IsExplained(incident, origins);
  lines.push_back(
      fmt::format("{}: {}", names.Of(incident.first_step),
                  explained ? Printable(origins.front().sentence) : Printable(incident.sentence)));
  // Where an origin is known, general advice would only distract from it.
  const std::string& advice = explained ? origins.front().advice : incident.advice;
  lines.push_back(advice.empty() ? incident.confidence
                                 : fmt::format("{}; {}", incident.confidence, Printable(advice)));
  std::string followed;
  std::string_view last;
  for (const rules::Finding& finding : incident.consequences) {
    const rules::profile::DetectorInfo* const info = rules::profile::Find(finding.detector);
    if (info == nullptr || info->id == last) continue;
    last = info->id;
    followed +=
        fmt::format("{}{} at {}", followed.empty() ? "" : ", ", info->title, names.Of(finding.global_step));
  }
  if (!followed.empty()) lines.push_back("followed by: " + followed);
  return lines;
}

void TellIncidents(const Trial& trial, const rules::RuleStatus& status, const std::vector<Origin>& origins,
                   actions::Notice* notice) {
  std::vector<rules::Incident> incidents = rules::IncidentsOf({status});
  Explain(&incidents, origins);
  for (const rules::Incident& incident : incidents) {
    if (incident.muted()) continue;
    if (notice->incident.empty()) {
      notice->incident = Printable(incident.sentence);
      notice->advice = Printable(incident.advice);
    }
    if (incident.detector.empty()) continue;
    if (notice->headline.empty()) notice->headline = incident.title;
    std::vector<int64_t> steps = {incident.first_step};
    for (const rules::Finding& finding : incident.consequences) steps.push_back(finding.global_step);
    for (const std::string& line : IncidentLines(incident, origins, StepNames(trial, steps)))
      notice->incidents += line + "\n";
  }
}

}  // namespace tdbg::watch
