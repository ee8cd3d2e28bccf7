#include "rules/kept_findings.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/stable_sort.h"
#include "rules/details.h"

namespace tdbg::rules {
namespace {

bool IsReplaced(const Finding& finding) { return finding.attempt >= 0; }

int64_t AttemptAt(const StepSource& steps, int64_t global_step) {
  size_t begin = 0, end = steps.step_count();
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    if (steps.Info(middle).global_step < global_step) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return steps.AttemptOf(std::min(begin, steps.step_count() - 1));
}

bool IsTheSame(const Finding& a, const Finding& b) {
  return a.global_step == b.global_step && a.tensor == b.tensor && a.worker == b.worker &&
         a.measure == b.measure && a.detector == b.detector;
}

}  // namespace

std::vector<int64_t> AttemptsOf(const RuleStatus& status, const StepSource& steps) {
  std::vector<int64_t> attempts;
  if (steps.step_count() == 0) return attempts;
  for (const Finding& finding : status.findings) attempts.push_back(AttemptAt(steps, finding.global_step));
  return attempts;
}

void MarkReplaced(int64_t base, const std::vector<int64_t>& attempts, RuleStatus* status) {
  for (size_t f = 0; f < attempts.size(); ++f) {
    Finding& finding = status->findings[f];
    if (finding.global_step >= base && !IsReplaced(finding)) finding.attempt = attempts[f];
  }
}

bool KeepReplaced(RuleStatus* status) {
  std::erase_if(status->findings, [](const Finding& finding) { return !IsReplaced(finding); });
  if (status->findings.empty()) return false;
  status->state = RuleState::kIssuesFound;
  status->details = HitDetails(status->rule, status->findings);
  return true;
}

void AddFindings(std::vector<Finding> found, RuleStatus* status) {
  std::erase_if(status->findings, [&](const Finding& before) {
    return IsReplaced(before) &&
           std::ranges::any_of(found, [&](const Finding& now) { return IsTheSame(before, now); });
  });
  const bool in_order = std::ranges::none_of(status->findings, IsReplaced);
  status->findings.insert(status->findings.end(), std::make_move_iterator(found.begin()),
                          std::make_move_iterator(found.end()));
  if (in_order) return;
  base::StableSort(&status->findings,
                   [](const Finding& a, const Finding& b) { return a.global_step < b.global_step; });
}

}  // namespace tdbg::rules
