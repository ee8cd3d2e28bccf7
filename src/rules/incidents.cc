#include "rules/incidents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/stable_sort.h"
#include "rules/details.h"
#include "rules/mutes.h"
#include "rules/profile/catalogue.h"

namespace tdbg::rules {
namespace {

using profile::DetectorInfo;

// All that one detector found at one step.
struct Group {
  const DetectorInfo* info = nullptr;
  int64_t step = 0;
  std::vector<Finding> findings;
};

// What leads: what was wrong before the first step, then what began first, then the catalogue's order.
bool Leads(const Group& a, const Group& b) {
  const auto key = [](const Group& group) {
    const bool state = group.info->family == profile::Family::kWiring ||
                       group.info->family == profile::Family::kStart ||
                       (group.info->family == profile::Family::kData && group.info->id != "input_nonfinite");
    // A state is said to be one after some steps. Of what was found later than that it began later, too, and
    // may itself follow from something.
    const bool from_the_start = state && group.step < profile::kStateSteps * 3;
    const int64_t began = group.step - std::max(state ? profile::kStateSteps : 0, group.info->told_after);
    return std::tuple(!from_the_start, from_the_start ? 0 : began, group.info - profile::Catalogue().data(),
                      group.step);
  };
  return key(a) < key(b);
}

std::vector<Group> GroupsOf(const RuleStatus& status, bool muted) {
  std::vector<Group> groups;
  std::map<std::pair<const DetectorInfo*, int64_t>, size_t> places;
  for (const Finding& finding : status.findings) {
    if (finding.muted_because.empty() == muted) continue;
    const DetectorInfo* const info = profile::Find(finding.detector);
    if (info == nullptr) continue;  // of a later version
    const auto [place, is_new] = places.try_emplace({info, finding.global_step}, groups.size());
    if (is_new) groups.push_back({info, finding.global_step, {}});
    groups[place->second].findings.push_back(finding);
  }
  base::StableSort(&groups, Leads);
  return groups;
}

using Numbers = std::map<std::string, int>;  // how many incidents a detector has

void AddOfProfile(const RuleStatus& status, bool muted, Numbers* seen, std::vector<Incident>* incidents) {
  struct Open {
    const DetectorInfo* info;
    int64_t step;
    std::string advice;
    size_t incident;
  };
  std::vector<Open> open;
  for (Group& group : GroupsOf(status, muted)) {
    const auto cause = std::ranges::find_if(open, [&](const Open& one) {
      // What one detector found twice, with another advice, has two causes.
      if (one.info == group.info && one.advice != group.findings.front().advice) return false;
      return profile::LeadsTo(*one.info, one.step, *group.info, group.step);
    });
    if (cause != open.end()) {
      std::vector<Finding>& into = (*incidents)[cause->incident].consequences;
      std::ranges::move(group.findings, std::back_inserter(into));
      continue;
    }
    const Finding& first = group.findings.front();
    open.push_back({group.info, group.step, first.advice, incidents->size()});
    Incident incident;
    const int number = ++(*seen)[std::string(group.info->id)];
    incident.id = number == 1 ? std::string(group.info->id) : fmt::format("{}-{}", group.info->id, number);
    incident.detector = group.info->id;
    incident.rule = status.name;
    incident.family = profile::FamilyName(group.info->family);
    incident.title = group.info->title;
    incident.sentence = first.text + ReplacedNote(first);
    incident.first_step = group.step;
    incident.tensor = first.tensor;
    incident.layer = LayerOf(first.tensor);
    incident.worker = first.worker;
    incident.confidence = profile::ConfidenceName(group.info->confidence);
    incident.advice = first.advice.empty() ? std::string(group.info->advice) : first.advice;
    incident.nonfinite = group.info->id == "nonfinite";
    incident.muted_because = first.muted_because;
    incident.evidence = std::move(group.findings);
    incidents->push_back(std::move(incident));
  }
}

void AddOfRule(const RuleStatus& status, std::vector<Incident>* incidents) {
  const Finding& first = status.findings.front();
  Incident incident;
  incident.id = status.name;
  incident.rule = status.name;
  incident.family = "rule";
  incident.title = status.name + " found an issue";
  incident.sentence = EvidenceLine(first);
  incident.first_step = first.global_step;
  incident.tensor = first.tensor;
  incident.layer = LayerOf(first.tensor);
  incident.worker = first.worker;
  incident.confidence = "possible";  // a threshold that somebody chose: what it means is theirs to say
  incident.nonfinite = FollowsNonfinite(status);
  incident.evidence = status.findings;
  incidents->push_back(std::move(incident));
}

}  // namespace

std::vector<Incident> IncidentsOf(const std::vector<RuleStatus>& statuses) {
  std::vector<Incident> incidents;
  const std::vector<int> causes = CausesOf(statuses);
  Numbers seen;
  const auto add_of_profile = [&](bool muted) {
    for (const RuleStatus& status : statuses) {
      const bool of_profile = !status.findings.empty() && !status.findings.front().detector.empty();
      if (of_profile) AddOfProfile(status, muted, &seen, &incidents);
    }
  };
  add_of_profile(/*muted=*/false);
  std::vector<Incident> of_rules;
  for (size_t i = 0; i < statuses.size(); ++i) {
    const RuleStatus& status = statuses[i];
    if (status.state != RuleState::kIssuesFound || status.findings.empty() || causes[i] >= 0) continue;
    if (status.findings.front().detector.empty()) AddOfRule(status, &of_rules);
  }
  // Whatever the order in which they were named.
  base::StableSort(&of_rules,
                   [](const Incident& a, const Incident& b) { return a.first_step < b.first_step; });
  std::ranges::move(of_rules, std::back_inserter(incidents));
  add_of_profile(/*muted=*/true);
  for (Incident& incident : incidents) {
    base::StableSort(&incident.consequences,
                     [](const Finding& a, const Finding& b) { return a.global_step < b.global_step; });
  }
  return incidents;
}

}  // namespace tdbg::rules
