#include "rules/details.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "base/hash.h"
#include "base/text.h"
#include "trial/overhead.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

constexpr const char* kRuleStateNames[] = {"InProgress", "NoIssuesFound", "IssuesFound", "Error", "Stopped"};

}  // namespace

std::string_view RuleStateName(RuleState state) { return kRuleStateNames[static_cast<size_t>(state)]; }

std::string CodeOf(const plan::RuleConfig& config, const RuleInfo& info) {
  if (!config.file.empty()) return {};
  std::string text = info.class_name;
  for (const auto& [name, value] : config.parameters) text += "\n" + name + "=" + value;
  return base::Hex64(base::Hash64(std::as_bytes(std::span(text))));
}

std::optional<ExpectedRange> ExpectedOf(const Finding& finding) {
  if (finding.measure.empty() || std::isnan(finding.threshold)) return std::nullopt;
  if (finding.comparison == ">" || finding.comparison == ">=") return ExpectedRange{{}, finding.threshold};
  if (finding.comparison == "<" || finding.comparison == "<=") return ExpectedRange{finding.threshold, {}};
  return std::nullopt;
}

std::string ReplacedNote(const Finding& finding) {
  if (finding.attempt < 0) return {};
  return fmt::format(" (in attempt {}, whose step {} was trained again since)", finding.attempt,
                     finding.global_step);
}

std::string EvidenceLine(const Finding& finding) {
  std::string line = finding.tensor.empty() ? "" : finding.tensor + ": ";
  // A user's rule may say no more than yes.
  if (finding.measure.empty() && finding.comparison.empty())
    return line + finding.text + ReplacedNote(finding);
  line +=
      fmt::format("{} {:g} {} {:g}", finding.measure, finding.value, finding.comparison, finding.threshold);
  // Runs of one worker are the usual case, and "worker_0" on each line tells nobody anything.
  std::string note = finding.worker == "worker_0" ? "" : finding.worker;
  if (!finding.text.empty()) note += (note.empty() ? "" : "; ") + finding.text;
  if (!note.empty()) line += " (" + note + ")";
  return line + ReplacedNote(finding);
}

std::string HitDetails(std::string_view class_name, const std::vector<Finding>& findings) {
  std::string text = fmt::format(
      "RuleEvaluationConditionMet: Evaluation of the rule {} at step {} resulted in the condition being "
      "met\n",
      class_name, findings.front().global_step);
  for (size_t i = 0; i < findings.size(); ++i) {
    const std::string line = EvidenceLine(findings[i]) + "\n";
    if (line.size() == 1) continue;
    const std::string rest = fmt::format("and {} more\n", findings.size() - i);
    // Room is kept for the sentence that says how many are missing, unless this line is the last.
    const size_t needed = line.size() + (i + 1 < findings.size() ? rest.size() : 0);
    if (text.size() + needed > kMaxDetails) {
      text += rest;
      break;
    }
    text += line;
  }
  return CutDetails(std::move(text));
}

bool HadTooLittle(const RuleStatus& status) {
  return status.state == RuleState::kError && status.steps_judged == 0 && status.steps_incomplete == 0 &&
         status.details.starts_with(kNotJudged) && status.details.find(kIncomplete) == std::string::npos;
}

bool HadNothing(const RuleStatus& status) {
  return status.state == RuleState::kNoIssuesFound && status.details.starts_with(kNothingToJudge);
}

std::string Judging::ByHowMany() const {
  return judged == rules ? "" : fmt::format(" by {} of {}", judged, base::Counted(rules, "rule"));
}

Judging JudgingOf(const std::vector<RuleStatus>& statuses) {
  const auto judged = [](const RuleStatus& status) { return status.steps_judged > 0; };
  return {statuses.size(), static_cast<size_t>(std::ranges::count_if(statuses, judged))};
}

bool FoundNonfinite(const RuleStatus& status) {
  return status.state == RuleState::kIssuesFound && !status.findings.empty() &&
         std::all_of(status.findings.begin(), status.findings.end(), [](const Finding& finding) {
           return finding.measure == "nonfinite_count" || finding.measure == "nan_count" ||
                  finding.measure == "inf_count" || std::isnan(finding.value);
         });
}

bool FollowsNonfinite(const RuleStatus& status) {
  return FoundNonfinite(status) ||
         (status.state == RuleState::kIssuesFound && !status.findings.empty() && status.nonfinite_since >= 0);
}

