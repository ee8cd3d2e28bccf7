#include "watch/found.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "format/events.h"
#include "format/version.h"
#include "rules/details.h"
#include "rules/incidents.h"
#include "trial/step_name.h"

namespace tdbg::watch {
namespace {

constexpr uint64_t kMostRead = 16u << 20;            // bytes at once
constexpr uint64_t kMostEvents = uint64_t{1} << 30;  // as for all readers of events: a longer file was forged

std::string At(const Trial& trial, int64_t global_step, const std::string& sentence) {
  return fmt::format("{}: {}", StepNames(trial, {&global_step, 1}).Of(global_step), sentence);
}

}  // namespace

int64_t AttemptOf(const TrialAccess& access, const rules::Finding& finding) {
  if (finding.attempt >= 0) return finding.attempt;
  const auto position = access.FindStep(finding.global_step);
  return position ? access.steps()[*position].attempt : 0;
}

const rules::Finding& FirstHeard(const rules::RuleStatus& status) {
  const auto heard = std::ranges::find_if(
      status.findings, [](const rules::Finding& finding) { return finding.muted_because.empty(); });
  return heard == status.findings.end() ? status.findings.front() : *heard;
}

std::pair<int64_t, int64_t> LatestFinding(const TrialAccess& access, const rules::RuleStatus& status) {
  std::pair<int64_t, int64_t> latest{0, -1};
  for (const rules::Finding& finding : status.findings) {
    if (!finding.muted_because.empty()) continue;
    if (const int64_t attempt = AttemptOf(access, finding); attempt > latest.second)
      latest = {finding.global_step, attempt};
  }
  return latest;
}

std::string FoundFields(const Found& found) {
  nlohmann::ordered_json json;
  json["name"] = found.rule;
  json["detector"] = found.detector;
  json["attempt"] = found.attempt;
  json["global_step"] = found.global_step;
  json["text"] = found.text;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool FoundOnce::Told(const Found& found) {
  origin_told_ |= found.rule.empty();
  nonfinite_told_ |= found.rule.empty() || found.detector == "nonfinite";
  return told_.emplace(found.rule, found.detector, found.attempt, found.global_step).second;
}

bool FoundOnce::IsTold(const rules::Incident& incident, const TrialAccess& access) const {
  return std::ranges::any_of(incident.evidence, [&](const rules::Finding& finding) {
    return told_.contains(
        {incident.rule, incident.detector, AttemptOf(access, finding), finding.global_step});
  });
}

std::vector<Found> FoundOnce::New(const Trial& trial, const std::vector<rules::RuleStatus>& statuses,
                                  const std::vector<Origin>& origins, int64_t first_attempt,
                                  bool waits_for_rules) {
  std::vector<Found> found;
  const std::vector<rules::Incident> incidents = rules::IncidentsOf(statuses);
  const TrialAccess access(trial);
  const auto tell = [&](std::string rule, std::string detector, int64_t attempt, int64_t global_step,
                        const std::string& sentence) {
    Found one;
    one.rule = std::move(rule);
    one.detector = std::move(detector);
    one.attempt = attempt;
    one.global_step = global_step;
    if (told_.size() >= kMost || one.attempt < first_attempt) return false;
    if (!told_.emplace(one.rule, one.detector, one.attempt, one.global_step).second) return false;
    one.text = At(trial, one.global_step, sentence);
    found.push_back(std::move(one));
    return true;
  };
  // The training's own words on a NaN are better than a rule's, and are there before those.
  const auto origin = std::ranges::find_if(
      origins, [&](const Origin& one) { return one.seen && one.attempt >= first_attempt; });
  const rules::Incident* const explained =
      origin == origins.end() ? nullptr : ExplainedBy(*origin, incidents);
  if (origin != origins.end() && !origin_told_ && !nonfinite_of_rule_told_) {
    const bool is_news =
        explained != nullptr
            ? !explained->muted() && !IsTold(*explained, access)
            : !waits_for_rules || std::ranges::any_of(incidents, [](const rules::Incident& one) {
                return one.nonfinite && !one.muted();
              });
    origin_told_ = is_news && tell("", "", origin->attempt, origin->global_step, origin->sentence);
    nonfinite_told_ |= origin_told_;
  }
  for (const rules::Incident& incident : incidents) {
    if (incident.muted()) continue;
    const bool of_rule = incident.detector.empty();
    // What a rule of the user's says of NaN is what is known already.
    if (incident.nonfinite && (of_rule ? nonfinite_told_ : nonfinite_of_rule_told_)) continue;
    if (&incident == explained && origin_told_) continue;
    std::set<int64_t> attempts;  // a rule that was named is one incident, whatever it finds in later attempts
    for (const rules::Finding& finding : incident.evidence) {
      const int64_t attempt = AttemptOf(access, finding);
      if (!attempts.insert(attempt).second) continue;
      const bool is_new =
          tell(incident.rule, incident.detector, attempt, finding.global_step,
               of_rule ? incident.rule + ": " + rules::EvidenceLine(finding) : incident.sentence);
      nonfinite_told_ |= is_new && incident.nonfinite;
      nonfinite_of_rule_told_ |= is_new && incident.nonfinite && of_rule;
    }
  }
  return found;
}

FoundReader::FoundReader(std::string run_path)
    : path_(base::JoinPath(std::move(run_path), std::string(format::kEventsFile))) {}

std::vector<Found> FoundReader::Next() {
  std::vector<Found> found;
  while (ReadSome(&found)) {
  }
  return found;
}

bool FoundReader::ReadSome(std::vector<Found>* found) {
  const auto file = base::LocalFileSystem().OpenReadable(path_);
  if (!file.ok()) return false;
  const auto size = (*file)->Size();
  if (!size.ok() || *size <= position_ || *size > kMostEvents) return false;
  std::string text(std::min(*size - position_, kMostRead), '\0');
  const auto read = (*file)->ReadAt(position_, std::as_writable_bytes(std::span(text)));
  if (!read.ok()) return false;
  text.resize(*read);
  const size_t end = text.rfind('\n');
  // A line that is still being written; one that is longer than what is read at once is no event of ours.
  if (end == std::string::npos && text.size() < kMostRead) return false;
  text.resize(end == std::string::npos ? text.size() : end + 1);
  position_ += text.size();
  format::ForEachEvent(text, "found", [&](const std::string& kind, const format::Json& event) {
    if (kind != "found") return;
    Found one;
    format::GetField(event, "name", &one.rule);
    format::GetField(event, "detector", &one.detector);
    format::GetField(event, "attempt", &one.attempt);
    format::GetField(event, "global_step", &one.global_step);
    format::GetField(event, "text", &one.text);
    format::GetField(event, "wall_nanos", &one.wall_nanos);
    if (once_.Told(one)) found->push_back(std::move(one));
  });
  return !text.empty();
}

}  // namespace tdbg::watch
