#include "rules/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <map>
#include <stdexcept>

#include "base/file.h"
#include "base/testing.h"
#include "rules/details.h"
#include "rules/testing.h"

namespace tdbg::rules {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

plan::RuleConfig Config(const std::string& rule, const std::map<std::string, std::string>& parameters = {},
                        const std::string& name = "") {
  plan::RuleConfig config;
  config.rule = rule;
  config.parameters = parameters;
  // Most tests want a hit at the step that they write.
  if (rule == "VanishingGradient") config.parameters.try_emplace("patience", "1");
  config.name = name;
  config.where = "--rule";
  return config;
}

std::unique_ptr<Engine> MakeEngine(const std::vector<plan::RuleConfig>& configs,
                                   const RuleRegistry& registry = BuiltinRules()) {
  auto engine = Engine::Create(configs, registry);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return engine.ok() ? *std::move(engine) : nullptr;
}

TEST(EngineTest, AdvanceIsIncrementalAndTellsWhatChanged) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient"), Config("ExplodingTensor")});
  run.Step({{a, 1}});
  EXPECT_THAT(*engine->Advance(run, 10), IsEmpty());
  EXPECT_THAT(*engine->Advance(run, 11), IsEmpty());
  EXPECT_EQ(engine->statuses()[0].steps_judged, 1) << "a step is judged once";
  run.Step({{a, 0}});
  EXPECT_THAT(*engine->Advance(run, 12), ElementsAre(0));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kIssuesFound);
  EXPECT_EQ(engine->statuses()[0].last_modified_wall_nanos, 12);
  EXPECT_EQ(engine->statuses()[1].state, RuleState::kInProgress);
  EXPECT_EQ(engine->last_judged_step(), 1);
  EXPECT_THAT(*engine->Finish(run, JobEnd::kCompleted, 13), ElementsAre(1));
  EXPECT_EQ(engine->statuses()[0].last_modified_wall_nanos, 12) << "a rule ends at its first hit";
}

TEST(EngineTest, NobodyLooksAtStepsOnceAllRulesHaveEnded) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient")});
  for (int i = 0; i < 10; ++i) run.Step({{a, 0}});
  TDBG_ASSERT_OK(engine->Advance(run, 1));
  EXPECT_EQ(run.looked_at, 1u);
  EXPECT_EQ(engine->last_judged_step(), 9);
}

TEST(EngineTest, AnIncompleteStepWaitsUntilItsWorkerIsDeclaredLost) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient")});
  run.Step({{a, 0}});
  run.complete = 0;
  run.missing = {"rank 1"};
  EXPECT_THAT(*engine->Advance(run, 1), IsEmpty());
  engine->DeclareLost({0, "rank 2", 0});
  EXPECT_THAT(*engine->Advance(run, 2), IsEmpty()) << "another worker's loss";
  engine->DeclareLost({0, "rank 1", 5});
  EXPECT_THAT(*engine->Advance(run, 2), IsEmpty()) << "still expected at step 0";
  engine->DeclareLost({0, "rank 1", 0});
  EXPECT_THAT(*engine->Advance(run, 3), ElementsAre(0));
}

TEST(EngineTest, AfterTheJobIncompleteStepsAreJudgedAsTheyAre) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient")});
  run.Step({{a, 0}});
  run.complete = 0;
  run.missing = {"rank 1"};
  EXPECT_THAT(*engine->Finish(run, JobEnd::kFailed, 3), ElementsAre(0));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kIssuesFound);
}

TEST(EngineTest, ShedStepsAreCountedAndNeverClean) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient")});
  for (int i = 0; i < 10; ++i) run.Step({{a, 1}});
  run.Shed(4);
  run.Shed(5);
  TDBG_ASSERT_OK(engine->Finish(run, JobEnd::kCompleted, 1));
  const RuleStatus& status = engine->statuses()[0];
  EXPECT_EQ(status.state, RuleState::kError);
  EXPECT_EQ(status.steps_incomplete, 2);
  EXPECT_EQ(status.details, "incomplete: 2 of 10 steps lacked statistics");
}

