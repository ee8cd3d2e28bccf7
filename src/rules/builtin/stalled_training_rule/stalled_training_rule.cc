// A training that makes no progress. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/step_context.h"
#include "trial/step_name.h"

namespace tdbg::rules {
namespace {

class StalledTrainingRule : public Rule {
 public:
  StalledTrainingRule(double threshold, bool stop) : threshold_(threshold), stop_(stop) {}

  plan::Need Needs() const override {
    plan::Need need;
    need.collections = {"losses"};
    return need;
  }

  std::optional<double> StallThreshold() const override { return threshold_; }
  bool StopsJob() const override { return stop_; }

  // Found by the watcher's clock, while nothing came.
  void OnStall(const Stall& stall, std::vector<Finding>* findings) override {
    if (stall.seconds < threshold_) return;
    Finding finding = Standstill(stall.seconds);
    finding.global_step = std::max<int64_t>(stall.after_step, 0);
    finding.text = stall.after_step < 0 ? "no step was made" : fmt::format("after step {}", stall.after_step);
    findings->push_back(std::move(finding));
  }

  // Found by the steps' own time stamps, where no watcher saw the standstill.
  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    const StepInfo now = step.info();
    // A training that a breakpoint held was asked to stand still.
    const std::string* const hold = step.Context("hold");
    const bool held = hold != nullptr && *hold != hold_;
    if (held) hold_ = *hold;
    // The time between two starts of a job is no standstill.
    if (last_ && !held && last_attempt_ == step.attempt() && now.wall_nanos > last_->wall_nanos) {
      const double seconds = static_cast<double>(now.wall_nanos - last_->wall_nanos) / 1e9;
      // Steps between that were not recorded share the time: at least one of them took the mean or longer.
      const auto steps = static_cast<double>(std::max<int64_t>(now.global_step - last_->global_step, 1));
      if (seconds / steps >= threshold_) {
        Finding finding = Standstill(seconds);
        finding.global_step = now.global_step;
        finding.worker = "";
        finding.text =
            fmt::format("between {} and {}", StepName(last_->mode, last_->mode_step, last_->global_step),
                        StepName(now.mode, now.mode_step, now.global_step));
        findings->push_back(std::move(finding));
      }
    }
    last_ = now;
    last_attempt_ = step.attempt();
    return Judged::kJudged;
  }

  std::string WouldHaveNeeded() const override { return "a step of the training"; }

 private:
  Finding Standstill(double seconds) const {
    Finding finding;
    finding.measure = "seconds_without_progress";
    finding.value = seconds;
    finding.comparison = ">=";
    finding.threshold = threshold_;
    return finding;
  }

  double threshold_;
  bool stop_;
  std::optional<StepInfo> last_;
  int64_t last_attempt_ = 0;
  std::string hold_;  // the latest one, as it was recorded
};

}  // namespace

void RegisterStalledTrainingRule(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "StalledTrainingRule";
  info.snake_name = "stalled_training_rule";
  info.scope = "any";
  info.summary = "The training made no progress for a long time.";
  info.parameters = {
      NumberParameter("threshold", "float", "1800", 0.001, "seconds",
                      "So long without a heartbeat is a hit."),
      BoolParameter("stop_training_on_fire", "False", "Stop the job at a finding, as on_issue: [stop] does."),
      TextParameter("training_job_name_prefix", "",
                    "Accepted and not needed: the job that is stopped is the one that is watched."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    return MakeRule<StalledTrainingRule>(parameters.Float("threshold"),
                                         parameters.Bool("stop_training_on_fire"));
  });
}

}  // namespace tdbg::rules
