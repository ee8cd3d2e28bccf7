// tdbg check: judges a recorded run again, through the engine that judges live.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/exit_codes.h"
#include "cli/run_path.h"
#include "cli/verdicts.h"
#include "jobs/run_directory.h"
#include "watch/replay.h"

namespace tdbg::cli {
namespace {

class CheckCommand : public Command {
 public:
  std::string name() const override { return "check"; }
  std::string help() const override { return "judge a recorded run again, with any rules"; }
  void Define(CLI::App& app) override {
    app.add_option("RUN", run_, "a path, a name under ./tdbg-runs, or last")->required();
    app.add_option("--rule", rules_,
                   "a rule and its key=value parameters; repeatable; default: the run's own")
        ->type_name("RULE [KEY=VALUE ...]")
        ->allow_extra_args(false);
    app.add_option("--attempt", attempt_, "only this attempt; default: all, the latest wins")->type_name("N");
    app.add_flag("--json", json_, "one JSON document on stdout");
    app.footer("\nexit code: 0 no issues, 1 issues found, 8 some rule could not be judged");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRun(run_));
    std::vector<plan::RuleConfig> configs;
    for (const std::string& text : rules_) {
      TDBG_ASSIGN_OR_RETURN(plan::RuleConfig rule, ParseRuleFlag(text));
      configs.push_back(std::move(rule));
    }
    if (configs.empty()) {
      TDBG_ASSIGN_OR_RETURN(const auto recorded, ReadRules(path));
      if (recorded) configs = *recorded;
      if (configs.empty())
        return InvalidArgument("check: no rule given and none recorded in the run; add --rule RULE");
    }
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(path, attempt_));
    TDBG_ASSIGN_OR_RETURN(const std::vector<rules::RuleStatus> statuses,
                          watch::Replay(*trial, configs, base::SystemClock().WallNanos()));
    const std::vector<int64_t> steps = trial->steps();
    const int64_t last_step = steps.empty() ? -1 : steps.back();
    if (json_) {
      PrintJson({{"run", path}, {"last_step", last_step}, {"rules", VerdictsToJson(statuses)}});
    } else {
      fmt::print("{}", FormatVerdicts(statuses, Terminal::Of(STDOUT_FILENO)));
      if (jobs::LauncherAlive(path) || trial->state() == RunState::kRunning) {
        fmt::print(stderr, "tdbg: the run goes on; judged up to step {}\n", last_step);
      }
    }
    return ExitCodeOfVerdicts(statuses);
  }

 private:
  std::string run_;
  std::vector<std::string> rules_;
  int64_t attempt_ = -1;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCheckCommand() { return std::make_unique<CheckCommand>(); }

}  // namespace tdbg::cli
