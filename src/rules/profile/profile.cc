// The rule `profile`: reads each step once, for all detectors. It goes on after its first finding.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "rules/profile/catalogue.h"
#include "rules/profile/detector.h"
#include "rules/profile/job.h"
#include "rules/profile/recent.h"
#include "rules/profile/reexecution.h"
#include "rules/rule.h"
#include "trial/columns.h"

namespace tdbg::rules {
namespace profile {

Finding MakeFinding(const Digest& step, std::string_view id, const std::string& tensor) {
  Finding finding;
  finding.global_step = step.global_step();
  finding.tensor = tensor;
  finding.worker = step.first_worker();
  finding.detector = id;
  return finding;
}

Finding MakeFinding(const Digest& step, std::string_view id, const std::string& tensor, Measured measured,
                    std::string text) {
  Finding finding = MakeFinding(step, id, tensor);
  finding.measure = std::move(measured.measure);
  finding.value = measured.value;
  finding.comparison = std::move(measured.comparison);
  finding.threshold = measured.threshold;
  finding.text = std::move(text);
  return finding;
}

namespace {

// Phases shorter than detectors look back.
constexpr int64_t kManyPhases = 10, kShortPhase = 10;
// Sets of optimizers that take turns. Each has a history of every weight.
constexpr size_t kMostPhases = 8;

class Profile : public Rule {
 public:
  Profile() {
    AddStart(&lasting_);
    AddEvaluation(&lasting_);
    AddReplicas(&lasting_);
    AddReexecution(&lasting_);
    AddJob(&job_);
    AddBoosting(&boosting_);
    // A NaN does not end with a phase: where two optimizers take turns each step may begin one, and a NaN
    // that stays would be reported at each.
    AddNonfinite(&nonfinite_);
    Begin({});
  }

  plan::Need Needs() const override {
    plan::Need need;
    need.collections = {"weights", "biases", "gradients", "buffers", "losses", "metrics"};
    return need;
  }
  // Other columns are used if a row has them.
  uint64_t Columns() const override { return columns::kFinite; }
  bool GoesOn() const override { return true; }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    digest_.Take(step);
    silence_.See(digest_);
    recent_.Take(digest_);
    if (digest_.train()) FindPhase();
    // Of what is lost nobody knows who stepped.
    if (step.statistics_incomplete()) phases_.erase(phases_.begin() + 1, phases_.end());
    for (const Detectors* const detectors : Judging()) {
      for (const auto& detector : *detectors) detector->Judge(digest_, findings);
    }
    Report(findings);
    if (step.statistics_incomplete()) return Judged::kIncomplete;
    if (digest_.boosted() && findings->empty()) {
      // That no metric is NaN is no clean bill.
      const Rounds& rounds = digest_.rounds();
      return rounds.metrics().empty() && !rounds.splits() ? Judged::kNotDue : Judged::kJudged;
    }
    return digest_.judged_anything() ? Judged::kJudged : Judged::kNotDue;
  }

  Result<Judged> AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    for (const Detectors* const detectors : All()) {
      for (const auto& detector : *detectors) detector->AtEnd(last, findings);
    }
    Report(findings);
    return Judged::kNotDue;
  }

  std::optional<double> StallThreshold() const override { return silence_.Threshold(); }
  void OnStall(const Stall& stall, std::vector<Finding>* findings) override {
    if (auto finding = silence_.Judge(stall)) findings->push_back(*std::move(finding));
  }

  std::string Remarks() const override {
    std::vector<std::string> all;
    const auto often = [&](int64_t times) { return times >= kManyPhases && steps_ < kShortPhase * times; };
    if (digest_.boosted()) {
      // Optimizers there are none.
    } else if (often(begun_)) {
      all.emplace_back(
          "most of wiring, data, updates and learning (optimizers step in new sets every few steps)");
    } else if (often(begun_ + returned_)) {
      all.emplace_back("whether losses fall, and what labels are (optimizers take turns every few steps)");
    }
    for (const Detectors* const detectors : All()) {
      for (const auto& detector : *detectors) {
        const std::string unjudged = detector->Unjudged();
        if (!unjudged.empty() && std::ranges::find(all, unjudged) == all.end()) all.push_back(unjudged);
      }
    }
    return all.empty() ? std::string() : fmt::format("Not judged: {}", fmt::join(all, "; "));
  }

  std::string WouldHaveNeeded() const override {
    if (digest_.boosted()) {
      return "of boosted trees a metric of which it knows which way is better, or their splits. `tdbg check "
             "RUN --rule LossNotDecreasing` judges any metric";
    }
    return "statistics of at least one weight, gradient, buffer or loss";
  }

