#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/regex.h"
#include "plan/groups.h"
#include "plan/plan.h"

namespace tdbg::plan {
namespace {

constexpr char kOutputGradient[] = "output_gradient";
constexpr size_t kMaxRawSchedules = 61;  // the bits of a mask that are not named in plan/groups.h

/// One entry of CollectionPlan::kinds.
struct KindRule {
  bool any = false;                  // "*"
  std::string kind;                  // "KIND..."; empty in "?REGEX": a tensor whose kind nobody said
  std::string module_kind;           // ":MODULE_KIND"
  std::optional<base::Regex> regex;  // "?REGEX": judges where the module's kind is not known
  std::string member_of;             // "@COLLECTION"
};

using RawSchedules = std::array<std::optional<Schedule>, kModes>;

bool NeverDue(const Schedule& s) { return s.end == 0 && s.steps.empty(); }

Result<KindRule> ParseKind(const std::string& text) {
  KindRule rule;
  if (text == "*") {
    rule.any = true;
    return rule;
  }
  if (text.starts_with('@')) {
    rule.member_of = text.substr(1);
    return rule;
  }
  if (const size_t question = text.find('?'); question != std::string::npos) {
    rule.kind = text.substr(0, question);
    TDBG_ASSIGN_OR_RETURN(rule.regex, base::Regex::Compile(std::string_view(text).substr(question + 1)));
    return rule;
  }
  const size_t colon = text.find(':');
  rule.kind = text.substr(0, colon);
  if (colon != std::string::npos) rule.module_kind = text.substr(colon + 1);
  return rule;
}

}  // namespace

struct CompiledPlan::Rep {
  struct Collection {
    std::vector<KindRule> kinds;
    std::vector<base::Regex> regexes;
    uint64_t raw_group = 0;  // one bit, or 0
  };
  std::vector<Collection> collections;      // as in the plan
  std::vector<RawSchedules> raw_schedules;  // bit i + 1
  bool statistics = false;                  // anything is kept as statistics

