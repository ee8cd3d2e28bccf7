// tdbg mute: an incident that the user knows of is no issue any more, in this run and in its script's next
// ones.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/redact.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/muted_scripts.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/terminal.h"
#include "cli/verdicts.h"
#include "jobs/run_directory.h"
#include "watch/muted.h"

namespace tdbg::cli {
namespace {

using rules::Fingerprint;
using rules::Incident;
using rules::Mute;

// What it is and what has followed from it so far.
std::vector<Fingerprint> WhatIsMuted(const Incident& incident) {
  std::vector<Fingerprint> what;
  for (const auto* const findings : {&incident.evidence, &incident.consequences}) {
    for (const rules::Finding& finding : *findings) {
      Fingerprint one = rules::FingerprintOf(finding);
      const bool is_new = std::ranges::find(what, one) == what.end();
      if (is_new && what.size() < watch::kMostFingerprints) what.push_back(std::move(one));
    }
  }
  return what;
}

bool IsIn(const Incident& incident, const std::string& place) {
  return std::ranges::any_of(incident.evidence, [&](const rules::Finding& finding) {
    return finding.tensor == place || rules::FingerprintOf(finding).place == place;
  });
}

std::string Words(const Incident& incident) {
  const std::string place = rules::FingerprintOf(incident.evidence.front()).place;
  return Printable(fmt::format("{} ({}{}{})", incident.title, incident.id, place.empty() ? "" : ", ", place));
}

class MuteCommand : public Command {
 public:
  std::string name() const override { return "mute"; }
  std::string help() const override {
    return "take an incident that is known for no issue, here and in the script's next runs";
  }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("INCIDENT", incident_,
                    "its number or its name in tdbg explain; none: list what is muted in the run");
    flags.AddOption("--because", because_, "why it is no issue; told wherever the incident is")
        .TypeName("TEXT");
    flags.AddOption("--tensor", tensor_,
                    "of several incidents of that name: the one of this tensor or layer");
    flags.AddFlag("--undo", undo_, "take it back, for the script's next runs, too");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer(
        "\nA muted incident stays recorded and shown, and is no issue: not in the summary, not for exit "
        "codes,\n"
        "actions and handlers. What follows from it later is an incident of its own.\n"
        "example: tdbg mute last no_gradient --because \"the backbone is frozen\"");
  }

  Result<int> Run() override {
    TDBG_RETURN_IF_ERROR(CheckFlags());
    TDBG_ASSIGN_OR_RETURN(const RunPlace place, PlaceOfRun(run_));
    if (place.directory.empty())
      return Unimplemented(fmt::format("{} is in a bucket, and is only read there; mute it where it trains",
                                       Printable(place.url)));
    path_ = place.directory;
    if (jobs::RunId(path_).empty())
      return InvalidArgument(Printable(run_) +
                             ": its run.json is none that tdbg wrote, so nothing is muted there");
    if (incident_.empty()) return List();
    return undo_ ? Undo() : Do();
  }

 private:
  Status CheckFlags() {
    because_ = base::RedactText(std::string(base::Trim(because_)));
    if (incident_.empty()) {
      if (!because_.empty() || undo_ || !tensor_.empty())
        return InvalidArgument("mute: which incident? tdbg explain RUN numbers and names them");
      return OkStatus();
    }
    if (undo_ && !because_.empty()) return InvalidArgument("mute: --undo needs no --because; leave one out");
    if (!undo_ && because_.empty())
      return InvalidArgument("mute: why is it no issue? --because TEXT; --undo takes it back");
    if (because_.size() > watch::kMostReason)
      return InvalidArgument(
          fmt::format("--because: found {} bytes, accepted: {}", because_.size(), watch::kMostReason));
    return OkStatus();
  }

