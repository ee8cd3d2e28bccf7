#include "watch/origins.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/stable_sort.h"
#include "format/events.h"
#include "trial/access.h"

namespace tdbg::watch {
namespace {

using Json = nlohmann::ordered_json;

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::vector<Origin> OriginsOf(const Trial& trial) {
  const TrialAccess access(trial);
  struct Ranked {
    Origin origin;
    bool forward = false;
  };
  std::vector<Ranked> found;
  for (const auto& [worker, record] : access.ContextsOf(kOriginTopic)) {
    // We write this record, but a run may come from anywhere.
    const Json json = Json::parse(record->json, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    Ranked ranked;
    Origin& origin = ranked.origin;
    origin.attempt = access.workers()[worker].attempt;
    origin.worker = access.workers()[worker].name;
    origin.global_step = record->global_step;
    origin.title = TextOf(json, "title");
    origin.sentence = TextOf(json, "sentence");
    origin.advice = TextOf(json, "advice");
    origin.seen = TextOf(json, "what") != "unseen";
    origin.json = record->json;
    if (origin.sentence.empty()) continue;
    ranked.forward = TextOf(json, "direction") == "forward";
    found.push_back(std::move(ranked));
  }
  base::StableSort(&found, [](const Ranked& a, const Ranked& b) {
    const auto key = [](const Ranked& r) {
      return std::tuple(r.origin.attempt, r.origin.global_step, !r.origin.seen, !r.forward);
    };
    return key(a) < key(b);
  });
  std::vector<Origin> origins;
  for (Ranked& ranked : found) origins.push_back(std::move(ranked.origin));
  return origins;
}

const rules::Incident* ExplainedBy(const Origin& origin, const std::vector<rules::Incident>& incidents) {
  const auto distance = [&](const rules::Incident& one) {
    return std::pair(std::abs(one.first_step - origin.global_step), one.first_step);
  };
  const rules::Incident* nearest = nullptr;
  for (const rules::Incident& one : incidents) {
    if (!one.nonfinite || one.detector.empty()) continue;
    if (nearest == nullptr || distance(one) < distance(*nearest)) nearest = &one;
  }
  return nearest;
}

void Explain(std::vector<rules::Incident>* incidents, const std::vector<Origin>& origins) {
  if (origins.empty() || !origins.front().seen) return;
  const Origin& origin = origins.front();
  const rules::Incident* const explained = ExplainedBy(origin, *incidents);
  if (explained == nullptr) return;
  rules::Incident* const nonfinite = &(*incidents)[static_cast<size_t>(explained - incidents->data())];
  nonfinite->title = origin.title;
  nonfinite->sentence = origin.sentence;
  if (!origin.advice.empty()) nonfinite->advice = origin.advice;
}

std::string OriginFields(const Origin& origin) {
  Json json;
  json["attempt"] = origin.attempt;
  json["worker"] = origin.worker;
  json["global_step"] = origin.global_step;
  const Json record = Json::parse(origin.json, nullptr, /*allow_exceptions=*/false);
  for (const auto& [key, value] : record.items()) {
    if (!json.contains(key) && key != "kind" && key != "wall_nanos" && key != "time") json[key] = value;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tdbg::watch