TEST(EngineTest, WhoHasNothingToSayOfAStepThatLostSomethingIsNotClean) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient")});
  for (int i = 0; i < 10; ++i) run.Step({{a, 1}});
  // Skipped by AMP: the rule does not look at it.
  run.Step({{a, 1}}).skipped = true;
  run.Shed(10);
  TDBG_ASSERT_OK(engine->Finish(run, JobEnd::kCompleted, 1));
  const RuleStatus& status = engine->statuses()[0];
  EXPECT_EQ(status.state, RuleState::kError);
  EXPECT_EQ(status.steps_incomplete, 0);
  EXPECT_EQ(status.details, "incomplete: some of what 1 step had was dropped");
}

TEST(EngineTest, WhatWasJudgedBeforeACompactorDroppedItStandsWhenAnAttemptTakesOver) {
  const auto state = [](size_t thinned) {
    MemorySource run;
    const TensorIndex a = run.Tensor("gradient/a", "gradients");
    const auto engine = MakeEngine({Config("VanishingGradient")});
    for (int i = 0; i < 20; ++i) run.Step({{a, 1}});
    EXPECT_TRUE(engine->Advance(run, 1).ok());
    run.Shed(thinned);
    run.generation = 1;
    run.base = 10;
    EXPECT_TRUE(engine->Finish(run, JobEnd::kCompleted, 2).ok());
    return engine->statuses()[0].state;
  };
  EXPECT_EQ(state(9), RuleState::kNoIssuesFound);
  EXPECT_EQ(state(10), RuleState::kError) << "it is another step than the one that was judged";
}

TEST(EngineTest, WhatAnEarlierStartOfTheJobJudgedWholeStandsForTheSameRule) {
  const auto state = [](size_t thinned, int64_t attempt, const char* threshold) {
    MemorySource run;
    const TensorIndex a = run.Tensor("gradient/a", "gradients");
    const auto earlier = MakeEngine({Config("VanishingGradient", {{"threshold", "1e-7"}})});
    const auto engine = MakeEngine({Config("VanishingGradient", {{"threshold", threshold}})});
    for (int i = 0; i < 20; ++i) run.Step({{a, 1}});
    run.Shed(thinned);
    engine->DeclareJudged("VanishingGradient", earlier->statuses()[0].code, 9, attempt);
    EXPECT_TRUE(engine->Finish(run, JobEnd::kCompleted, 2).ok());
    return engine->statuses()[0].state;
  };
  EXPECT_EQ(state(9, 0, "1e-7"), RuleState::kNoIssuesFound);
  EXPECT_EQ(state(10, 0, "1e-7"), RuleState::kError) << "it had not come yet";
  EXPECT_EQ(state(9, -1, "1e-7"), RuleState::kError) << "a later attempt's step";
  EXPECT_EQ(state(9, 0, "1e-6"), RuleState::kError) << "another threshold";
}

TEST(EngineTest, DamageAndLostStepsAreNeverClean) {
  const auto verdict = [](const std::vector<DroppedInfo>& lost, const std::vector<std::string>& damaged) {
    MemorySource run;
    const TensorIndex a = run.Tensor("gradient/a", "gradients");
    const auto engine = MakeEngine({Config("VanishingGradient", {{"start_step", "10"}})});
    for (int i = 0; i < 20; ++i) run.Step({{a, 1}});
    run.lost = lost;
    run.damaged = damaged;
    EXPECT_TRUE(engine->Finish(run, JobEnd::kCompleted, 1).ok());
    return engine->statuses()[0].details;
  };
  EXPECT_EQ(verdict({}, {}), "");
  EXPECT_EQ(verdict({}, {"0/worker_0/segments/1: checksum"}),
            "incomplete: 1 damaged place, the first: 0/worker_0/segments/1: checksum");
  EXPECT_EQ(verdict({{"worker_0", "disk_full", "step", "", 3, 0, 12, 14}}, {}),
            "incomplete: steps dropped (disk_full): 3, steps 12 to 14 (worker_0)");
  EXPECT_EQ(verdict({{"worker_0", "disk_full", "summary", "", 3, 0, 1, 9}}, {}), "") << "before start_step";
  EXPECT_EQ(verdict({{"worker_0", "journal_full", "raw", "", 3, 0, 12, 14}}, {}), "")
      << "it reads no raw values";
  EXPECT_EQ(verdict({{"worker_0", "crashed", "step", "", 1, 0, 12, 14}}, {}), "") << "it never was a step";
  EXPECT_EQ(verdict({{"worker_0", "unsupported", "summary", "", 1, 0, 12, 14}}, {}), "");
}

