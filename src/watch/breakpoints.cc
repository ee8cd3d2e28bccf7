#include "watch/breakpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/file.h"
#include "base/stable_sort.h"
#include "base/text.h"
#include "format/events.h"
#include "format/json_fields.h"
#include "format/run_files.h"
#include "trial/access.h"
#include "trial/fields.h"

namespace tdbg::watch {
namespace {

using Json = nlohmann::ordered_json;  // as it is written

constexpr std::string_view kHeldFile = "held.json";
// Steps in which a tensor that is recorded at all has been seen.
constexpr int64_t kIdleSteps = 20;
// Steps before a breakpoint was set that count for its medians.
constexpr size_t kStepsBack = History::kMost;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

std::string ControlPath(const std::string& run) { return base::JoinPath(run, format::kControlFile); }

struct Requests {
  std::vector<Breakpoint> breakpoints;
  bool pauses = false;
};

Result<Requests> ReadRequests(const std::string& run) {
  Requests found;
  const std::string path = ControlPath(run);
  if (SizeOf(path) <= format::kControlPageBytes) return found;
  TDBG_ASSIGN_OR_RETURN(const std::string bytes, base::LocalFileSystem().ReadFile(path));
  if (bytes.size() <= format::kControlPageBytes) return found;
  TDBG_ASSIGN_OR_RETURN(const auto requests, format::DecodeControlLines(
                                                 std::string_view(bytes).substr(format::kControlPageBytes)));
  for (const format::ControlRequest& request : requests) {
    found.pauses |= request.action == "pause";
    if (request.action != "break" && request.action != "remove_break") continue;
    const auto json = format::ParseJsonObject(request.json, "request");
    if (!json.ok()) continue;
    Breakpoint breakpoint;
    breakpoint.id = request.id;
    breakpoint.by = request.by;
    std::string whose;
    if (request.action == "remove_break") {
      format::GetField(*json, "break", &whose);
      for (Breakpoint& b : found.breakpoints)
        if (b.id == whose) b.state = Breakpoint::State::kRemoved;
      continue;
    }
    if (!format::GetField(*json, "condition", &breakpoint.condition) ||
        !format::GetField(*json, "then", &breakpoint.then))
      continue;
    format::GetField(*json, "of_attempt", &breakpoint.attempt);
    format::GetField(*json, "after_step", &breakpoint.after_step);
    breakpoint.number = static_cast<int64_t>(found.breakpoints.size()) + 1;
    found.breakpoints.push_back(std::move(breakpoint));
  }
  return found;
}

Json FieldsOf(const Breakpoint& breakpoint) {
  return {{"break", breakpoint.number},
          {"id", breakpoint.id},
          {"condition", breakpoint.condition},
          {"then", breakpoint.then},
          {"by", breakpoint.by}};
}

// The collections of a tensor, for the action `capture`: what it is a member of, without those that hold
// everything.
std::string CaptureOf(const TensorInfo& tensor) {
  std::string text;
  for (const std::string& name : tensor.collections) {
    if (name == "all" || name == "default") continue;
    text += (text.empty() ? "capture:" : "+") + name;
  }
  return text.empty() ? "capture:all" : text;
}

}  // namespace

const char* BreakpointStateName(Breakpoint::State state) {
  switch (state) {
    case Breakpoint::State::kSet:
      return "set";
    case Breakpoint::State::kHit:
      return "hit";
    case Breakpoint::State::kRemoved:
      return "removed";
  }
  return "set";
}

Result<std::vector<Breakpoint>> ReadBreakpoints(const std::string& run) {
  TDBG_ASSIGN_OR_RETURN(Requests requests, ReadRequests(run));
  const std::string path = base::JoinPath(run, format::kEventsFile);
  if (requests.breakpoints.empty() || !base::LocalFileSystem().Exists(path))
    return std::move(requests.breakpoints);
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path, uint64_t{1} << 30));
  format::ForEachEvent(text, "break_hit", [&](const std::string& kind, const format::Json& event) {
    std::string id;
    if (kind != "break_hit" || !format::GetField(event, "id", &id)) return;
    for (Breakpoint& breakpoint : requests.breakpoints) {
      if (breakpoint.id != id || breakpoint.state == Breakpoint::State::kHit) continue;
      breakpoint.state = Breakpoint::State::kHit;
      format::GetField(event, "text", &breakpoint.hit);
      format::GetField(event, "global_step", &breakpoint.hit_step);
    }
  });
  return std::move(requests.breakpoints);
}

