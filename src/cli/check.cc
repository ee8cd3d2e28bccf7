// tdbg check: judges a recorded run again, through the engine that judges live.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/muted_scripts.h"
#include "cli/not_run.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/terminal.h"
#include "cli/trust.h"
#include "cli/verdicts.h"
#include "jobs/run_directory.h"
#include "rules/details.h"
#include "trial/coarse.h"
#include "watch/replay.h"
#include "watch/report_files.h"

namespace tdbg::cli {
namespace {

// Every built-in rule that is not in `configs` yet, with its defaults. Some have parameters without defaults.
void AddEveryOther(std::vector<plan::RuleConfig>* configs, std::vector<NotRun>* not_run) {
  const size_t own = configs->size();
  // The profile comes first, since its incidents say more than single rules do.
  const bool judged = std::ranges::any_of(*configs, [](const plan::RuleConfig& config) {
    return config.rule == "Profile" || config.rule == "profile" || config.name == "Profile";
  });
  if (!judged) {
    plan::RuleConfig profile;
    profile.rule = "Profile";
    profile.optional = true;
    configs->push_back(std::move(profile));
  }
  for (const rules::RuleInfo* info : rules::BuiltinRules().All()) {
    const auto same = [&](const plan::RuleConfig& config) {
      return config.rule == info->class_name || config.rule == info->snake_name ||
             config.name == info->class_name;
    };
    if (std::any_of(configs->begin(), configs->begin() + static_cast<ptrdiff_t>(own), same)) continue;
    plan::RuleConfig config;
    config.rule = info->class_name;
    config.optional = true;
    if (const auto made = rules::Engine::Create({config}); !made.ok()) {
      std::string why = made.status().message();
      const std::string prefix = "rule " + info->class_name + ": ";
      if (why.starts_with(prefix)) why = why.substr(prefix.size());
      not_run->push_back({info->class_name, NotRun::Cause::kParameters, std::move(why)});
    } else {
      configs->push_back(std::move(config));
    }
  }
}

enum class Wanted {
  kByName,
  kInGroup,
  kByNobody
};  // kInGroup: by `all` and the like, or as the default rule

// Rules that the user did not name are left out if they found nothing to judge, or if they needed more than
// the run was meant to keep and nothing was dropped. If statistics were dropped, which every rule needs, the
// rules that the run was watched with stay in the list and say so.
void SetAside(const Trial& trial, const std::vector<Wanted>& wanted, std::vector<rules::RuleStatus>* statuses,
              std::vector<NotRun>* not_run) {
  const std::vector<DroppedInfo> dropped = trial.dropped();
  // What a compactor dropped is counted by no writer.
  const bool thinned = CoarseRows(trial).ThinnedSteps().steps != 0;
  const bool lossless = dropped.empty() && trial.damage().empty() && !thinned;
  const bool statistics_dropped =
      thinned || std::any_of(dropped.begin(), dropped.end(), [](const DroppedInfo& drop) {
        return (drop.kind == "summary" || drop.kind == "step") && drop.cause != "unsupported" &&
               drop.cause != "crashed";
      });
  std::vector<rules::RuleStatus> kept;
  for (size_t i = 0; i < statuses->size(); ++i) {
    rules::RuleStatus& status = (*statuses)[i];
    const bool unjudged = status.steps_judged == 0 && status.findings.empty();
    const bool in_part = lossless && status.state == rules::RuleState::kError && status.steps_incomplete > 0;
    const bool lost = statistics_dropped && status.state == rules::RuleState::kError;
    const bool keeps =
        wanted[i] == Wanted::kByName || (wanted[i] == Wanted::kInGroup && lost) || !(unjudged || in_part);
    if (keeps) {
      kept.push_back(std::move(status));
    } else if (!unjudged) {
      not_run->push_back({status.name, NotRun::Cause::kPart,
                          "Not judged in full: " + status.details +
                              ", which this run was not to keep; `tdbg run --rule` keeps it"});
    } else {
      not_run->push_back({status.name, NotRun::Cause::kNothing,
                          status.details.empty() ? "nothing to judge so far" : status.details});
    }
  }
  *statuses = std::move(kept);
}

class CheckCommand : public Command {
 public:
  std::string name() const override { return "check"; }
  std::string help() const override { return "judge a recorded run again, with any rules"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags
        .AddOption("--rule", rules_,
                   "a rule and its key=value parameters; repeatable; default: the run's own, and every other "
                   "rule whose inputs are there")
        .TypeName("RULE [KEY=VALUE ...]")
        .Repeatable();
    flags.AddOption("--rule-file", rule_files_, "a rule of your own and its parameters; repeatable")
        .TypeName("FILE:CLASS [KEY=VALUE ...]")
        .Repeatable();
    AddAttempt(flags, attempt_);
    flags.AddFlag("--trust", trust_, "use the run's own rule files, whoever made it");
    flags.AddFlag("--own", own_, "only the rules that the run was started with");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer("\nexit code: 0 no issues, 1 issues found, 8 some rule could not be judged");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunToRead(run_));
    TDBG_ASSIGN_OR_RETURN(std::vector<plan::RuleConfig> configs, RulesOfFlags(rules_, rule_files_));
    TDBG_RETURN_IF_ERROR(ExpandGroups(&configs));
    if (own_ && !configs.empty()) {
      return InvalidArgument("check: --own excludes --rule and --rule-file");
    }
    std::vector<NotRun> not_run;
    std::vector<std::string> left_out;
    bool lost_rules = false;
    const bool every = configs.empty() && !own_;
    if (configs.empty()) {
      TDBG_ASSIGN_OR_RETURN(const auto recorded, ReadRules(path));
      TrustedRules trusted;
      if (recorded) trusted = RulesToTrust(path, *recorded, {.trust = trust_});
      for (const std::string& line : trusted.left_out) Note(Printable(line));
      configs = std::move(trusted.rules);
      lost_rules = trusted.lost_rules;
      left_out = std::move(trusted.left_out);
      if (configs.empty() && own_ && !left_out.empty())
        return InvalidArgument(
            "check: no rule of the run's own may be used; add --rule RULE, or say --trust");
      if (configs.empty() && own_)
        return InvalidArgument("check: no rule is recorded in the run; leave out --own, or add --rule RULE");
    }
    std::vector<Wanted> wanted;
    for (const plan::RuleConfig& config : configs)
      wanted.push_back(config.optional ? Wanted::kInGroup : Wanted::kByName);
    if (every) AddEveryOther(&configs, &not_run);
    wanted.resize(configs.size(), Wanted::kByNobody);
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path, attempt_));
    std::vector<std::pair<size_t, rules::Report>> reports;
    TDBG_ASSIGN_OR_RETURN(
        std::vector<rules::RuleStatus> statuses,
        watch::Replay(*trial, configs, base::SystemClock().WallNanos(), &reports, attempt_));
    NoteUnusableMutes(path);
    const std::vector<std::string> written = WriteReports(path, statuses, reports);
    SetAside(*trial, wanted, &statuses, &not_run);
    const std::vector<watch::Origin> origins = watch::OriginsOf(*trial);
    std::vector<rules::Incident> incidents = rules::IncidentsOf(statuses);
    watch::Explain(&incidents, origins);
    const StepNames names = NamesFor(*trial, statuses, origins);
    const std::vector<int64_t> steps = trial->steps();
    const int64_t last_step = steps.empty() ? -1 : steps.back();
    const bool goes_on = jobs::LauncherAlive(path) || trial->state() == RunState::kRunning;
    if (json_) {
      Json aside = Json::array();
      for (const NotRun& rule : not_run) aside.push_back({{"rule", rule.rule}, {"why", rule.why}});
      PrintJson({{"run", LastingPlace(path)},
                 {"last_step", last_step},
                 {"rules", VerdictsToJson(statuses, names)},
                 {"incidents", IncidentsToJson(incidents, names)},
                 {"nan_origins", OriginsToJson(origins, names)},
                 {"not_run", aside},
                 {"left_out", left_out},
                 {"dropped", DroppedToJson(trial->dropped())},
                 {"reports", written}});
    } else {
      const Terminal terminal = Terminal::Of(STDOUT_FILENO);
      bool told = false;  // an incident has shown the origin
      for (const rules::Incident& incident : incidents) {
        if (incident.detector.empty()) continue;
        if (incident.muted()) {
          Print("{:<10}{}\n", "muted", Wrapped(MutedLine(incident, names), 10));
          continue;
        }
        std::string_view label = "incident";
        for (const std::string& line : IncidentLines(incident, origins, names)) {
          Print("{:<10}{}\n", label, Wrapped(line, 10));
          label = "";
        }
        told |= IsExplained(incident, origins);
      }
      const std::vector<std::string> lines = OriginLines(origins, names);
      for (size_t i = told ? 1 : 0; i < lines.size(); ++i) Print("origin  {}\n", Wrapped(lines[i], 8));
      Print("{}", FormatVerdicts(statuses, names, terminal));
      for (const std::string& report : written) Print("report  {}\n", Printable(report));
      for (const DroppedInfo& drop : trial->dropped()) Print("dropped {}\n", Wrapped(DroppedLine(drop), 8));
      Print("{}", FormatNotRun(not_run, ShellWord(DisplayPath(path)), terminal));
      if (goes_on) {
        Note(fmt::format("the run goes on; judged up to step {}", last_step));
      }
    }
    const int code = ExitCodeOfVerdicts(statuses);
    if (code != kExitOk) return code;
    TDBG_RETURN_IF_ERROR(CouldNotRead(trial->damage()));
    if (lost_rules) return kExitNotJudged;
    if (last_step >= 0) {
      const rules::Judging judging = rules::JudgingOf(statuses);
      if (judging.judged > 0 || goes_on) return code;
      Tell("tdbg: nothing was judged: no rule found what it looks at\n");
      return kExitNotJudged;
    }
    // Even if the rules found nothing: a CI gate must not take an empty run for one that was judged.
    Tell("tdbg: the run holds no step: nothing was judged; tdbg status {} says why\n",
         ShellWord(DisplayPath(path)));
    return kExitNotJudged;
  }

 private:
  static std::vector<std::string> WriteReports(const std::string& run,
                                               const std::vector<rules::RuleStatus>& statuses,
                                               const std::vector<std::pair<size_t, rules::Report>>& reports) {
    std::vector<std::string> written;
    for (const auto& [rule, report] : reports) {
      const auto path = watch::WriteReport(run, statuses[rule].name, report);
      if (path.ok()) {
        written.push_back(*path);
      } else {  // the run may be read-only, and only the verdicts were asked for
        Tell("tdbg: the report of {} cannot be written: {}\n", Printable(statuses[rule].name),
             path.status().message());
      }
    }
    return written;
  }

  std::string run_;
  std::vector<std::string> rules_, rule_files_;
  int64_t attempt_ = -1;
  bool own_ = false, json_ = false, trust_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCheckCommand() { return std::make_unique<CheckCommand>(); }

}  // namespace tdbg::cli
