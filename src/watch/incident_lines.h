// Incidents in words, for the terminal and for mails alike.
#pragma once

#include <string>
#include <vector>

#include "actions/action.h"
#include "rules/incidents.h"
#include "trial/step_name.h"
#include "watch/origins.h"

namespace tdbg::watch {

/// Does an origin that was seen say where this incident began? Then its sentence replaces the incident's.
bool IsExplained(const rules::Incident& incident, const std::vector<Origin>& origins);
/// An incident of the profile in two to four lines: sentence, confidence and advice, consequences.
std::vector<std::string> IncidentLines(const rules::Incident& incident, const std::vector<Origin>& origins,
                                       const StepNames& names);
/// What a notice says of a status' incidents that are not muted.
void TellIncidents(const Trial& trial, const rules::RuleStatus& status, const std::vector<Origin>& origins,
                   actions::Notice* notice);

}  // namespace tdbg::watch
