// What a finding is compared with, as JSON: the same fields in events, in the program's answers and in the
// page's.
#pragma once

#include "rules/rule.h"

namespace tdbg::watch {

/// Adds `expected` and `history` (docs/incidents.md, "Evidence") where the finding has them.
/// \param number  makes JSON of a double, which may be no number
template <typename Json, typename Number>
void PutEvidence(const rules::Finding& finding, Number&& number, Json* json) {
  if (finding.detector.empty()) return;
  if (const auto expected = rules::ExpectedOf(finding)) {
    (*json)["expected"] = {{"least", expected->least ? number(*expected->least) : Json()},
                           {"most", expected->most ? number(*expected->most) : Json()}};
  }
  if (finding.history.empty()) return;
  Json steps = Json::array(), values = Json::array();
  for (const auto& [step, value] : finding.history) {
    steps.push_back(step);
    values.push_back(number(value));
  }
  (*json)["history"] = {
      {"of", finding.history_of}, {"steps", std::move(steps)}, {"values", std::move(values)}};
}

}  // namespace tdbg::watch
