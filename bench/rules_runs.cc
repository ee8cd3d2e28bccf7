// Runs for bench/rules.py, and the time of reading one.
//
//   rules_runs write DIRECTORY TENSORS STEPS [RATE]   statistics of TENSORS gradients and a loss; RATE steps
//   a second rules_runs read DIRECTORY                         seconds to open a run and to read every
//   statistic once
//
// Values are small and never a hit of a summary rule, so that rules look at every step.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plan/plan.h"
#include "tdbg/run.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace {

using Clock = std::chrono::steady_clock;
using tdbg::DType;
using tdbg::Run;

int Fail(const tdbg::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

int Write(const std::string& directory, int tensors, int steps, double rate) {
  tdbg::plan::Plan plan = tdbg::plan::Plan::Default();
  plan.context = false;
  auto opened = Run::Open({.directory = directory, .plan_json = plan.ToJson()});
  if (!opened.ok()) return Fail(opened.status());
  const auto run = *std::move(opened);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  constexpr int64_t kElements = 16;
  std::vector<std::vector<float>> values(static_cast<size_t>(tensors), std::vector<float>(kElements));
  std::vector<Run::Id> ids;
  std::vector<const void*> data;
  for (int i = 0; i < tensors; ++i) {
    for (float& value : values[static_cast<size_t>(i)]) value = normal(random);
    ids.push_back(run->Define({.name = "gradient/Net_layer" + std::to_string(i) + ".weight",
                               .kind = "gradient",
                               .dtype = DType::kFloat32,
                               .shape = {kElements}}));
    data.push_back(values[static_cast<size_t>(i)].data());
  }
  float loss = 10;
  ids.push_back(run->Define({.name = "CrossEntropyLoss_output_0", .kind = "loss", .dtype = DType::kFloat32}));
  data.push_back(&loss);
  const Clock::time_point begin = Clock::now();
  for (int step = 0; step < steps; ++step) {
    loss = 10 - 9 * static_cast<float>(step) / static_cast<float>(steps);
    if (run->BeginStep(tdbg::ModeKey::kTrain)) run->PutMany(ids, data);
    run->EndStep();
    if (rate > 0) std::this_thread::sleep_until(begin + std::chrono::duration<double>((step + 1) / rate));
  }
  return 0;
}

int Read(const std::string& directory) {
  const Clock::time_point begin = Clock::now();
  auto trial = tdbg::Trial::Open(directory);
  if (!trial.ok()) return Fail(trial.status());
  if (const auto refreshed = (*trial)->Refresh(); !refreshed.ok()) return Fail(refreshed.status());
  const tdbg::TrialAccess access(**trial);
  double sum = 0;
  uint64_t rows = 0, count = 0;
  for (size_t step = 0; step < access.complete_count(); ++step) {
    for (const auto& span : access.RowSpansOf(step)) {
      rows += span.end - span.begin;
      const auto& batch = *span.batch;
      for (uint32_t i = span.begin; i < span.end; ++i) {
        sum += batch.mean[i] + batch.variance[i] + batch.min[i] + batch.max[i] + batch.l1[i] + batch.l2[i] +
               batch.m3[i] + batch.m4[i] + batch.abs_min[i] + batch.abs_max[i];
        count += batch.tensor[i] + batch.count[i] + batch.nan_count[i] + batch.pos_inf_count[i] +
                 batch.neg_inf_count[i] + batch.zero_count[i] + batch.sub[i] + batch.point[i];
      }
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("{\"seconds\": %.6f, \"steps\": %zu, \"rows\": %llu, \"checksum\": %.17g}\n", seconds,
              access.complete_count(), static_cast<unsigned long long>(rows),
              sum + static_cast<double>(count));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 5 && std::strcmp(argv[1], "write") == 0)
    return Write(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), argc > 5 ? std::atof(argv[5]) : 0);
  if (argc == 3 && std::strcmp(argv[1], "read") == 0) return Read(argv[2]);
  std::fprintf(stderr, "rules_runs write DIRECTORY TENSORS STEPS [RATE] | read DIRECTORY\n");
  return 2;
}
