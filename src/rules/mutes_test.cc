#include "rules/mutes.h"

#include <gtest/gtest.h>

#include "rules/incidents.h"
#include "rules/testing.h"

namespace tdbg::rules {
namespace {

struct At {
  const char* detector;
  int64_t step;
  const char* tensor;
};

RuleStatus Found(std::initializer_list<At> findings) {
  RuleStatus status;
  status.name = status.rule = "Profile";
  status.state = RuleState::kIssuesFound;
  for (const At& at : findings) {
    Finding finding;
    finding.detector = at.detector;
    finding.global_step = at.step;
    finding.tensor = at.tensor;
    finding.worker = "worker_0";
    finding.text = "a sentence";
    status.findings.push_back(finding);
  }
  return status;
}

std::vector<Mute> Muting(std::initializer_list<Fingerprint> what) {
  Mute mute;
  mute.because = "it is meant";
  mute.what = what;
  return {mute};
}

// "no_gradient>no_improvement (dead_units)": those in brackets are muted.
std::string IdsAndMutes(const std::vector<RuleStatus>& statuses) {
  std::string text;
  for (const Incident& incident : IncidentsOf(statuses)) {
    std::string one = incident.id;
    for (const Finding& finding : incident.consequences) one += ">" + finding.detector;
    text += (text.empty() ? "" : " ") + (incident.muted() ? "(" + one + ")" : one);
  }
  return text;
}

std::string Muted(const RuleStatus& status, std::initializer_list<Fingerprint> what) {
  std::vector<RuleStatus> statuses{status};
  ApplyMutes(Muting(what), /*goes_on=*/false, &statuses);
  return IdsAndMutes(statuses);
}

TEST(MutesTest, AMuteIsForOneDetectorInOneLayerWhateverTheTensorAndTheStep) {
  const RuleStatus status = Found({{"dead_units", 40, "gradient/Net_l1.weight"}});
  EXPECT_EQ(Muted(status, {{"dead_units", "Net_l1"}}), "(dead_units)");
  EXPECT_EQ(Muted(status, {{"dead_units", "Net_l2"}}), "dead_units");
  EXPECT_EQ(Muted(status, {{"zero_gradient", "Net_l1"}}), "dead_units");
  EXPECT_EQ(Muted(Found({{"loss_jump", 40, "loss"}}), {{"loss_jump", "loss"}}), "(loss_jump)");
  EXPECT_EQ(Muted(Found({{"rank_died", 40, ""}}), {{"rank_died", "worker_1"}}), "rank_died");
  EXPECT_EQ(Muted(Found({{"rate_cut", 40, "context/lr.0"}}), {{"rate_cut", "context/lr.1"}}), "rate_cut");
}

TEST(MutesTest, WhatIsMutedHidesNothingElse) {
  const RuleStatus status = Found({{"no_gradient", 9, "Net_l1.weight"},
                                   {"no_improvement", 199, "loss"},
                                   {"nonfinite", 300, "Net_l2.weight"}});
  EXPECT_EQ(Muted(status, {}), "no_gradient>no_improvement>nonfinite");
  EXPECT_EQ(Muted(status, {{"no_gradient", "Net_l1"}}), "no_improvement nonfinite (no_gradient)");
  EXPECT_EQ(Muted(status, {{"no_gradient", "Net_l1"}, {"no_improvement", "loss"}}),
            "nonfinite (no_gradient>no_improvement)");
  // Two of one detector, at one step and at two.
  EXPECT_EQ(Muted(Found({{"dead_units", 40, "Net_l1.weight"}, {"dead_units", 40, "Net_l2.weight"}}),
                  {{"dead_units", "Net_l1"}}),
            "dead_units (dead_units-2)");
  EXPECT_EQ(Muted(Found({{"dead_units", 40, "Net_l1.weight"}, {"dead_units", 60, "Net_l2.weight"}}),
                  {{"dead_units", "Net_l1"}}),
            "dead_units (dead_units-2)");
}

TEST(MutesTest, AStatusIsThatOfWhatIsNotMuted) {
  const RuleStatus status = Found({{"no_gradient", 9, "Net_l1.weight"}, {"validation_rises", 90, "loss"}});
  std::vector<RuleStatus> statuses{status};
  ApplyMutes(Muting({{"no_gradient", "Net_l1"}}), false, &statuses);
  EXPECT_EQ(statuses[0].state, RuleState::kIssuesFound);
  EXPECT_NE(statuses[0].details.find("at step 90"), std::string::npos) << statuses[0].details;
  ApplyMutes(Muting({{"no_gradient", "Net_l1"}, {"validation_rises", "loss"}}), false, &statuses);
  EXPECT_EQ(statuses[0].state, RuleState::kNoIssuesFound);
  EXPECT_EQ(statuses[0].findings.size(), 2u);
  EXPECT_NE(statuses[0].details.find("2 incidents are muted"), std::string::npos) << statuses[0].details;
  EXPECT_NE(statuses[0].details.find("it is meant"), std::string::npos);
  statuses = {status};
  ApplyMutes(Muting({{"no_gradient", "Net_l1"}, {"validation_rises", "loss"}}), true, &statuses);
  EXPECT_EQ(statuses[0].state, RuleState::kInProgress);
}

TEST(MutesTest, OtherRulesAreNotMuted) {
  RuleStatus status = Found({{"", 9, "Net_l1.weight"}});
  status.name = status.rule = "VanishingGradient";
  std::vector<RuleStatus> statuses{status};
  ApplyMutes(Muting({{"", "Net_l1"}, {"VanishingGradient", "Net_l1"}}), false, &statuses);
  EXPECT_EQ(statuses[0].state, RuleState::kIssuesFound);
  EXPECT_EQ(IdsAndMutes(statuses), "VanishingGradient");
}

TEST(MutesTest, MarkingLeavesTheStatusAsItWasRecorded) {
  RuleStatus status = Found({{"no_gradient", 9, "Net_l1.weight"}});
  MarkMuted(Muting({{"no_gradient", "Net_l1"}}), &status);
  EXPECT_EQ(status.state, RuleState::kIssuesFound);
  EXPECT_EQ(IdsAndMutes({status}), "(no_gradient)");
  MarkMuted({}, &status);
  EXPECT_EQ(IdsAndMutes({status}), "no_gradient");
}

}  // namespace
}  // namespace tdbg::rules
