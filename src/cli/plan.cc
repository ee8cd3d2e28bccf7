// tdbg plan: lays out a run without starting anything. For tdbg.attach, whose process trains already.
#include <optional>
#include <utility>

#include "base/clock.h"
#include "cli/attempt_starts.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/exit_codes.h"
#include "cli/exporters.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/prepared_rules.h"
#include "cli/version.h"
#include "jobs/recent_runs.h"
#include "jobs/run_directory.h"
#include "rulehost/registry.h"
#include "rules/engine.h"

namespace tdbg::cli {
namespace {

class PlanCommand : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string help() const override { return "lay out a run directory without starting a command"; }
  void Define(Flags& flags) override {
    flags_.Define(flags);
    flags.AddOption("--name", name_, "what a fresh directory is called after; default: run").TypeName("NAME");
    flags.AddOption("--earlier-steps", earlier_steps_, "").Hidden();  // of a worker that was started again
    flags.AddFlag("--json", json_, "accepted for symmetry: the output is always JSON");
  }

  Result<int> Run() override {
    if (earlier_steps_ > 0) {
      TDBG_RETURN_IF_ERROR(TellEarlierSteps(flags_.dir, earlier_steps_));
      return kExitOk;
    }
    TDBG_ASSIGN_OR_RETURN(const plan::Config config, ResolveConfig(flags_));
    const std::vector<plan::RuleConfig> rules = RulesToWatch(config);
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<rulehost::Registry> registry,
                          rulehost::Registry::Create(rules, {}));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<rules::Engine> engine,
                          rules::Engine::Create(rules, *registry));
    TDBG_ASSIGN_OR_RETURN(const plan::Plan plan, PlanFor(config, engine->Needs()));
    jobs::PrepareOptions prepare;
    prepare.wall_nanos = base::SystemClock().WallNanos();
    prepare.shared = config.shared.value_or(false);
    std::optional<jobs::FreshRunDirectory> fresh;
    if (config.dir.empty()) {
      TDBG_ASSIGN_OR_RETURN(auto taken, jobs::FreshRunDirectory::Take(jobs::kRunsRoot, {name_},
                                                                      prepare.wall_nanos, prepare.shared));
      fresh.emplace(std::move(taken));
    }
    prepare.run_directory = fresh ? fresh->path() : config.dir;
    prepare.plan_json = plan.ToJson();
    prepare.rules_json = RulesToJson(rules);
    prepare.tdbg_version = kVersion;
    prepare.start_attempt = false;
    TDBG_ASSIGN_OR_RETURN(const jobs::PreparedAttempt prepared, jobs::PrepareAttempt(prepare));
    jobs::RememberRun({prepared.run_directory, jobs::AbsolutePath("."), prepare.wall_nanos});
    Json answer = {{"directory", prepared.run_directory}, {"attempt", prepared.attempt}};
    if (const auto least = engine->LeastSteps(); !least.empty()) {
      for (const auto& [rule, steps] : least) answer["first_verdict"][rule] = steps;
    }
    const auto exports = ExportArguments(config, prepared.run_directory);
    if (!exports.empty()) answer["exports"] = exports;
    if (AsksToJudge(config)) answer["judge"] = true;
    PrintJson(answer);
    return kExitOk;
  }

 private:
  ConfigFlags flags_;
  std::string name_ = "run";
  int64_t earlier_steps_ = 0;  ///< of the attempt that is to be told of them
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace tdbg::cli
