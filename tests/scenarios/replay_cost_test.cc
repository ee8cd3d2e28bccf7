// What replaying a rule costs: VanishingGradient over 100 tensors x 10,000 steps, against reading the same
// columns.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/clock.h"
#include "base/testing.h"
#include "run_writer.h"
#include "trial/access.h"

namespace tdbg::scenarios {
namespace {

constexpr int kTensors = 100, kSteps = 10'000;

double MillisSince(int64_t begin) {
  return static_cast<double>(base::SystemClock().MonotonicNanos() - begin) / 1e6;
}

TEST(ReplayCostTest, IsAboutThatOfReadingTheColumns) {
  base::ScratchDirectory scratch;
  Scenario scenario;
  Step step;
  for (int i = 0; i < kTensors; ++i) {
    Tensor tensor;
    tensor.name = "gradient/layer." + std::to_string(i) + ".weight";
    tensor.kind = "gradient";
    tensor.collections = {"gradients"};
    scenario.tensors.push_back(tensor);
    Assignment assignment;
    assignment.tensor = tensor.name;
    assignment.values = {{1, 0}, {-1, 0}};
    step.assignments.push_back(assignment);
  }
  auto writer = RunWriter::Create(scratch / "run", scenario);
  TDBG_ASSERT_OK(writer);
  for (int s = 0; s < kSteps; ++s) {
    step.global_step = step.mode_step = s;
    TDBG_ASSERT_OK((*writer)->Write(0, step));
  }
  (*writer)->End();

  auto trial = Trial::Open(scratch / "run");
  TDBG_ASSERT_OK(trial);
  TDBG_ASSERT_OK((*trial)->Refresh());
  ASSERT_TRUE((*trial)->dropped().empty());
  const TrialAccess access(**trial);
  // The first pass brings the pages in, for both.
  double read_millis = 1e9, judge_millis = 1e9;
  for (int round = 0; round < 3; ++round) {
    double sum = 0;
    int64_t begin = base::SystemClock().MonotonicNanos();
    for (size_t s = 0; s < access.complete_count(); ++s) {
      for (const auto& span : access.RowSpansOf(s)) {
        for (uint32_t i = span.begin; i < span.end; ++i) {
          sum += span.batch->l1[i] +
                 static_cast<double>(span.batch->count[i] + span.batch->nan_count[i] +
                                     span.batch->pos_inf_count[i] + span.batch->neg_inf_count[i] +
                                     span.batch->tensor[i] + span.batch->sub[i]);
        }
      }
    }
    read_millis = std::min(read_millis, MillisSince(begin));
    ASSERT_GT(sum, 0);
    plan::RuleConfig config;
    config.rule = "VanishingGradient";
    auto engine = rules::Engine::Create({config});
    TDBG_ASSERT_OK(engine);
    begin = base::SystemClock().MonotonicNanos();
    TDBG_ASSERT_OK((*engine)->Advance(**trial, 1));
    judge_millis = std::min(judge_millis, MillisSince(begin));
    ASSERT_EQ((*engine)->statuses()[0].steps_judged, kSteps);
  }
  std::printf("a million rows: read %.1f ms, judged %.1f ms\n", read_millis, judge_millis);
  // Generous: a shared machine and sanitizers are no reason for a red test; string work per row would be 50x.
  EXPECT_LT(judge_millis, 10 * read_millis + 50);
}

}  // namespace
}  // namespace tdbg::scenarios