 private:
  void Report(std::vector<Finding>* findings) {
    // A finding of an earlier phase is not reported again in this one.
    std::erase_if(*findings, [&](const Finding& finding) {
      const bool known = std::ranges::any_of(told_, [&](const auto& told) {
        return told.first == finding.detector && told.second == finding.tensor;
      });
      return known && finding.detector != "nonfinite";
    });
    for (Finding& finding : *findings) {
      told_.emplace_back(finding.detector, finding.tensor);
      recent_.Tell(digest_, &finding);
    }
  }

  // The training while one set of optimizers steps. With others between them its steps are one phase as long
  // as they are no more than kTurn steps apart: a critic that steps five times as often as its generator.
  struct Phase {
    std::vector<std::string> stepped;  // labels; empty: nobody has stepped yet
    int64_t last = 0;                  // step
    Detectors what_is_fed, of_phase;
  };

  // In a new phase of the training (layers thawed, another optimizer) earlier values are no measure.
  void Begin(std::vector<std::string> stepped) {
    if (phases_.size() == kMostPhases) phases_.pop_back();
    Phase phase;
    phase.stepped = std::move(stepped);
    AddWiring(&phase.what_is_fed);
    AddModes(&phase.what_is_fed);
    AddData(&phase.what_is_fed);
    AddTargets(&phase.what_is_fed);
    AddLossGraph(&phase.what_is_fed);
    AddSettings(&phase.what_is_fed);
    AddNumerics(&phase.of_phase);
    AddPutBack(&phase.of_phase);
    AddUpdates(&phase.of_phase);
    AddLearning(&phase.of_phase);
    AddPredictions(&phase.of_phase);
    AddParts(&phase.of_phase);
    phases_.insert(phases_.begin(), std::move(phase));
    connections_.clear();
    AddConnections(&connections_);
  }

  // Brings the phase of the training step at hand to the front.
  void FindPhase() {
    ++steps_;
    while (steps_ - phases_.back().last > kTurn && phases_.size() > 1) phases_.pop_back();
    const std::vector<std::string>& stepped = digest_.stepped();
    if (!stepped.empty() && phases_.front().stepped.empty()) {
      phases_.front().stepped = stepped;
    } else if (!stepped.empty() && stepped != phases_.front().stepped) {
      const auto found = std::ranges::find(phases_, stepped, &Phase::stepped);
      if (found == phases_.end()) {
        Begin(stepped);
        ++begun_;
      } else {
        std::rotate(phases_.begin(), found, found + 1);
        const int64_t apart = steps_ - phases_.front().last;
        for (const auto& detector : phases_.front().what_is_fed) detector->Returns(apart);
        for (const auto& detector : phases_.front().of_phase) detector->Returns(apart);
        ++returned_;
      }
    }
    phases_.front().last = steps_;
  }

  // In the order in which they judge. Steps that are none of training are every phase's.
  std::vector<const Detectors*> Judging() const { return Of(digest_.train() ? 1 : phases_.size()); }
  std::vector<const Detectors*> All() const { return Of(phases_.size()); }
  std::vector<const Detectors*> Of(size_t phases) const {
    // What layers, optimizers and batches lack is not what trees have, and the other way round.
    if (digest_.boosted()) return {&boosting_, &nonfinite_, &job_};
    std::vector<const Detectors*> all = {&lasting_, &job_, &connections_};
    for (size_t i = 0; i < phases; ++i) all.push_back(&phases_[i].what_is_fed);
    all.push_back(&nonfinite_);
    for (size_t i = 0; i < phases; ++i) all.push_back(&phases_[i].of_phase);
    return all;
  }

  Digest digest_;
  Detectors lasting_, nonfinite_, job_, boosting_;  // over the whole run
  // Over the steps of all phases since the latest began: what one optimizer has at a step it may lack at
  // others that it makes beside another one.
  Detectors connections_;
  std::vector<Phase> phases_;  // that go on, the latest first; never empty
  Silence silence_;
  Recent recent_;
  int64_t steps_ = 0, begun_ = 1, returned_ = 0;  // of training
  std::vector<std::pair<std::string, std::string>> told_;
};

}  // namespace
}  // namespace profile

void RegisterProfile(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "Profile";
  info.snake_name = "profile";
  info.scope = "deep learning";
  info.summary =
      "What is watched for where no rule is named: one incident with its cause (docs/incidents.md).";
  ParameterSpec version;
  version.name = "version";
  version.type = "int";
  version.default_value = std::to_string(profile::kVersion);
  version.help = "Which profile: a version judges the same for ever.";
  version.minimum = version.maximum = profile::kVersion;
  info.parameters = {version};
  info.listed = false;
  registry->Add(std::move(info), [](const Parameters&) -> Result<std::unique_ptr<Rule>> {
    return std::unique_ptr<Rule>(std::make_unique<profile::Profile>());
  });
}

}  // namespace tdbg::rules