TEST(EngineTest, ALaterAttemptThatTakesOverIsJudgedAfresh) {
  MemorySource run;
  const TensorIndex loss = run.Tensor("loss", "losses");
  const auto engine = MakeEngine({Config("LossNotDecreasing", {{"interval", "1"}, {"num_steps", "1"}})});
  run.Step({{loss, 4}});
  run.Step({{loss, 3}});
  TDBG_ASSERT_OK(engine->Advance(run, 1));
  EXPECT_EQ(engine->statuses()[0].steps_judged, 1);
  run.DropSteps();
  ++run.generation;
  run.Step({{loss, 4}});
  run.Step({{loss, 3.5}});
  run.Step({{loss, 3.4}});
  EXPECT_THAT(*engine->Advance(run, 2), IsEmpty()) << "3.4 was compared with a 3 that is no longer there";
  EXPECT_EQ(engine->statuses()[0].steps_judged, 2);
}

TEST(EngineTest, ARuleThatEndedByAStepThatWasReplacedIsJudgedAfresh) {
  MemorySource run;
  const TensorIndex a = run.Tensor("gradient/a", "gradients");
  const auto engine = MakeEngine({Config("VanishingGradient")});
  run.Step({{a, 1}});
  run.Step({{a, 0}});
  EXPECT_THAT(*engine->Advance(run, 1), ElementsAre(0u));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kIssuesFound);
  run.Step({{a, 0}});
  ++run.generation;
  run.base = 2;
  EXPECT_THAT(*engine->Advance(run, 2), IsEmpty()) << "step 1 is the one it was";
  run.DropSteps();
  ++run.generation;
  run.base = 1;
  run.Step({{a, 1}});
  run.Step({{a, 1}});
  EXPECT_THAT(*engine->Advance(run, 3), ElementsAre(0u));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kInProgress);
  EXPECT_EQ(engine->statuses()[0].steps_judged, 2);
  EXPECT_EQ(engine->statuses()[0].details, "");
  TDBG_ASSERT_OK(engine->Finish(run, JobEnd::kCompleted, 4));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kNoIssuesFound);
}

TEST(EngineTest, AStandstillIsLookedForOnlyWhereARuleWantsToHearOfIt) {
  MemorySource run;
  const TensorIndex a = run.Tensor("loss", "losses");
  const auto engine = MakeEngine(
      {Config("StalledTrainingRule", {{"threshold", "60"}, {"start_step", "2"}, {"end_step", "4"}})});
  EXPECT_FALSE(engine->StallThreshold().has_value());
  for (int step = 0; step < 6; ++step) {
    run.Step({{a, 1}});
    TDBG_ASSERT_OK(engine->Advance(run, 1));
    EXPECT_EQ(engine->StallThreshold().has_value(), step == 2 || step == 3) << step;
  }
}

// The first attempt hung after step 4; the next one goes on at step 1 and hangs after step 2.
TEST(EngineTest, AStandstillOfALaterAttemptDoesNotWaitForThatOfAnEarlierOne) {
  MemorySource run;
  const TensorIndex a = run.Tensor("loss", "losses");
  const std::vector<plan::RuleConfig> rules = {Config("StalledTrainingRule", {{"threshold", "60"}})};
  const Stall first{0, 4, 70}, second{1, 2, 80};
  const auto live = MakeEngine(rules);
  for (int step = 0; step < 5; ++step) run.Step({{a, 1}});
  TDBG_ASSERT_OK(live->Advance(run, 1));
  live->DeclareStalled(first);
  TDBG_ASSERT_OK(live->Advance(run, 2));
  EXPECT_EQ(live->statuses()[0].state, RuleState::kIssuesFound);

  run.Later(1, a, {1, 1});
  TDBG_ASSERT_OK(live->Advance(run, 3));
  EXPECT_EQ(live->statuses()[0].findings.size(), 1u) << "that of the first attempt stands";
  live->DeclareStalled(second);
  TDBG_ASSERT_OK(live->Advance(run, 4));
  ASSERT_EQ(live->statuses()[0].findings.size(), 2u);
  EXPECT_EQ(live->statuses()[0].findings[0].global_step, 2);
  EXPECT_FALSE(live->StallThreshold().has_value()) << "or the watcher would declare it again and again";

  MemorySource again;
  (void)again.Tensor("loss", "losses");
  for (int step = 0; step < 5; ++step) again.Step({{a, 1}});
  again.Later(1, a, {1, 1});
  const auto replay = MakeEngine(rules);
  replay->DeclareStalled(first);
  replay->DeclareStalled(second);
  TDBG_ASSERT_OK(replay->Advance(again, 5));
  EXPECT_EQ(replay->statuses()[0].details, live->statuses()[0].details);
}

