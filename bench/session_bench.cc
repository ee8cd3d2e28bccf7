// What a step costs the training thread: tdbg::Run with a real journal, no framework.
//
//   session_bench [DIRECTORY]        nanoseconds, smallest and median of interleaved rounds
//
// Workloads: 2,400 tensors of 64 floats (a transformer's worth of small parameters: the cost per tensor), and
// the 16 parameters and gradients of a small CNN (the cost per byte). "empty" is the same loop with capture
// absent; "idle" has capture attached and nothing due. Data is random and fixed; the journal is pre-faulted,
// as in training.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tdbg/run.h"

namespace {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

std::unique_ptr<Run> Open(const std::string& directory, int64_t every) {
  tdbg::plan::Plan plan = tdbg::plan::Plan::Default();
  plan.summaries_every = every;
  plan.context = false;
  auto run = Run::Open({.directory = directory, .plan_json = plan.ToJson()});
  if (run.ok()) return *std::move(run);
  std::fprintf(stderr, "%s\n", run.status().ToString().c_str());
  std::exit(1);
}

struct Workload {
  std::vector<std::vector<float>> tensors;
  std::vector<Run::Id> ids;
  std::vector<const void*> data;

  Workload(Run* run, const std::string& prefix, const std::vector<int64_t>& sizes) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (const int64_t n : sizes) {
      std::vector<float> values(static_cast<size_t>(n));
      for (float& v : values) v = normal(random);
      tensors.push_back(std::move(values));
      data.push_back(tensors.back().data());
      ids.push_back(run->Define({.name = prefix + std::to_string(ids.size()),
                                 .kind = "weight",
                                 .dtype = DType::kFloat32,
                                 .shape = {n}}));
    }
  }
};

struct Timing {
  std::string name;
  std::function<void()> body;
  int repeat;
  std::vector<double> nanos = {};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "/tmp/tdbg-session-bench";
  std::filesystem::remove_all(directory);
  const auto run = Open(directory + "/busy", 1);
  const auto idle = Open(directory + "/idle", 0);
  Workload small(run.get(), "small", std::vector<int64_t>(2400, 64));
  std::vector<int64_t> cnn;
  for (const int64_t n : {288, 32, 18432, 64, 1179648, 128, 1280, 10}) cnn.insert(cnn.end(), {n, n});
  Workload net(run.get(), "cnn", cnn);
  const auto step = [](Run* r, const Workload& w) {
    if (r->BeginStep(ModeKey::kTrain)) r->PutMany(w.ids, w.data);
    r->EndStep();
  };
  volatile int64_t sink = 0;
  Timing timings[] = {
      {"empty step", [&] { sink = sink + 1; }, 10000},
      {"idle step, 2,400 tensors", [&] { step(idle.get(), small); }, 10000},
      {"step of 2,400 x 64 floats", [&] { step(run.get(), small); }, 1},
      {"step of a CNN's 16 tensors, 9.6 MB", [&] { step(run.get(), net); }, 1},
  };
  for (int round = 0; round < 200; ++round) {
    for (Timing& t : timings) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < t.repeat; ++i) t.body();
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
      t.nanos.push_back(took.count() / t.repeat);
    }
  }
  std::printf("%-38s %12s %12s\n", "", "min ns", "median ns");
  for (Timing& t : timings) {
    std::sort(t.nanos.begin(), t.nanos.end());
    std::printf("%-38s %12.1f %12.1f\n", t.name.c_str(), t.nanos.front(), t.nanos[t.nanos.size() / 2]);
  }
  for (const tdbg::DroppedInfo& drop : run->dropped()) {
    std::printf("lost: %s %s x %llu\n", drop.cause.c_str(), drop.kind.c_str(),
                static_cast<unsigned long long>(drop.count));
  }
  run->End("completed");
  idle->End("completed");
}
