// What rules said, without when: equal texts are equal verdicts.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"

namespace tdbg::scenarios {

inline std::string VerdictText(const std::vector<rules::RuleStatus>& statuses) {
  std::string text;
  for (const rules::RuleStatus& status : statuses) {
    text += status.name + " " + std::string(rules::RuleStateName(status.state)) + " judged " +
            std::to_string(status.steps_judged) + " incomplete " + std::to_string(status.steps_incomplete) +
            "\n" + status.details + "\n";
    for (const rules::Finding& finding : status.findings) text += FindingText(finding) + "\n";
  }
  return text;
}

}  // namespace tdbg::scenarios