TEST(EngineTest, NoStepsAtAllIsAnErrorOrAStop) {
  MemorySource run;
  const auto engine = MakeEngine({Config("VanishingGradient")});
  TDBG_ASSERT_OK(engine->Finish(run, JobEnd::kFailed, 1));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kError);
  const auto stopped = MakeEngine({Config("VanishingGradient")});
  TDBG_ASSERT_OK(stopped->Finish(run, JobEnd::kStopped, 1));
  EXPECT_EQ(stopped->statuses()[0].state, RuleState::kStopped);
  EXPECT_THAT(stopped->statuses()[0].details, HasSubstr("statistics of at least one finite tensor"));
}

TEST(EngineTest, NothingToJudgeIsAnErrorOnlyForARuleThatSomebodyNamed) {
  MemorySource run;
  run.Step({{run.Tensor("weight/a", "weights"), 1}});
  plan::RuleConfig unnamed = Config("ExplodingTensor", {{"collection_names", "gradients"}}, "unnamed");
  unnamed.optional = true;
  plan::RuleConfig shed = unnamed;
  shed.name = "shed";
  const auto engine = MakeEngine({unnamed, Config("ExplodingTensor", {{"collection_names", "gradients"}})});
  TDBG_ASSERT_OK(engine->Finish(run, JobEnd::kCompleted, 1));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kNoIssuesFound);
  EXPECT_THAT(engine->statuses()[0].details, testing::StartsWith("Nothing to judge: "));
  EXPECT_TRUE(HadNothing(engine->statuses()[0]));
  EXPECT_EQ(engine->statuses()[1].state, RuleState::kError);
  EXPECT_TRUE(HadTooLittle(engine->statuses()[1]));

  run.Shed(0);
  const auto lossy = MakeEngine({shed});
  TDBG_ASSERT_OK(lossy->Finish(run, JobEnd::kCompleted, 1));
  EXPECT_EQ(lossy->statuses()[0].state, RuleState::kError) << "what was lost may have been what it looks at";
}

TEST(EngineTest, SaysHowManyStepsAFirstVerdictTakes) {
  const auto engine =
      MakeEngine({Config("VanishingGradient"), Config("LossNotDecreasing"),
                  Config("LossNotDecreasing", {{"interval", "4"}, {"num_steps", "9"}}, "often"),
                  Config("WeightUpdateRatio"), Config("Overtraining", {{"interval", "3"}}),
                  Config("UnchangedTensor", {{"tensor_regex", "a"}})});
  using Least = std::pair<std::string, int64_t>;
  // A loss rule without an interval of the user's judges a shorter run at its end.
  EXPECT_THAT(engine->LeastSteps(), ElementsAre(Least("often", 16), Least("WeightUpdateRatio", 501),
                                                Least("Overtraining", 6), Least("UnchangedTensor", 1001)));
}

TEST(EngineTest, OneNanIsReportedOnceAndFollowedFromByTheOthers) {
  const auto found = [](const std::string& rule, int64_t step, const std::string& measure, int64_t since) {
    RuleStatus status;
    status.name = status.rule = rule;
    status.state = RuleState::kIssuesFound;
    Finding finding;
    finding.global_step = step;
    finding.measure = measure;
    status.findings = {finding};
    status.nonfinite_since = since;
    return status;
  };
  RuleStatus fine;
  fine.state = RuleState::kNoIssuesFound;
  const char* const nan = "nonfinite_count";
  EXPECT_THAT(
      CausesOf({found("LossNotDecreasing", 31, nan, 31), fine, found("ExplodingTensor", 31, "nan_count", 31),
                found("Overtraining", 40, nan, 31), found("VanishingGradient", 50, "mean_abs", -1)}),
      ElementsAre(2, -1, -1, 2, -1));
  EXPECT_THAT(
      CausesOf({found("ExplodingTensor", 31, "inf_count", 30), found("LossNotDecreasing", 30, nan, 30)}),
      ElementsAre(-1, -1))
      << "it says where; it is never folded";
  EXPECT_THAT(CausesOf({found("Overtraining", 31, nan, 31), found("LossNotDecreasing", 31, nan, 31)}),
              ElementsAre(-1, 0));
  EXPECT_THAT(CausesOf({fine}), ElementsAre(-1));
  EXPECT_THAT(CausesOf({found("ExplodingTensor", 31, "nan_count", 31),
                        found("LossNotDecreasing", 900, nan, 812), found("Overtraining", 1000, nan, 812)}),
              ElementsAre(-1, -1, 1))
      << "two episodes, two causes";
  EXPECT_THAT(CausesOf({found("ExplodingTensor", 31, "nan_count", -1),
                        found("LossNotDecreasing", 31, nan, -1), found("Overtraining", 32, nan, -1)}),
              ElementsAre(-1, 0, -1))
      << "not known: nothing is claimed but of one step";
}