Status CheckThen(const std::string& then) {
  constexpr std::string_view kAccepted =
      "accepted: pause[:SECONDS], blackbox, stop, checkpoint_stop[:SECONDS], "
      "capture[:COLLECTION[+COLLECTION][:STEPS]]";
  if (then == "capture") return OkStatus();
  const auto action = actions::ParseAction(then, {});
  if (action.ok() && (*action)->needs_job()) return OkStatus();
  const std::string_view kind = std::string_view(then).substr(0, then.find(':'));
  if (action.ok())
    return InvalidArgument(
        fmt::format("then '{}': a breakpoint acts on the job itself; {}", kind, kAccepted));
  // An error of an action that is one says what is wrong with it; the rest would list too many.
  const bool known = kind == "pause" || kind == "blackbox" || kind == "stop" || kind == "capture" ||
                     kind == "checkpoint_stop";
  return known ? action.status()
               : InvalidArgument(fmt::format("then '{}': no action of a breakpoint; {}", then, kAccepted));
}

Result<std::pair<Condition, std::string>> ParseBreak(std::string_view text) {
  constexpr std::string_view kThen = " then ";
  std::string then = "pause";
  const size_t at = text.rfind(kThen);
  if (at != std::string_view::npos) {
    then = base::Trim(text.substr(at + kThen.size()));
    text = text.substr(0, at);
  }
  TDBG_ASSIGN_OR_RETURN(Condition condition, Condition::Parse(text));
  if (const Status field = CheckField(condition.statistic); !field.ok())
    return field.Annotate(fmt::format("condition '{}'", base::Trim(text)));
  TDBG_RETURN_IF_ERROR(CheckThen(then));
  return std::pair(std::move(condition), std::move(then));
}

std::vector<Held> HeldWorkers(const Trial& trial) {
  const TrialAccess access(trial);
  int64_t attempt = 0;
  for (const auto& worker : access.workers()) attempt = std::max(attempt, worker.attempt);
  std::vector<Held> found;
  for (const auto& worker : access.workers()) {
    if (worker.attempt != attempt || !worker.alive) continue;
    const std::string path = base::JoinPath(
        base::JoinPath(trial.path(), std::to_string(attempt) + "/" + worker.name), std::string(kHeldFile));
    if (!base::LocalFileSystem().Exists(path)) continue;
    const auto text = base::LocalFileSystem().ReadFile(path, 64 << 10);
    if (!text.ok()) continue;
    const auto json = format::ParseJsonObject(*text, "held.json");
    if (!json.ok()) continue;
    Held held;
    held.attempt = attempt;
    held.worker = worker.name;
    format::GetField(*json, "after_step", &held.after_step);
    format::GetField(*json, "seconds", &held.seconds);
    format::GetField(*json, "wall_nanos", &held.wall_nanos);
    format::GetField(*json, "because", &held.because);
    found.push_back(std::move(held));
  }
  return found;
}

