// The instructions of a step in which nothing is due: the same for every model?
//
//   valgrind --tool=callgrind --toggle-collect='IdleSteps*' idle_steps STEPS TENSORS [DIRECTORY]
//
// Divide callgrind's "Collected" by STEPS, for 10 and for 10,000 tensors. The baseline is 0: without tdbg the
// loop is empty.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "plan/plan.h"
#include "tdbg/run.h"

__attribute__((noinline)) void IdleSteps(tdbg::Run* run, long steps) {
  for (long i = 0; i < steps; ++i) {
    if (run->BeginStep(tdbg::ModeKey::kTrain)) std::abort();
    run->EndStep();
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: idle_steps STEPS TENSORS [DIRECTORY]\n");
    return 2;
  }
  const std::string directory = argc > 3 ? argv[3] : "/tmp/tdbg-idle-steps";
  std::filesystem::remove_all(directory);
  // Off from step 1 on, so that the tensors are wanted and known.
  tdbg::plan::Plan plan = tdbg::plan::Plan::Default();
  plan.summaries_every = 1 << 30;
  plan.context = false;
  plan.journal_bytes = 8u << 20;
  auto run = tdbg::Run::Open({.directory = directory, .plan_json = plan.ToJson()});
  if (!run.ok()) {
    std::fprintf(stderr, "%s\n", run.status().ToString().c_str());
    return 1;
  }
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    (*run)->Define(
        {.name = "w" + std::to_string(i), .kind = "weight", .dtype = tdbg::DType::kFloat32, .shape = {64}});
  }
  (*run)->BeginStep(tdbg::ModeKey::kTrain);
  (*run)->EndStep();
  IdleSteps(run->get(), std::atol(argv[1]));
  (*run)->End("completed");
}