/// Three tensors, each with a rule: what ExplodingTensor finds of the gradient and LossNotDecreasing of the
/// loss, by the steps at which they are NaN. A third tensor is looked at by nobody.
class EpisodeTest : public testing::Test {
 protected:
  enum { kAll = 0, kGradient = 1, kLoss = 2, kOther = 4, kNoGradient = 8 };
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  /// One step each: which of them are NaN, or missing.
  std::vector<int64_t> Judge(const std::vector<int>& steps) {
    for (const int nan : steps) AddStep(nan);
    TDBG_EXPECT_OK(engine_->Finish(run_, JobEnd::kCompleted, 1));
    return Since();
  }
  StepInfo& AddStep(int nan) {
    last_loss_ /= 2;
    std::map<TensorIndex, double> values = {{loss_, nan & kLoss ? kNan : last_loss_},
                                            {other_, nan & kOther ? kNan : 1}};
    if (!(nan & kNoGradient)) values[gradient_] = nan & kGradient ? kNan : 1;
    return run_.Step(values);
  }
  std::vector<int64_t> Since() const {
    std::vector<int64_t> since;
    for (const RuleStatus& status : engine_->statuses()) since.push_back(status.nonfinite_since);
    return since;
  }

  double last_loss_ = 1;  // it decreases: the rule has nothing else to find
  MemorySource run_;
  const TensorIndex gradient_ = run_.Tensor("gradient/a", "gradients");
  const TensorIndex loss_ = run_.Tensor("loss", "losses");
  const TensorIndex other_ = run_.Tensor("other", "others");
  const std::unique_ptr<Engine> engine_ =
      MakeEngine({Config("ExplodingTensor", {{"collection_names", "gradients"}}),
                  Config("LossNotDecreasing", {{"interval", "1"}, {"num_steps", "1"}})});
};

TEST_F(EpisodeTest, ANanThatIsThereAtEveryStepIsOneEpisode) {
  EXPECT_THAT(Judge({kAll, kGradient, kGradient, kGradient | kLoss, kLoss}), ElementsAre(1, 1));
}
TEST_F(EpisodeTest, ItGoesOnInTensorsThatNoRuleLooksAt) {
  EXPECT_THAT(Judge({kAll, kGradient, kGradient | kOther, kOther, kLoss}), ElementsAre(1, 1));
}
TEST_F(EpisodeTest, AStepAtWhichTheTensorWasNotRecordedIsNoRecovery) {
  EXPECT_THAT(Judge({kAll, kGradient, kNoGradient, kNoGradient, kNoGradient | kLoss}), ElementsAre(1, 1));
}
TEST_F(EpisodeTest, OnceAllAreFiniteAgainTheNextHasItsOwnCause) {
  EXPECT_THAT(Judge({kAll, kGradient, kAll, kLoss}), ElementsAre(1, 3));
  EXPECT_THAT(CausesOf(engine_->statuses()), ElementsAre(-1, -1));
}
TEST_F(EpisodeTest, AnEpisodeBeginsWhereNobodyFoundIt) {
  EXPECT_THAT(Judge({kAll, kGradient, kAll, kOther, kOther, kOther | kLoss}), ElementsAre(1, 3));
}
TEST_F(EpisodeTest, ASkippedUpdateIsNoRecovery) {
  AddStep(kLoss);
  AddStep(kAll).skipped = true;
  EXPECT_THAT(Judge({kGradient}), ElementsAre(0, 0));
}
TEST_F(EpisodeTest, NorIsItNonfinite) {
  AddStep(kLoss);
  AddStep(kAll);
  AddStep(kOther).skipped = true;
  EXPECT_THAT(Judge({kGradient}), ElementsAre(3, 0));
}
TEST_F(EpisodeTest, AnotherAttemptIsLookedAtAfresh) {
  for (const int nan : {kAll + 0, kGradient + 0, kAll + 0, kLoss + 0}) AddStep(nan);
  TDBG_EXPECT_OK(engine_->Advance(run_, 1));
  EXPECT_THAT(Since(), ElementsAre(1, 3));
  run_.DropSteps();
  run_.base = 2;
  ++run_.generation;
  EXPECT_THAT(Judge({kAll, kGradient, kGradient, kLoss}), ElementsAre(1, 1));
  run_.DropSteps();
  run_.base = 0;
  ++run_.generation;
  EXPECT_THAT(Judge({kAll, kAll, kLoss, kAll, kGradient}), ElementsAre(4, 2));
}