void Breakpoints::ReadNew(Events* events) {
  const uint64_t size = SizeOf(ControlPath(run_));
  if (size == size_seen_ || size <= format::kControlPageBytes) return;
  const auto requests = ReadRequests(run_);
  const auto all = ReadBreakpoints(run_);
  if (!requests.ok() || !all.ok()) return;  // and is looked at again
  size_seen_ = size;
  was_asked_ |= requests->pauses;
  for (const Breakpoint& breakpoint : *all) {
    if (breakpoint.state != Breakpoint::State::kSet) {
      over_.insert(breakpoint.id);
      if (watched_.erase(breakpoint.id) && breakpoint.state == Breakpoint::State::kRemoved)
        events->emplace_back("break_removed", Dump(FieldsOf(breakpoint)));
      continue;
    }
    if (over_.contains(breakpoint.id) || watched_.contains(breakpoint.id)) continue;
    Watched watched;
    watched.breakpoint = breakpoint;
    watched.looked_at = -1;
    // Anybody who may write to the run may have written this line.
    auto parsed = Condition::Parse(breakpoint.condition);
    const Status good = !parsed.ok()                          ? parsed.status()
                        : !CheckField(parsed->statistic).ok() ? CheckField(parsed->statistic)
                                                              : CheckThen(breakpoint.then);
    watched.is_good = good.ok();
    Json fields = FieldsOf(breakpoint);
    if (good.ok())
      watched.condition = *std::move(parsed);
    else
      fields["error"] = good.message();
    events->emplace_back("break_set", Dump(fields));
    watched_.emplace(breakpoint.id, std::move(watched));
  }
}

// Appends at most one hit.
void Breakpoints::LookAt(const Trial& trial, Watched& watched, std::vector<Hit>* hits, Events* events) {
  const TrialAccess access(trial);
  const size_t complete = access.complete_count();
  if (complete == 0) return;
  const auto steps = access.steps();
  if (watched.overlay != access.overlay_generation()) {
    // A later attempt repeats steps.
    watched.overlay = access.overlay_generation();
    watched.looked_at = std::min(watched.looked_at, access.overlay_base() - 1);
  }
  const int64_t last = steps[complete - 1].info.global_step;
  if (last <= watched.looked_at) return;
  // Steps of a later attempt come after it was set, whatever their numbers are.
  const bool later =
      access.overlay_generation() > 0 && steps[complete - 1].attempt > watched.breakpoint.attempt;
  const int64_t after = later ? std::min(watched.breakpoint.after_step, access.overlay_base() - 1)
                              : watched.breakpoint.after_step;
  int64_t begin = std::max(watched.looked_at, after) + 1;
  if (watched.looked_at < 0 && watched.condition.times_median) {
    // At the first look: what was before counts for the medians.
    begin = std::min(begin, steps[complete > kStepsBack ? complete - kStepsBack : 0].info.global_step);
  }
  const int64_t first_new = std::max(watched.looked_at, after) + 1;
  watched.looked_at = last;
  if (begin > last) return;

  std::vector<std::string> whole, by_worker;
  for (TensorIndex i = 0; i < access.tensor_count(); ++i) {
    const TensorInfo& tensor = access.tensor(i);
    const bool named = watched.condition.Matches(tensor.name) ||
                       (!tensor.short_name.empty() && watched.condition.Matches(tensor.short_name));
    if (named) (tensor.in_parts ? whole : by_worker).push_back(tensor.name);
  }
  if (whole.empty() && by_worker.empty()) {
    watched.idle_steps += last - begin + 1;
    if (watched.idle_steps >= kIdleSteps && !std::exchange(watched.told_idle, true)) {
      Json fields = FieldsOf(watched.breakpoint);
      fields["text"] = fmt::format("nothing that is recorded is called '{}'", watched.condition.pattern);
      events->emplace_back("break_idle", Dump(fields));
    }
    return;
  }
  struct Value {
    int64_t step = 0;
    std::string tensor, worker;
    double value = 0;
  };
  std::vector<Value> values;
  for (const auto& [names, worker] : {std::pair(&whole, ""), std::pair(&by_worker, "*")}) {
    if (names->empty()) continue;
    TensorFilter filter;
    filter.names = *names;
    filter.steps.begin = begin;
    filter.steps.end = last + 1;
    const auto frame = trial.frame(filter, std::span(&watched.condition.statistic, 1), worker);
    if (!frame.ok()) continue;
    for (size_t i = 0; i < frame->step.size(); ++i) {
      values.push_back({frame->step[i], frame->names[frame->tensor[i]],
                        frame->worker[i] < frame->workers.size() ? frame->workers[frame->worker[i]] : "",
                        frame->values[0][i]});
    }
  }
  base::StableSort(&values, [](const Value& a, const Value& b) { return a.step < b.step; });
  for (const Value& value : values) {
    double bound = watched.condition.number;
    bool known = true;
    History* history = nullptr;
    if (watched.condition.times_median) {
      history = &watched.histories[{value.tensor, value.worker}];
      known = history->has_median();
      if (known) bound *= history->Median();
    }
    const auto position = access.FindStep(value.step);
    const int64_t attempt = position ? steps[*position].attempt : 0;
    const bool is_new = attempt > watched.breakpoint.attempt ||
                        (attempt == watched.breakpoint.attempt && value.step > watched.breakpoint.after_step);
    const bool hit =
        known && is_new && value.step >= first_new && watched.condition.Holds(value.value, bound);
    if (history != nullptr) history->Add(value.value);
    if (!hit) continue;
    Hit found;
    found.breakpoint = watched.breakpoint;
    found.breakpoint.state = Breakpoint::State::kHit;
    const std::string text = fmt::format("{}.{} of {} is {:.6g} at step {} ({})", value.tensor,
                                         watched.condition.statistic, value.worker, value.value, value.step,
                                         watched.condition.times_median
                                             ? fmt::format("{}: {:.6g}", watched.condition.text(), bound)
                                             : watched.condition.text());
    Json fields = FieldsOf(watched.breakpoint);
    fields["attempt"] = attempt;
    fields["global_step"] = value.step;
    fields["tensor"] = value.tensor;
    fields["worker"] = value.worker;
    fields["value"] = Json::parse(base::JsonNumber(value.value), nullptr, false);
    fields["bound"] = Json::parse(base::JsonNumber(bound), nullptr, false);
    fields["text"] = text;
    found.notice.json = Dump(fields);
    found.notice.run = run_;
    found.notice.rule = fmt::format("break {}", watched.breakpoint.number);
    found.notice.status = "Hit";
    found.notice.global_step = value.step;
    found.notice.attempt = attempt;
    found.notice.details = text;
    found.then = watched.breakpoint.then;
    if (found.then == "capture") {
      const auto tensor = trial.tensor(value.tensor);
      found.then = tensor.ok() ? CaptureOf(*tensor) : "capture:all";
    }
    hits->push_back(std::move(found));
    over_.insert(watched.breakpoint.id);
    return;
  }
}

