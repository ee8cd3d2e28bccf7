#include "rules/incidents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "rules/details.h"
#include "rules/profile/catalogue.h"
#include "rules/testing.h"

namespace tdbg::rules {
namespace {

RuleStatus Found(std::initializer_list<std::pair<const char*, int64_t>> findings) {
  RuleStatus status;
  status.name = status.rule = "Profile";
  status.state = RuleState::kIssuesFound;
  for (const auto& [detector, step] : findings) {
    Finding finding;
    finding.detector = detector;
    finding.global_step = step;
    finding.tensor = "gradient/Net_l1.weight";
    finding.text = "a sentence";
    status.findings.push_back(finding);
  }
  return status;
}

std::string Ids(const RuleStatus& status) {
  std::string text;
  for (const Incident& incident : IncidentsOf({status})) {
    text += incident.id;
    for (const Finding& finding : incident.consequences) text += ">" + finding.detector;
    text += " ";
  }
  return text;
}

TEST(IncidentsTest, WhatIsWiredWronglyLeadsWhateverWasSeenFirst) {
  EXPECT_EQ(Ids(Found({{"update_too_small", 5}, {"no_gradient", 9}, {"no_improvement", 199}})),
            "no_gradient>update_too_small>no_improvement ");
  EXPECT_EQ(Ids(Found({{"first_loss", 0}, {"gradient_jump", 30}, {"init_scale", 0}, {"nonfinite", 31}})),
            "init_scale>first_loss>gradient_jump>nonfinite ");
}

TEST(IncidentsTest, WhatFollowsFromANanIsNoNewsAndWhatWasBeforeItIs) {
  EXPECT_EQ(Ids(Found({{"nonfinite", 40}, {"zero_gradient", 60}, {"validation_rises", 80}})),
            "nonfinite>zero_gradient>validation_rises ");
  EXPECT_EQ(Ids(Found({{"validation_rises", 20}, {"nonfinite", 40}})), "validation_rises nonfinite ");
  EXPECT_EQ(Ids(Found({{"gradient_jump", 39}, {"nonfinite", 40}})), "gradient_jump>nonfinite ");
}

TEST(IncidentsTest, WhatIsWiredWronglyOnlyLaterMayFollowFromSomething) {
  EXPECT_EQ(Ids(Found({{"clipped_away", 76}, {"weight_jump", 64}})), "weight_jump>clipped_away ");
  EXPECT_EQ(Ids(Found({{"loss_jump", 62}, {"same_batch", 64}})), "same_batch>loss_jump ");
}

TEST(IncidentsTest, UnitsThatDieAtOnceLeadTheLossThatIsBackThen) {
  EXPECT_EQ(Ids(Found({{"loss_back", 68}, {"zero_gradient", 73}, {"dead_units", 84}})),
            "zero_gradient>loss_back>dead_units ");
  EXPECT_EQ(Ids(Found({{"loss_back", 68}, {"zero_gradient", 74}})), "loss_back>zero_gradient ");
  EXPECT_EQ(Ids(Found({{"gradient_underflow", 9}, {"zero_gradient", 9}})),
            "gradient_underflow>zero_gradient ");
  EXPECT_EQ(Ids(Found({{"diverging", 40}, {"dead_units", 50}})), "diverging>dead_units ");
  EXPECT_EQ(Ids(Found({{"weights_replaced", 64}, {"loss_back", 68}, {"zero_gradient", 73}})),
            "weights_replaced>loss_back>zero_gradient ");
  EXPECT_EQ(Ids(Found({{"loss_back", 68}, {"gradient_jump", 70}})), "loss_back>gradient_jump ");
}

TEST(IncidentsTest, RanksWithRatesOfTheirOwnAreNoCopiesAnyMore) {
  EXPECT_EQ(Ids(Found({{"replica_differs", 41}, {"rates_differ", 41}})), "rates_differ>replica_differs ");
  EXPECT_EQ(Ids(Found({{"same_on_all_ranks", 9}, {"nonfinite", 40}})), "same_on_all_ranks nonfinite ");
}

TEST(IncidentsTest, WhatIsPredictedExplainsWhatIsNotLearnt) {
  EXPECT_EQ(Ids(Found({{"predicts_a_constant", 200}, {"no_improvement", 200}})),
            "predicts_a_constant>no_improvement ");
  EXPECT_EQ(Ids(Found({{"dead_units", 60}, {"predicts_a_constant", 200}})),
            "dead_units>predicts_a_constant ");
  EXPECT_EQ(Ids(Found({{"update_too_large", 0}, {"targets_unscaled", 31}, {"nonfinite", 31}})),
            "targets_unscaled>update_too_large>nonfinite ");
}

TEST(IncidentsTest, TwoIndependentFaultsAreTwo) {
  EXPECT_EQ(Ids(Found({{"no_gradient", 9}, {"no_optimizer", 9}, {"validation_rises", 90}})),
            "no_gradient no_optimizer validation_rises ");
}

TEST(IncidentsTest, AnotherRulesFindingIsOneOfItsOwn) {
  RuleStatus status = Found({{"", 7}});
  status.name = status.rule = "VanishingGradient";
  const auto incidents = IncidentsOf({Found({{"rate_cut", 12}}), status});
  ASSERT_EQ(incidents.size(), 2u);
  EXPECT_EQ(incidents[0].id, "rate_cut");
  EXPECT_EQ(incidents[1].title, "VanishingGradient found an issue");
  EXPECT_EQ(incidents[1].layer, "Net_l1");
  EXPECT_TRUE(incidents[1].detector.empty());
}

TEST(IncidentsTest, OfSeveralRulesTheEarliestFindingLeads) {
  std::vector<RuleStatus> statuses;
  for (const auto& [name, step] : {std::pair("A", 20), {"B", 7}, {"C", 7}}) {
    statuses.push_back(Found({{"", step}}));
    statuses.back().name = name;
  }
  const auto incidents = IncidentsOf(statuses);
  ASSERT_EQ(incidents.size(), 3u);
  EXPECT_EQ(incidents[0].id + incidents[1].id + incidents[2].id, "BCA");
}

TEST(IncidentsTest, AnUnknownDetectorIsLeftOut) {
  EXPECT_EQ(Ids(Found({{"of_a_later_version", 3}, {"rate_cut", 12}})), "rate_cut ");
  EXPECT_TRUE(IncidentsOf({Found({})}).empty());
}

TEST(IncidentsTest, EveryDetectorHasWordsForAPerson) {
  for (const profile::DetectorInfo& a : profile::Catalogue()) {
    EXPECT_FALSE(a.title.empty() || a.advice.empty()) << a.id;
    EXPECT_EQ(profile::Find(a.id), &a);
  }
}

// What each status follows from, by a look at all pairs.
std::vector<int> CausesByPairs(const std::vector<RuleStatus>& statuses) {
  const auto step = [](const RuleStatus& status) { return status.findings.front().global_step; };
  const auto one_episode = [&](const RuleStatus& a, const RuleStatus& b) {
    if (a.nonfinite_since >= 0 && b.nonfinite_since >= 0) return a.nonfinite_since == b.nonfinite_since;
    return step(a) == step(b);
  };
  const auto tells_more = [&](const RuleStatus& a, const RuleStatus& b) {
    if (step(a) != step(b)) return step(a) < step(b);
    return a.rule == "ExplodingTensor" && b.rule != "ExplodingTensor";
  };
  std::vector<int> causes(statuses.size(), -1);
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!FollowsNonfinite(statuses[i]) || statuses[i].rule == "ExplodingTensor") continue;
    const bool itself = FoundNonfinite(statuses[i]);
    int cause = itself ? static_cast<int>(i) : -1;
    for (size_t other = 0; other < statuses.size(); ++other) {
      if (!FoundNonfinite(statuses[other]) || !one_episode(statuses[i], statuses[other])) continue;
      if (!itself && step(statuses[other]) > step(statuses[i])) continue;
      const auto at = static_cast<size_t>(cause);
      if (cause < 0 || tells_more(statuses[other], statuses[at]) ||
          (other < at && !tells_more(statuses[at], statuses[other])))
        cause = static_cast<int>(other);
    }
    if (cause != static_cast<int>(i)) causes[i] = cause;
  }
  return causes;
}

