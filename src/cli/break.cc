// tdbg break: conditions on a running job, and what is done when one is met.
#include "cli/break.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "actions/control_request.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "format/events.h"
#include "format/json_fields.h"
#include "jobs/run_directory.h"
#include "trial/access.h"

namespace tdbg::cli {
namespace {

// A watcher looks at least every second; one that shares its cores with a training may need a few.
constexpr int64_t kAnswerMillis = 10'000;
constexpr int64_t kLookMillis = 50;

Json ToJson(const watch::Breakpoint& b) {
  Json json = {{"break", b.number},
               {"condition", b.condition},
               {"then", b.then},
               {"by", b.by},
               {"state", watch::BreakpointStateName(b.state)}};
  if (b.state == watch::Breakpoint::State::kHit) {
    json["hit"] = b.hit;
    json["hit_step"] = b.hit_step;
  }
  return json;
}

// Whether a watcher has taken the request up, which it says in the run's events.
bool IsFollowed(const std::string& run, const std::string& id) {
  const auto events =
      base::LocalFileSystem().ReadFile(base::JoinPath(run, "events.jsonl"), uint64_t{1} << 30);
  bool found = false;
  if (!events.ok()) return false;
  format::ForEachEvent(*events, id, [&](const std::string& kind, const format::Json& event) {
    std::string whose;
    found |= kind == "break_set" && format::GetField(event, "id", &whose) && whose == id;
  });
  return found;
}

template <typename F>
bool WaitFor(F&& f) {
  const int64_t end = base::SystemClock().MonotonicNanos() + kAnswerMillis * 1'000'000;
  while (!f()) {
    if (base::SystemClock().MonotonicNanos() > end) return false;
    ::usleep(static_cast<useconds_t>(kLookMillis * 1000));
  }
  return true;
}

class BreakCommand : public Command {
 public:
  std::string name() const override { return "break"; }
  std::string help() const override {
    return "set a condition on a running job: keep, hold or stop it when it is met";
  }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("CONDITION", condition_, "PATTERN.STATISTIC > NUMBER, or > N x median; none: list them");
    flags
        .AddOption("--then", then_,
                   "pause[:SECONDS] (default, 600 s), blackbox, capture[:COLLECTION[:STEPS]], stop, "
                   "checkpoint_stop")
        .TypeName("ACTION");
    flags.AddOption("--remove", remove_, "take this one back").TypeName("N").Check(IntegerFrom(1));
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer(
        "\nexample: tdbg break last 'gradient/*.l2 > 100' --then blackbox\nA condition is met once; whoever "
        "watches the run (tdbg run, tdbg watch) looks at it. docs/black-box.md");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunOfJob(run_));
    if (remove_ > 0 && (!condition_.empty() || !then_.empty()))
      return InvalidArgument("break: --remove takes one back and sets none; leave the condition out");
    if (condition_.empty() && !then_.empty())
      return InvalidArgument("break: --then without a condition does nothing; say when");
    if (remove_ > 0) return Remove(path);
    if (condition_.empty()) return List(path);
    return Set(path);
  }

 private:
  Result<int> List(const std::string& path) const {
    TDBG_ASSIGN_OR_RETURN(const auto breakpoints, watch::ReadBreakpoints(path));
    std::vector<watch::Held> held;
    if (const auto trial = OpenRun(path); trial.ok()) held = watch::HeldWorkers(**trial);
    if (json_) {
      Json list = Json::array();
      for (const watch::Breakpoint& b : breakpoints) list.push_back(ToJson(b));
      PrintJson({{"run", path}, {"breakpoints", list}, {"held", HeldToJson(held)}});
      return kExitOk;
    }
    for (const watch::Breakpoint& b : breakpoints) {
      const bool hit = b.state == watch::Breakpoint::State::kHit;
      Print("{}  {}  {} then {}\n", b.number, hit ? "hit" : watch::BreakpointStateName(b.state),
            Printable(b.condition), Printable(b.then));
      if (hit) Print("   {}\n", Printable(b.hit));
    }
    if (breakpoints.empty())
      Tell("tdbg: no breakpoint was set; tdbg break {} 'gradient/*.l2 > 100' sets one\n", ShellWord(run_));
    for (const watch::Held& h : held)
      Tell("tdbg: {} is held after step {}; tdbg continue {} lets it go on\n", Printable(h.worker),
           h.after_step, ShellWord(run_));
    return kExitOk;
  }

  Result<int> Remove(const std::string& path) const {
    TDBG_ASSIGN_OR_RETURN(const auto breakpoints, watch::ReadBreakpoints(path));
    const auto found =
        std::ranges::find_if(breakpoints, [&](const watch::Breakpoint& b) { return b.number == remove_; });
    if (found == breakpoints.end())
      return NotFound(
          fmt::format("there is no breakpoint {}; tdbg break {} lists them", remove_, ShellWord(run_)));
    if (found->state != watch::Breakpoint::State::kSet)
      return FailedPrecondition(
          fmt::format("breakpoint {} is {} already", remove_, watch::BreakpointStateName(found->state)));
    TDBG_RETURN_IF_ERROR(actions::RequestRemoveBreak(path, "user", found->id));
    if (json_)
      PrintJson({{"run", path}, {"removed", remove_}});
    else
      Tell("tdbg: breakpoint {} is taken back\n", remove_);
    return kExitOk;
  }