TEST(EngineTest, NoVerdictComesOfAFileThatIsCutShortWhileItIsRead) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch / "segment";
  EXPECT_EXIT(
      {
        base::SurviveTornMappings();
        base::Spill(path, std::string(100, 'x'));
        const auto mapping = base::ReadOnlyMapping::Open(path);
        MemorySource run;
        const TensorIndex a = run.Tensor("gradient/a", "gradients");
        const auto engine = MakeEngine({Config("VanishingGradient")});
        run.Step({{a, 1}});
        if (!engine->Advance(run, 1)->empty() || ::truncate(path.c_str(), 0) != 0) ::_exit(1);
        // The zeros that a rule sees then look like a gradient that vanished.
        run.Step({{a, static_cast<double>(static_cast<char>((*mapping)->bytes()[0]))}});
        TDBG_EXPECT_OK(engine->Advance(run, 2));
        std::fprintf(stderr, "%s: %s", std::string(RuleStateName(engine->statuses()[0].state)).c_str(),
                     engine->statuses()[0].details.c_str());
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^Error: .*cut short.*/segment");
}

class BrokenRule : public Rule {
 public:
  explicit BrokenRule(bool throws) : throws_(throws) {}
  plan::Need Needs() const override { return {}; }
  Result<Judged> Invoke(const StepContext&, std::vector<Finding>*) override {
    if (throws_) throw std::runtime_error("division by zero");
    return DataLoss("a histogram cannot be read");
  }
  std::string WouldHaveNeeded() const override { return ""; }

 private:
  bool throws_;
};

TEST(EngineTest, ABrokenRuleIsItsOwnErrorOnly) {
  RuleRegistry registry;
  for (const bool throws : {false, true}) {
    RuleInfo info;
    info.class_name = throws ? "Throws" : "Fails";
    info.snake_name = throws ? "throws" : "fails";
    registry.Add(info, [throws](const Parameters&) -> Result<std::unique_ptr<Rule>> {
      return std::unique_ptr<Rule>(std::make_unique<BrokenRule>(throws));
    });
  }
  MemorySource run;
  run.Step({});
  const auto engine = MakeEngine({Config("throws"), Config("fails")}, registry);
  EXPECT_THAT(*engine->Advance(run, 1), ElementsAre(0, 1));
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kError);
  EXPECT_THAT(engine->statuses()[0].details, HasSubstr("division by zero"));
  EXPECT_EQ(engine->statuses()[1].state, RuleState::kError);
  EXPECT_THAT(engine->statuses()[1].details, HasSubstr("a histogram cannot be read"));
}

// It hands steps over to nobody: its answers would be waited for until the end of time.
class OwingRule : public BrokenRule {
 public:
  OwingRule() : BrokenRule(false) {}
  Result<Judged> Invoke(const StepContext&, std::vector<Finding>*) override { return Judged::kPending; }
};

TEST(EngineTest, OnlyAnAsyncRuleMayAnswerLater) {
  RuleRegistry registry;
  RuleInfo info;
  info.class_name = "Owing";
  info.snake_name = "owing";
  registry.Add(info, [](const Parameters&) -> Result<std::unique_ptr<Rule>> {
    return std::unique_ptr<Rule>(std::make_unique<OwingRule>());
  });
  MemorySource run;
  run.Step({});
  const auto engine = MakeEngine({Config("owing")}, registry);
  EXPECT_THAT(*engine->Advance(run, 1), ElementsAre(0));
  EXPECT_FALSE(engine->owed_answers());
  EXPECT_EQ(engine->statuses()[0].state, RuleState::kError);
  EXPECT_THAT(engine->statuses()[0].details, HasSubstr("owes an answer"));
}