TEST(CausesTest, AreWhatALookAtAllPairsFinds) {
  std::mt19937 random(7);
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<RuleStatus> statuses(static_cast<size_t>(1 + one_of(12)));
    for (RuleStatus& status : statuses) {
      status.rule = one_of(3) == 0 ? "ExplodingTensor" : "Other";
      status.state = RuleState::kIssuesFound;
      Finding finding;
      finding.global_step = one_of(4);
      if (one_of(2) == 0) finding.value = std::numeric_limits<double>::quiet_NaN();
      if (one_of(6) != 0) status.findings.push_back(finding);
      if (one_of(2) == 0) status.nonfinite_since = one_of(3);
    }
    const std::vector<int> causes = CausesOf(statuses);
    EXPECT_EQ(causes, CausesByPairs(statuses)) << round;
    found += static_cast<int>(std::ranges::count_if(causes, [](int cause) { return cause >= 0; }));
  }
  EXPECT_GT(found, 100);
}

TEST(ProfileTest, GoesOnAfterAFindingAndKeepsItsState) {
  MemorySource source;
  const TensorIndex weight = source.Tensor("Net_l1.weight", "weights");
  for (int step = 0; step < 3; ++step) source.Step({{weight, 1.0}});
  source.Step({{weight, std::nan("")}});
  for (int step = 0; step < 60; ++step) source.Step({{weight, 1.0}});
  source.Step({{weight, std::nan("")}});
  plan::RuleConfig config;
  config.rule = "profile";
  auto engine = Engine::Create({config});
  ASSERT_TRUE(engine.ok());
  const auto changed = (*engine)->Advance(source, 1);
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(changed->size(), 2u);
  EXPECT_FALSE((*engine)->decided()) << "there may be more";
  ASSERT_TRUE((*engine)->Finish(source, JobEnd::kCompleted, 2).ok());
  EXPECT_TRUE((*engine)->decided());
  const RuleStatus& status = (*engine)->statuses().front();
  EXPECT_EQ(status.state, RuleState::kIssuesFound);
  ASSERT_EQ(status.findings.size(), 2u);
  EXPECT_EQ(status.findings[0].global_step, 3);
  EXPECT_EQ(status.findings[1].global_step, 64);
  EXPECT_EQ(status.steps_judged, 65);

  // A later attempt takes the steps over: what it found is judged again.
  source.generation = 1;
  source.base = 0;
  source.DropSteps();
  source.Step({{weight, 1.0}});
  ASSERT_TRUE((*engine)->Finish(source, JobEnd::kCompleted, 3).ok());
  EXPECT_EQ((*engine)->statuses().front().state, RuleState::kNoIssuesFound);
  EXPECT_TRUE((*engine)->statuses().front().findings.empty());
}

}  // namespace
}  // namespace tdbg::rules