  // In the order of tdbg explain, whose numbers they are called by.
  Result<std::vector<Incident>> Incidents(StepNames* names) const {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path_));
    TDBG_ASSIGN_OR_RETURN(const RunSummary report, SummariseToExplain(*trial));
    *names = report.names;
    return report.incidents;
  }

  Result<Incident> Find(const std::vector<Incident>& incidents) const {
    std::vector<const Incident*> found;
    const auto number = base::ParseInt(incident_);
    if (number && *number >= 1 && *number <= static_cast<int64_t>(incidents.size())) {
      found.push_back(&incidents[static_cast<size_t>(*number) - 1]);
    } else {
      const auto find = [&](auto&& is_named) {
        for (const Incident& one : incidents) {
          if (is_named(one) && (tensor_.empty() || IsIn(one, tensor_))) found.push_back(&one);
        }
      };
      find([&](const Incident& one) { return one.id == incident_; });
      if (found.empty()) find([&](const Incident& one) { return one.detector == incident_; });
    }
    std::string names;
    for (size_t i = 0; i < incidents.size(); ++i)
      names += fmt::format("{}{} {}", i == 0 ? "" : ", ", i + 1, Words(incidents[i]));
    if (found.empty())
      return NotFound(fmt::format("no incident '{}' in the run; there {}", Printable(incident_),
                                  names.empty() ? "is none" : "are: " + names));
    if (found.size() > 1)
      return InvalidArgument(fmt::format("'{}' names {} incidents; give a number, or --tensor: {}",
                                         Printable(incident_), found.size(), names));
    return *found.front();
  }

  Result<int> Do() {
    StepNames names;
    TDBG_ASSIGN_OR_RETURN(const std::vector<Incident> incidents, Incidents(&names));
    TDBG_ASSIGN_OR_RETURN(const Incident incident, Find(incidents));
    if (incident.detector.empty())
      return InvalidArgument(
          fmt::format("{} is a rule that was named for the run; change its parameters, or leave it out",
                      Printable(incident.id)));
    Mute mute{incident.id,           incident.title,     because_,
              base::BaseName(path_), ScriptOfRun(path_), base::SystemClock().WallNanos(),
              WhatIsMuted(incident)};
    auto users = UsersMutes::Open(/*make=*/!mute.script.empty());
    TDBG_RETURN_IF_ERROR(Change([&](std::vector<Mute>* mutes) {
      std::erase_if(*mutes, [&](const Mute& one) { return Overlap(one.what, mute.what); });
      if (mutes->size() == watch::kMostMutes) mutes->erase(mutes->begin());
      mutes->push_back(mute);
      mutes->back().script.clear();
    }));
    Status kept = mute.script.empty() ? FailedPrecondition("it is no job that you started here with tdbg run")
                                      : users.status();
    if (kept.ok()) {
      users->Add(mute);
      kept = users->Save();
    }
    if (json_) {
      Json json = {{"run", path_}, {"muted", ToJson(mute)}, {"next_runs", kept.ok()}};
      if (!kept.ok()) json["why_not"] = kept.message();
      PrintJson(json);
      return kExitOk;
    }
    Note(fmt::format("muted: {}, because {}; in this run, and {}", Words(incident), Printable(because_),
                     kept.ok() ? "in the next ones of " + Printable(mute.script)
                               : "in this one alone: " + Printable(kept.message())));
    Note(fmt::format("tdbg mute {} {} --undo takes it back", ShellWord(DisplayPath(path_)), incident.id));
    return kExitOk;
  }

  Result<int> Undo() {
    TDBG_ASSIGN_OR_RETURN(const std::vector<Mute> before, watch::ReadMutes(path_));
    std::vector<Fingerprint> what;
    StepNames names;
    TDBG_ASSIGN_OR_RETURN(std::vector<Incident> incidents, Incidents(&names));
    if (const auto incident = Find(incidents); incident.ok() && incident->muted()) {
      what = WhatIsMuted(*incident);
    } else {  // muted for the script, and not found in this run
      for (const Mute& mute : before) {
        const bool of_tensor = tensor_.empty() || mute.what.front().place == tensor_;
        if (mute.id == incident_ && of_tensor) what = mute.what;
      }
    }
    if (what.empty())
      return NotFound(fmt::format("nothing is muted as '{}'; tdbg mute {} lists what is",
                                  Printable(incident_), ShellWord(DisplayPath(path_))));
    const std::string script = ScriptOfRun(path_);
    auto users = UsersMutes::Open(/*make=*/false);
    std::vector<Fingerprint> taken;
    TDBG_RETURN_IF_ERROR(Change([&](std::vector<Mute>* mutes) {
      for (const Mute& mute : *mutes) {
        if (Overlap(mute.what, what)) taken.insert(taken.end(), mute.what.begin(), mute.what.end());
      }
      std::erase_if(*mutes, [&](const Mute& one) { return Overlap(one.what, what); });
    }));
    Status kept = users.status();
    if (kept.ok() && !script.empty() && users->Remove(script, taken)) kept = users->Save();
    if (json_)
      PrintJson({{"run", path_}, {"undone", incident_}, {"next_runs", kept.ok()}});
    else
      Note(fmt::format("{} counts again", Printable(incident_)));
    if (!kept.ok()) Tell("tdbg: for the script's next runs it stays muted: {}\n", Printable(kept.message()));
    return kept.ok() ? kExitOk : ExitCodeOf(kept);
  }

  Result<int> List() const {
    TDBG_ASSIGN_OR_RETURN(const std::vector<Mute> mutes, watch::ReadMutes(path_));
    StepNames names;
    std::vector<Incident> incidents;
    if (!mutes.empty()) {
      TDBG_ASSIGN_OR_RETURN(incidents, Incidents(&names));
    }
    Json list = Json::array();
    for (const Mute& mute : mutes) {
      const auto found = std::ranges::find_if(incidents, [&](const Incident& incident) {
        return incident.muted() && Overlap(WhatIsMuted(incident), mute.what);
      });
      const bool here = found != incidents.end();
      if (json_) {
        list.push_back(ToJson(mute));
        list.back()["first_step"] = here ? Json(found->first_step) : Json();
        continue;
      }
      const std::string label = fmt::format("{}  ", Printable(here ? found->id : mute.id));
      char time[32];
      Print("{}{}\n", label,
            Wrapped(Printable(fmt::format(
                        "{} ({}), because {}; muted {} in run {}, {}", mute.title, mute.what.front().place,
                        mute.because, base::FormatUtc(mute.wall_nanos, time), mute.run,
                        here ? "found here at " + names.Of(found->first_step) : "not found in this one")),
                    DisplayWidth(label)));
    }
    if (json_)
      PrintJson({{"run", path_}, {"muted", list}});
    else if (mutes.empty())
      Tell("tdbg: nothing is muted in this run\n");
    return kExitOk;
  }

  // The run's list, as it is now.
  template <typename F>
  Status Change(F&& change) const {
    TDBG_ASSIGN_OR_RETURN(std::vector<Mute> mutes, watch::ReadMutes(path_));
    change(&mutes);
    return watch::WriteMutes(path_, mutes);
  }

  static Json ToJson(const Mute& mute) {
    Json what = Json::array();
    for (const Fingerprint& one : mute.what)
      what.push_back({{"detector", one.detector}, {"place", one.place}});
    return {{"id", mute.id},
            {"title", mute.title},
            {"because", mute.because},
            {"run", mute.run},
            {"time", JsonTime(mute.wall_nanos)},
            {"what", what}};
  }

  std::string run_, incident_, because_, tensor_, path_;
  bool undo_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeMuteCommand() { return std::make_unique<MuteCommand>(); }

}  // namespace tdbg::cli