std::vector<int> CausesOf(const std::vector<RuleStatus>& statuses) {
  const auto step = [](const RuleStatus& status) { return status.findings.front().global_step; };
  const auto tells_more = [&](const RuleStatus& a, const RuleStatus& b) {
    if (step(a) != step(b)) return step(a) < step(b);
    return a.rule == "ExplodingTensor" && b.rule != "ExplodingTensor";
  };
  // Of each episode what tells most of it, and of several the first. In linear time: others may have written
  // hundreds of thousands of statuses.
  const auto leads = [&](size_t a, size_t b) {
    if (tells_more(statuses[a], statuses[b])) return true;
    return a < b && !tells_more(statuses[b], statuses[a]);
  };
  using Leaders = std::map<int64_t, size_t>;
  const auto offer = [&](Leaders* leaders, int64_t key, size_t status) {
    const auto [at, is_new] = leaders->emplace(key, status);
    if (!is_new && leads(status, at->second)) at->second = status;
  };
  Leaders by_episode, by_step, by_step_without_episode;
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!FoundNonfinite(statuses[i])) continue;
    offer(&by_step, step(statuses[i]), i);
    if (statuses[i].nonfinite_since >= 0)
      offer(&by_episode, statuses[i].nonfinite_since, i);
    else
      offer(&by_step_without_episode, step(statuses[i]), i);
  }
  const auto leader = [&](const RuleStatus& status) {
    int first = -1;
    const auto look = [&](const Leaders& leaders, int64_t key) {
      const auto at = leaders.find(key);
      if (at != leaders.end() && (first < 0 || leads(at->second, static_cast<size_t>(first))))
        first = static_cast<int>(at->second);
    };
    if (status.nonfinite_since >= 0) {
      look(by_episode, status.nonfinite_since);
      look(by_step_without_episode, step(status));
    } else {
      look(by_step, step(status));
    }
    return first;
  };
  std::vector<int> causes(statuses.size(), -1);
  for (size_t i = 0; i < statuses.size(); ++i) {
    // Two of ExplodingTensor look at different tensors: each was asked for.
    if (!FollowsNonfinite(statuses[i]) || statuses[i].rule == "ExplodingTensor") continue;
    // What measured something else may have seen it first, and still it is not what began it.
    const bool itself = FoundNonfinite(statuses[i]);
    const int cause = leader(statuses[i]);
    if (cause < 0 || cause == static_cast<int>(i)) continue;
    if (itself || step(statuses[static_cast<size_t>(cause)]) <= step(statuses[i])) causes[i] = cause;
  }
  return causes;
}

std::string LostText(const std::vector<DroppedInfo>& dropped, const std::vector<std::string>& damage,
                     bool raw, int64_t start, int64_t end) {
  std::string text;
  for (const DroppedInfo& drop : dropped) {
    if (drop.kind != "summary" && drop.kind != "step" && !(raw && drop.kind == "raw")) continue;
    // Unsupported types never had statistics, and the step that was open when a process died never was one.
    if (drop.cause == "unsupported" || drop.cause == "crashed") continue;
    if (drop.first_step >= end || (drop.last_step >= 0 && drop.last_step < start)) continue;
    const char* const what = drop.kind == "step"  ? "steps"
                             : drop.kind == "raw" ? "raw tensors"
                                                  : "statistics";
    text += fmt::format("{} dropped ({}): {}", what, drop.cause, drop.count);
    if (drop.first_step >= 0) text += ", " + StepSpan(drop.first_step, drop.last_step);
    text += fmt::format(" ({}); ", drop.worker);
  }
  if (!damage.empty()) {
    text += fmt::format("{}, the first: {}; ", base::Counted(damage.size(), "damaged place"), damage[0]);
  }
  return text;
}

std::string Remarked(const Rule& rule, const StepContext& last) {
  std::string text = rule.Remarks();
  if (const std::string less = SawLessText(last.Context(kOverheadTopic)); !less.empty())
    text += (text.empty() ? "" : "; ") + less;
  return text;
}

std::string SeenText(int64_t values) {
  if (values == 0) return "no value was seen";
  return base::Counted(values, "value was", "values were") + " seen";
}

std::string KeptText(int64_t n) {
  if (n == 0) return "none was kept";
  return base::Counted(n, "was", "were") + " kept";
}

std::string CutDetails(std::string text) {
  if (text.size() <= kMaxDetails) return text;
  size_t end = kMaxDetails;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

}  // namespace tdbg::rules