void Breakpoints::LookForHeld(const Trial& trial, Events* events) {
  if (!was_asked_) return;
  std::set<Held> now;
  for (Held& held : HeldWorkers(trial)) now.insert(std::move(held));
  const auto tell = [&](const char* kind, const Held& held) {
    events->emplace_back(kind, Dump({{"attempt", held.attempt},
                                     {"worker", held.worker},
                                     {"global_step", held.after_step},
                                     {"seconds", held.seconds},
                                     {"because", held.because}}));
  };
  for (const Held& held : held_)
    if (!now.contains(held)) tell("released", held);
  for (const Held& held : now)
    if (!held_.contains(held)) tell("held", held);
  held_ = std::move(now);
}

std::vector<Breakpoints::Hit> Breakpoints::Look(const Trial& trial, Events* events) {
  std::vector<Hit> hits;
  ReadNew(events);
  for (auto& [id, watched] : watched_) {
    if (watched.is_good) LookAt(trial, watched, &hits, events);
  }
  if (!hits.empty()) {
    // Another watcher of this run may have been first.
    const auto all = ReadBreakpoints(run_);
    std::erase_if(hits, [&](const Hit& hit) {
      watched_.erase(hit.breakpoint.id);
      return all.ok() && std::ranges::any_of(*all, [&](const Breakpoint& b) {
               return b.id == hit.breakpoint.id && b.state != Breakpoint::State::kSet;
             });
    });
    for (const Hit& hit : hits) events->emplace_back("break_hit", hit.notice.json);
  }
  LookForHeld(trial, events);
  return hits;
}

}  // namespace tdbg::watch
