#include "rules/mutes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "rules/details.h"
#include "rules/incidents.h"

namespace tdbg::rules {
namespace {

std::map<Fingerprint, std::string> ReasonsOf(const std::vector<Mute>& mutes) {
  std::map<Fingerprint, std::string> reasons;
  for (const Mute& mute : mutes) {
    for (const Fingerprint& one : mute.what) reasons.emplace(one, mute.because);
  }
  return reasons;
}

bool IsOfProfile(const RuleStatus& status) {
  return !status.findings.empty() && !status.findings.front().detector.empty();
}

std::string MutedDetails(const RuleStatus& status) {
  const std::vector<Incident> incidents = IncidentsOf({status});
  std::string text = fmt::format("Nothing else was found: {} muted",
                                 base::Counted(incidents.size(), "incident is", "incidents are"));
  std::string_view between = ": ";
  for (const Incident& incident : incidents) {
    text += fmt::format("{}{}, because {}", between, incident.title, incident.muted_because);
    between = "; ";
  }
  return CutDetails(std::move(text));
}

void Mark(const std::map<Fingerprint, std::string>& reasons, RuleStatus* status) {
  for (Finding& finding : status->findings) {
    finding.muted_because.clear();
    if (finding.detector.empty() || reasons.empty()) continue;
    const auto reason = reasons.find(FingerprintOf(finding));
    if (reason != reasons.end()) finding.muted_because = reason->second;
  }
}

}  // namespace

std::string LayerOf(const std::string& tensor) {
  if (tensor.starts_with("context/")) return {};
  const size_t slash = tensor.rfind('/');
  const std::string name = slash == std::string::npos ? tensor : tensor.substr(slash + 1);
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

Fingerprint FingerprintOf(const Finding& finding) {
  std::string place = LayerOf(finding.tensor);
  if (place.empty()) place = finding.tensor.empty() ? finding.worker : finding.tensor;
  return {finding.detector, std::move(place)};
}

void MarkMuted(const std::vector<Mute>& mutes, RuleStatus* status) { Mark(ReasonsOf(mutes), status); }

void ApplyMutes(const std::vector<Mute>& mutes, bool goes_on, std::vector<RuleStatus>* statuses) {
  const std::map<Fingerprint, std::string> reasons = ReasonsOf(mutes);
  for (RuleStatus& status : *statuses) {
    Mark(reasons, &status);
    if (status.state != RuleState::kIssuesFound || !IsOfProfile(status)) continue;
    std::vector<Finding> heard;
    std::ranges::copy_if(status.findings, std::back_inserter(heard),
                         [](const Finding& finding) { return finding.muted_because.empty(); });
    if (heard.size() == status.findings.size()) continue;
    if (!heard.empty()) {
      status.details = HitDetails(status.rule, heard);
      continue;
    }
    status.state = goes_on ? RuleState::kInProgress : RuleState::kNoIssuesFound;
    status.nonfinite_since = -1;
    status.details = MutedDetails(status);
  }
}

}  // namespace tdbg::rules