TEST(EngineTest, TwoRulesOfOneClassNeedTwoNames) {
  const auto same = Engine::Create({Config("VanishingGradient"), Config("vanishing_gradient")});
  ASSERT_FALSE(same.ok());
  EXPECT_EQ(same.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(same.status().message(), HasSubstr("two rules are called VanishingGradient"));
  EXPECT_THAT(same.status().message(), HasSubstr("--rule"));
  EXPECT_TRUE(Engine::Create({Config("VanishingGradient"), Config("VanishingGradient", {}, "strict")}).ok());
}

TEST(EngineTest, NeedsAreNamedAfterTheRule) {
  const auto engine = MakeEngine(
      {Config("VanishingGradient", {}, "vg"), Config("ExplodingTensor", {{"tensor_regex", "fc, conv"}})});
  const auto needs = engine->Needs();
  EXPECT_EQ(needs[0].who, "vg");
  EXPECT_THAT(needs[0].collections, ElementsAre("gradients"));
  EXPECT_FALSE(needs[0].raw);
  EXPECT_THAT(needs[1].collections, IsEmpty());
  EXPECT_THAT(needs[1].tensor_regex, ElementsAre("fc", "conv"));
}

TEST(DetailsTest, ManyFindingsFitAndSayHowManyDidNot) {
  std::vector<Finding> findings;
  for (int i = 0; i < 500; ++i) {
    Finding finding;
    finding.global_step = 7;
    finding.tensor = "gradient/layer." + std::to_string(i) + ".weight";
    finding.worker = "worker_0";
    finding.measure = "mean_abs";
    finding.comparison = "<";
    finding.threshold = 1e-7;
    findings.push_back(finding);
  }
  const std::string details = HitDetails("VanishingGradient", findings);
  EXPECT_TRUE(
      details.starts_with("RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step 7 "
                          "resulted in the condition being met\n"));
  EXPECT_LE(details.size(), kMaxDetails);
  EXPECT_GT(details.size(), kMaxDetails - 100);
  const auto lines = std::count(details.begin(), details.end(), '\n');
  EXPECT_THAT(details, HasSubstr("and " + std::to_string(500 - (lines - 2)) + " more\n"));
}

TEST(DetailsTest, SayHowManyAreMissingWhateverTheLengthOfTheNames) {
  for (size_t length = 1; length < 120; ++length) {
    Finding finding;
    finding.tensor = std::string(length, 'x');
    finding.worker = "worker_0";
    const std::string details = HitDetails("VanishingGradient", std::vector<Finding>(500, finding));
    EXPECT_TRUE(details.ends_with(" more\n")) << length;
    EXPECT_LE(details.size(), kMaxDetails);
  }
}

TEST(DetailsTest, AreCutBetweenCharacters) {
  std::string text = "x";
  while (text.size() < 2000) text += "\u00e9";
  const std::string cut = CutDetails(text);
  EXPECT_EQ(cut.size(), 1023u);
  EXPECT_EQ(cut.substr(1021), "\u00e9");
}

TEST(RegistryTest, EveryBuiltinRuleSaysWhatItIs) {
  for (const RuleInfo* info : BuiltinRules().All()) {
    EXPECT_FALSE(info->summary.empty()) << info->class_name;
    EXPECT_FALSE(info->scope.empty()) << info->class_name;
    for (const ParameterSpec& spec : info->parameters) {
      EXPECT_FALSE(spec.help.empty()) << info->class_name << "." << spec.name;
      if (spec.default_value.empty()) continue;
      EXPECT_TRUE(Parameters::Parse(*info, {{spec.name, spec.default_value}}).ok())
          << info->class_name << "." << spec.name << ": its default is refused";
    }
  }
  const auto unknown = BuiltinRules().Find("exploding_tensors");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), HasSubstr("did you mean exploding_tensor?"));
  EXPECT_THAT(BuiltinRules().Find("ProfilerReport").status().message(), HasSubstr("SageMaker's profiler"));
  EXPECT_THAT(BuiltinRules().All(), Not(IsEmpty()));
}

}  // namespace
}  // namespace tdbg::rules