  Result<int> Set(const std::string& path) {
    TDBG_ASSIGN_OR_RETURN(const auto parsed,
                          watch::ParseBreak(then_.empty() ? condition_ : condition_ + " then " + then_));
    const auto& [condition, then] = parsed;
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path));
    if (!jobs::LauncherAlive(trial->path()) && trial->state() != RunState::kRunning)
      return FailedPrecondition("the run is not running; `tdbg status` says how it ended");
    const TrialAccess access(*trial);
    std::vector<std::string> names;
    bool any = false;
    for (TensorIndex i = 0; i < access.tensor_count(); ++i) {
      const TensorInfo& tensor = access.tensor(i);
      any |= condition.Matches(tensor.name) || condition.Matches(tensor.short_name);
      names.push_back(tensor.name);
    }
    // Before the first step nobody knows what will be recorded; the watcher says so later.
    if (!any && access.complete_count() > 0) {
      const auto nearest = base::Nearest(condition.pattern, names);
      return InvalidArgument(fmt::format(
          "break: nothing that the run records is called '{}'{}; `tdbg tensors {}` lists what is (a pattern "
          "may hold * and ?)",
          condition.pattern, nearest ? ", did you mean '" + *nearest + "'?" : "", ShellWord(run_)));
    }
    int64_t attempt = 0;
    for (const auto& worker : access.workers()) attempt = std::max(attempt, worker.attempt);
    const int64_t after =
        access.complete_count() > 0 ? access.steps()[access.complete_count() - 1].info.global_step : -1;
    TDBG_ASSIGN_OR_RETURN(const std::string id, actions::RequestBreak(trial->path(), "user", condition.text(),
                                                                      then, attempt, after));
    const bool followed = WaitFor([&] { return IsFollowed(trial->path(), id); });
    TDBG_ASSIGN_OR_RETURN(const auto breakpoints, watch::ReadBreakpoints(trial->path()));
    const auto mine =
        std::ranges::find_if(breakpoints, [&](const watch::Breakpoint& b) { return b.id == id; });
    const int64_t number = mine == breakpoints.end() ? 0 : mine->number;
    if (json_) {
      PrintJson({{"run", trial->path()},
                 {"break", number},
                 {"condition", condition.text()},
                 {"then", then},
                 {"after_step", after},
                 {"followed", followed}});
    } else {
      Tell("tdbg: breakpoint {}: {} then {}, from step {} on\n", number, Printable(condition.text()),
           Printable(then), after + 1);
      if (!followed)
        Note(fmt::format("nobody watches this run, so nobody looks at it yet: start tdbg watch {}",
                         ShellWord(run_)));
    }
    return kExitOk;
  }

  std::string run_, condition_, then_;
  int64_t remove_ = 0;
  bool json_ = false;
};

class ContinueCommand : public Command {
 public:
  std::string name() const override { return "continue"; }
  std::string help() const override { return "let a job go on that a breakpoint holds"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunOfJob(run_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path));
    const std::vector<watch::Held> held = watch::HeldWorkers(*trial);
    if (held.empty())
      return FailedPrecondition(
          fmt::format("no worker of the run is held; tdbg break {} lists what was set", ShellWord(run_)));
    TDBG_RETURN_IF_ERROR(actions::RequestContinue(trial->path(), "user"));
    const bool goes_on = WaitFor([&] {
      (void)trial->Refresh();
      return watch::HeldWorkers(*trial).empty();
    });
    if (json_) {
      PrintJson({{"run", trial->path()},
                 {"requested", "continue"},
                 {"held", HeldToJson(held)},
                 {"goes_on", goes_on}});
    } else if (goes_on) {
      Tell("tdbg: {} goes on after step {}\n", Printable(trial->name()), held.front().after_step);
    } else {
      Note("asked it to go on, and it has not yet");
    }
    return goes_on ? kExitOk : kExitRefused;
  }

 private:
  std::string run_;
  bool json_ = false;
};

}  // namespace

Json HeldToJson(const std::vector<watch::Held>& held) {
  Json list = Json::array();
  for (const watch::Held& h : held) {
    list.push_back({{"worker", h.worker},
                    {"after_step", h.after_step},
                    {"seconds", h.seconds},
                    {"since", JsonTime(h.wall_nanos)},
                    {"because", h.because}});
  }
  return list;
}

std::unique_ptr<Command> MakeBreakCommand() { return std::make_unique<BreakCommand>(); }
std::unique_ptr<Command> MakeContinueCommand() { return std::make_unique<ContinueCommand>(); }

}  // namespace tdbg::cli
