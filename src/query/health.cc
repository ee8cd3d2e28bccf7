#include "query/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "format/events.h"
#include "format/version.h"
#include "rules/details.h"
#include "rules/engine.h"
#include "rules/incidents.h"
#include "trial/coarse.h"
#include "watch/events.h"
#include "watch/evidence.h"

namespace tdbg::query {
namespace {

constexpr size_t kMostEvents = 2000;  // a timeline has no more pixels

std::string EventsText(const Trial& trial) {
  auto text = base::LocalFileSystem().ReadFile(base::JoinPath(trial.path(), format::kEventsFile));
  return text.ok() ? std::move(*text) : std::string();
}

Json FindingsOf(const std::vector<rules::Finding>& findings, const StepNames& names) {
  Json list = Json::array();
  for (const rules::Finding& f : findings) {
    list.push_back({{"global_step", f.global_step},
                    {"at", names.Of(f.global_step)},
                    {"tensor", f.tensor},
                    {"worker", f.worker},
                    {"measure", f.measure},
                    {"value", JsonNumber(f.value)},
                    {"comparison", f.comparison},
                    {"threshold", JsonNumber(f.threshold)},
                    {"text", f.text}});
    if (f.attempt >= 0) list.back()["attempt"] = f.attempt;
    watch::PutEvidence(f, [](double value) { return Json(JsonNumber(value)); }, &list.back());
  }
  return list;
}

/// AMP finds its scale by overflows: gradients of a step whose update it skipped are used by nobody
/// (docs/semantics.md, "What is judged by itself"). A loss of such a step that is NaN is one.
bool IsGradient(const TensorInfo& info) {
  constexpr std::string_view kGradients = "gradients";
  return info.kind == "gradient" || info.kind == "output_gradient" ||
         std::ranges::find(info.collections, kGradients) != info.collections.end();
}

}  // namespace

void Health::Update(const TrialAccess& access) {
  if (access.overlay_generation() != overlay_generation_) {
    overlay_generation_ = access.overlay_generation();
    taken_ = 0;
    nonfinite_steps_ = 0;
    first_.reset();
  }
  const CoarseRows coarse(access.trial());
  std::vector<CoarseRows::Span> spans;
  const auto is_finite = [](const CoarseRows::Span& span) {
    for (size_t row = span.begin; row < span.end; ++row) {
      if ((span.rows->over.nan_rows[row] | span.rows->over.infinite_rows[row]) != 0) return false;
    }
    return true;
  };
  for (; taken_ < access.complete_count(); ++taken_) {
    // Most of a long run is finite, and coarse rows say so of many steps at once.
    if (const size_t steps = coarse.From(taken_, access.complete_count(), &spans);
        steps != 0 && std::all_of(spans.begin(), spans.end(), is_finite)) {
      taken_ += steps - 1;
      continue;
    }
    bool any = false;
    First first;
    const bool skipped = access.steps()[taken_].info.skipped;
    for (const TrialAccess::RowSpan& span : access.RowSpansOf(taken_, nullptr, columns::kFinite)) {
      const auto& b = *span.batch;
      for (uint32_t i = span.begin; i < span.end; ++i) {
        if ((b.nan_count[i] | b.pos_inf_count[i] | b.neg_inf_count[i]) == 0) continue;
        const TensorIndex tensor = span.tensor_of[b.tensor[i]];
        if (skipped && IsGradient(access.tensor(tensor))) continue;
        ++first.tensors;
        if (any) continue;
        any = true;
        first.tensor = tensor;
        first.nan = b.nan_count[i] != 0;
      }
    }
    if (coarse.IsThinned(taken_)) {
      // Of each tensor a group says where it was not finite first.
      const int64_t step = access.steps()[taken_].info.global_step;
      coarse.Of(taken_, &spans);
      for (const CoarseRows::Span& span : spans) {
        for (size_t row = span.begin; row < span.end; ++row) {
          const auto& over = span.rows->over;
          const auto here = [&](uint32_t at) {
            return at != format::kNowhere && span.rows->summaries.step_first[row] + int64_t{at} == step;
          };
          const bool nan = here(over.nan_at[row]);
          if ((!nan && !here(over.pos_inf_at[row]) && !here(over.neg_inf_at[row])) ||
              span.TensorAt(row) == CoarseRows::kNoTensor ||
              (skipped && IsGradient(access.tensor(span.TensorAt(row)))))
            continue;
          ++first.tensors;
          if (any) continue;
          any = true;
          first.tensor = span.TensorAt(row);
          first.nan = nan;
        }
      }
    }
    if (!any) continue;
    ++nonfinite_steps_;
    if (first_) continue;
    first.global_step = access.steps()[taken_].info.global_step;
    first_ = first;
  }
}

std::string StateOf(const Trial& trial) {
  std::optional<Json> ended;
  format::ForEachEvent(EventsText(trial), "\"job_", [&](const std::string& kind, const Json& event) {
    if (kind == "job_ended") ended = event;
    if (kind == "job_started") ended.reset();
  });
  if (trial.state() != RunState::kRunning && ended) {
    std::string stop, by;
    int64_t code = 0;
    format::GetField(*ended, "stop", &stop);
    format::GetField(*ended, "stopped_by", &by);
    format::GetField(*ended, "exit_code", &code);
    if (stop == "requested") return "stopped by " + by;
    if (stop == "signal") return "interrupted";
    return code == 0 ? "completed" : fmt::format("failed (exit code {})", code);
  }
  switch (trial.state()) {
    case RunState::kWaiting:
      return "not started";
    case RunState::kRunning:
      return "running";
    case RunState::kEnded:
      return "completed";
    case RunState::kCrashed:
      return "crashed";
  }
  return "unknown";
}

std::vector<rules::RuleStatus> StatusesOf(const Trial& trial) {
  auto statuses = watch::ReadShownStatuses(trial.path());
  return statuses.ok() ? *std::move(statuses) : std::vector<rules::RuleStatus>();
}

StepNames NamesFor(const Trial& trial, const std::vector<rules::RuleStatus>& statuses,
                   const std::vector<watch::Origin>& origins, const Health& health) {
  std::vector<int64_t> steps;
  if (const auto& first = health.first_nonfinite()) steps.push_back(first->global_step);
  for (const watch::Origin& origin : origins) steps.push_back(origin.global_step);
  for (const rules::RuleStatus& status : statuses)
    for (const rules::Finding& finding : status.findings) steps.push_back(finding.global_step);
  return {trial, steps};
}

Json VerdictsOf(const std::vector<rules::RuleStatus>& statuses, const StepNames& names) {
  Json list = Json::array();
  const std::vector<int> causes = rules::CausesOf(statuses);
  for (size_t i = 0; i < statuses.size(); ++i) {
    const rules::RuleStatus& status = statuses[i];
    Json findings = FindingsOf(status.findings, names);
    list.push_back({{"name", status.name},
                    {"rule", status.rule},
                    {"status", rules::RuleStateName(status.state)},
                    {"details", status.details},
                    {"steps_judged", status.steps_judged},
                    {"steps_incomplete", status.steps_incomplete},
                    {"findings", std::move(findings)}});
    if (causes[i] >= 0) list.back()["follows_from"] = statuses[static_cast<size_t>(causes[i])].name;
  }
  return list;
}

Json IncidentsOf(const std::vector<rules::RuleStatus>& statuses, const std::vector<watch::Origin>& origins,
                 const StepNames& names) {
  std::vector<rules::Incident> incidents = rules::IncidentsOf(statuses);
  watch::Explain(&incidents, origins);
  Json list = Json::array();
  for (const rules::Incident& incident : incidents) {
    Json json;
    rules::ForEachField(incident, [&](const char* name, const auto& value) { json[name] = value; });
    json["at"] = names.Of(incident.first_step);
    json["evidence"] = FindingsOf(incident.evidence, names);
    json["consequences"] = FindingsOf(incident.consequences, names);
    list.push_back(std::move(json));
  }
  return list;
}

Json EventsOf(const Trial& trial) {
  Json list = Json::array();
  format::ForEachEvent(EventsText(trial), "", [&](const std::string& kind, const Json& event) {
    if (list.size() == kMostEvents) return;
    std::string status, text;
    format::GetField(event, "status", &status);
    if (kind == "rule_status" && status != "IssuesFound" && status != "Error") return;
    int64_t step = -1, wall = 0;
    format::GetField(event, "global_step", &step);
    format::GetField(event, "wall_nanos", &wall);
    for (const char* key : {"name", "action", "worker", "stop"}) {
      if (format::GetField(event, key, &text)) break;
    }
    list.push_back({{"kind", kind}, {"global_step", step}, {"wall_nanos", wall}, {"what", text}});
  });
  return list;
}

Json OriginsOf(const std::vector<watch::Origin>& origins, const StepNames& names) {
  Json list = Json::array();
  for (const watch::Origin& origin : origins) {
    list.push_back({{"global_step", origin.global_step},
                    {"at", names.Of(origin.global_step)},
                    {"attempt", origin.attempt},
                    {"worker", origin.worker},
                    {"title", origin.title},
                    {"sentence", origin.sentence},
                    {"advice", origin.advice}});
  }
  return list;
}

Json SentenceOf(const Trial& trial, const Health& health, const Json& verdicts, const Json& incidents,
                const Json& origins, const StepNames& names) {
  const TrialAccess access(trial);
  Json out = {{"mood", "unknown"}, {"step", -1}, {"tensor", ""}};
  const Json* finding = nullptr;
  const Json* rule = nullptr;
  size_t found = 0, judged = 0, undecided = 0;
  for (const Json& verdict : verdicts) {
    const std::string status = verdict["status"];
    if (status == "Error") ++undecided;
    if (verdict["steps_judged"].get<int64_t>() > 0) ++judged;
    if (status != "IssuesFound") continue;
    ++found;
    const Json& findings = verdict["findings"];
    if (findings.empty()) continue;
    if (!finding || findings[0]["global_step"] < (*finding)["global_step"]) {
      finding = &findings[0];
      rule = &verdict;
    }
  }
  const auto is_muted = [](const Json& incident) { return incident["muted"].get<bool>(); };
  const auto muted = std::ranges::count_if(incidents, is_muted);
  const bool nan_is_muted = std::ranges::any_of(
      incidents, [&](const Json& one) { return is_muted(one) && one["detector"] == "nonfinite"; });
  const auto& first = health.first_nonfinite();
  if (first && !nan_is_muted) {
    const std::string& tensor = access.tensor(first->tensor).name;
    out["mood"] = "bad";
    out["step"] = first->global_step;
    out["tensor"] = tensor;
    // A step that stood alone is over: "since" would say that it goes on.
    std::string text =
        fmt::format("{} {} {}, first in {}", first->nan ? "NaN" : "Infinity",
                    health.nonfinite_steps() > 1 ? "since" : "at", names.Of(first->global_step), tensor);
    if (first->tensors > 1)
      text += fmt::format(" (and {} at that step)", base::Counted(first->tensors - 1, "more tensor"));
    if (!origins.empty()) text += ": " + origins[0]["title"].get<std::string>();
    out["text"] = text + ".";
    return out;
  }
  // The profile's incidents say in words what was found; a rule that somebody named says it below.
  for (const Json& incident : incidents) {
    if (incident["detector"] == "" || is_muted(incident)) continue;
    out["mood"] = "bad";
    out["step"] = incident["first_step"];
    out["tensor"] = incident["tensor"];
    std::string at = incident["at"];
    at.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(at.front())));
    out["text"] = fmt::format("{}: {}", at, incident["sentence"].get<std::string>());
    return out;
  }
  if (finding) {
    const std::string tensor = (*finding)["tensor"];
    out["mood"] = "bad";
    out["step"] = (*finding)["global_step"];
    out["tensor"] = tensor;
    out["text"] =
        fmt::format("{} at {}{}{}.", (*rule)["name"].get<std::string>(), (*finding)["at"].get<std::string>(),
                    tensor.empty() ? "" : " in " + tensor,
                    found > 1 ? fmt::format("; {} found something", base::Counted(found, "rule")) : "");
    return out;
  }
  const size_t steps = access.complete_count();
  if (steps == 0) {
    out["text"] = !trial.damage().empty()    ? "No step can be read: the run is damaged."
                  : trial.loaded_all_steps() ? "It ended without a recorded step."
                                             : "No step has been recorded yet.";
  } else if (judged == 0 && undecided == 0) {
    // Of plain numbers (a norm, a rate) nobody has looked at each.
    const std::string why = verdicts.empty() ? "no rule has looked at this run"
                                             : fmt::format("the run has nothing that {} {}",
                                                           base::Counted(verdicts.size(), "rule"),
                                                           verdicts.size() == 1 ? "looks at" : "look at");
    out["text"] = fmt::format("Not judged: {}. {}", why,
                              trial.damage().empty() ? "All recorded tensors are finite."
                                                     : "What of its tensors can be read is finite.");
  } else if (undecided > 0) {
    out["text"] = fmt::format("{} could not be judged{}.", base::Counted(undecided, "rule"),
                              undecided == verdicts.size()
                                  ? ", and there is no other"
                                  : "; the others found nothing in " + base::Counted(steps, "step"));
  } else {
    out["mood"] = "good";
    const std::string by = judged == verdicts.size()
                               ? base::Counted(judged, "rule")
                               : fmt::format("{} of {}", judged, base::Counted(verdicts.size(), "rule"));
    const std::string known =
        muted == 0 ? ""
                   : fmt::format("; {} muted",
                                 base::Counted(static_cast<uint64_t>(muted), "incident is", "incidents are"));
    out["text"] = fmt::format("Nothing found by {} in {}{}.", by, base::Counted(steps, "step"), known);
  }
  return out;
}

}  // namespace tdbg::query