  bool Matches(size_t index, const CollectionPlan& c, const TensorFacts& t,
               const std::vector<std::string>& member_of) const {
    const Collection& compiled = collections[index];
    // As many again as there are outputs, and each costs a pass in backward: nobody means them by
    // "everything".
    const bool must_be_named = t.kind == kOutputGradient;
    for (const KindRule& k : compiled.kinds) {
      if (k.any) {
        if (!must_be_named) return true;
        continue;
      }
      if (!k.member_of.empty()) {
        if (std::find(member_of.begin(), member_of.end(), k.member_of) != member_of.end()) return true;
        continue;
      }
      if (k.kind != t.kind) continue;
      if (k.regex) {
        if (t.module_kind.empty() && k.regex->Search(t.name)) return true;
      } else if (k.module_kind.empty() || k.module_kind == t.module_kind) {
        return true;
      }
    }
    if (std::find(c.tensor_names.begin(), c.tensor_names.end(), t.name) != c.tensor_names.end()) return true;
    for (size_t i = 0; i < compiled.regexes.size(); ++i) {
      if (must_be_named && c.include_regex[i].find(kOutputGradient) == std::string::npos) continue;
      if (compiled.regexes[i].Search(t.name)) return true;
    }
    return false;
  }
};

Result<CompiledPlan> CompiledPlan::Compile(Plan plan) {
  auto rep = std::make_shared<Rep>();
  for (const CollectionPlan& c : plan.collections) {
    Rep::Collection compiled;
    for (const std::string& kind : c.kinds) {
      auto rule = ParseKind(kind);
      if (!rule.ok())
        return rule.status().Annotate(fmt::format("collection \"{}\": kind \"{}\"", c.name, kind));
      compiled.kinds.push_back(std::move(*rule));
    }
    for (const std::string& pattern : c.include_regex) {
      auto regex = base::Regex::Compile(pattern);
      if (!regex.ok())
        return regex.status().Annotate(fmt::format("collection \"{}\": include_regex", c.name));
      compiled.regexes.push_back(std::move(*regex));
    }
    if (c.keep && (c.summaries || !c.statistics.empty()) && plan.summaries_every > 0) rep->statistics = true;
    RawSchedules raw;
    bool ever = false;
    for (int m = 1; m < kModes; ++m) {
      if (!c.raw[m] || NeverDue(*c.raw[m])) continue;
      if (c.raw[m]->interval < 1) {
        return InvalidArgument(
            fmt::format("collection \"{}\": an interval of {} steps; at least 1 is accepted", c.name,
                        c.raw[m]->interval));
      }
      raw[m] = c.raw[m];
      ever = true;
    }
    if (c.keep && ever) {
      auto at = std::find(rep->raw_schedules.begin(), rep->raw_schedules.end(), raw);
      if (at == rep->raw_schedules.end()) at = rep->raw_schedules.insert(at, raw);
      const size_t group = static_cast<size_t>(at - rep->raw_schedules.begin());
      if (group >= kMaxRawSchedules) {
        return InvalidArgument(
            fmt::format("collection \"{}\": more than {} different save schedules; let some "
                        "collections share one",
                        c.name, kMaxRawSchedules));
      }
      compiled.raw_group = uint64_t{1} << (group + 1);
    }
    rep->collections.push_back(std::move(compiled));
  }
  CompiledPlan result;
  result.plan_ = std::move(plan);
  result.rep_ = std::move(rep);
  return result;
}

TensorPlan CompiledPlan::Resolve(const TensorFacts& facts) const {
  TensorPlan out;
  if (facts.collections != nullptr) out.collections = *facts.collections;
  for (size_t i = 0; i < plan_.collections.size(); ++i) {
    const CollectionPlan& c = plan_.collections[i];
    const bool said =
        std::find(out.collections.begin(), out.collections.end(), c.name) != out.collections.end();
    if (!said && !rep_->Matches(i, c, facts, out.collections)) continue;
    // Collections that stand for a rule's needs (resolve.cc) are not shown as the tensor's collections.
    if (!said && !c.name.starts_with("rule:")) out.collections.push_back(c.name);
    if (!c.keep) continue;
    // 0 elements: the shape varies, and may become large.
    const bool small = facts.element_count > 0 && facts.element_count <= c.raw_max_elements;
    const uint64_t saved = rep_->collections[i].raw_group;
    if (c.raw_values && (c.raw_max_elements < 0 || small)) out.raw_groups |= saved;
    if (c.summaries_when_saved && saved != 0) {
      out.summary_groups |= saved;
      if (c.histogram && plan_.histograms_every > 0) out.histogram_groups |= saved;
    }
    if (plan_.summaries_every == 0) continue;
    for (const Statistic& statistic : c.statistics) {
      if (std::find(out.statistics.begin(), out.statistics.end(), statistic) == out.statistics.end())
        out.statistics.push_back(statistic);
    }
    if (c.summaries) {
      out.summary_groups |= kSummaryGroup;
      if (c.histogram && plan_.histograms_every > 0) out.histogram_groups |= kHistogramGroup;
    }
  }
  std::sort(out.collections.begin(), out.collections.end());
  out.collections.erase(std::unique(out.collections.begin(), out.collections.end()), out.collections.end());
  // A bucket list longer than the tensor says less than the tensor (docs/semantics.md, "Histograms"). A
  // shape that varies is not known here (0), so the recorder looks again at each value.
  if (facts.element_count > 0 && facts.element_count < 256) out.histogram_groups = 0;
  return out;
}

uint64_t CompiledPlan::DueGroups(int mode, int64_t mode_step) const {
  uint64_t due = 0;
  if (rep_->statistics && mode_step % plan_.summaries_every == 0) {
    due |= kSummaryGroup;
    // The first step with statistics at or after a multiple: it is one itself unless the intervals disagree.
    if (plan_.histograms_every > 0 && mode_step % plan_.histograms_every < plan_.summaries_every)
      due |= kHistogramGroup;
  }
  for (size_t i = 0; i < rep_->raw_schedules.size(); ++i) {
    const auto& schedule = rep_->raw_schedules[i][static_cast<size_t>(mode)];
    if (schedule && schedule->Due(mode_step)) due |= uint64_t{1} << (i + 1);
  }
  return due;
}

}  // namespace tdbg::plan
