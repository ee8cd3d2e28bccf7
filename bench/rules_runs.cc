// Runs for bench/rules.py, and the time of reading one.
//
//   rules_runs write DIRECTORY TENSORS STEPS [RATE]   statistics of TENSORS gradients and a loss; RATE steps
//   a
//                                                     second
//   rules_runs train DIRECTORY TENSORS STEPS [RATE]   half of them weights, which an optimizer moves, with
//   the
//                                                     context that the profile reads
//   rules_runs read DIRECTORY                         seconds to open a run and to read every statistic once
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

// What PyTorch's adaptor says of a model once.
void PutTopics(Run& run, int weights) {
  std::string names;
  for (int i = 0; i < weights; ++i)
    names += (i ? ", \"Net_layer" : "\"Net_layer") + std::to_string(i) + ".weight\"";
  run.PutContext("optimizer/SGD", R"({"class": "SGD", "groups": [{"parameters": [)" + names +
                                      R"(], "options": {"momentum": 0.9, "weight_decay": 0}}]})");
  run.PutContext("parameters", R"({"in_no_optimizer": [], "frozen": []})");
  run.PutContext("batch", R"({"dtype": "float32", "shape": [64, 32]})");
}

int Write(const std::string& directory, int tensors, int steps, double rate, bool trains) {
  tdbg::plan::Plan plan = tdbg::plan::Plan::Default();
  plan.context = trains;
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
    const bool weight = trains && i % 2 == 0;
    const std::string name = "Net_layer" + std::to_string(trains ? i / 2 : i) + ".weight";
    tdbg::TensorSpec spec{.name = weight ? name : "gradient/" + name, .kind = weight ? "weight" : "gradient"};
    spec.module_kind = "linear";
    spec.dtype = DType::kFloat32;
    spec.shape = trains ? std::vector<int64_t>{4, 4} : std::vector<int64_t>{kElements};
    ids.push_back(run->Define(std::move(spec)));
    data.push_back(values[static_cast<size_t>(i)].data());
  }
  float loss = 10;
  ids.push_back(run->Define({.name = "CrossEntropyLoss_output_0", .kind = "loss", .dtype = DType::kFloat32}));
  data.push_back(&loss);
  std::vector<Run::Id> series;
  for (const char* const name :
       {"lr/SGD/0", "optimizer_step/SGD", "gradients_absent", "batch_size", "batch_fingerprint"})
    if (trains) series.push_back(run->Define({.name = std::string("context/") + name, .kind = "scalar"}));
  const Clock::time_point begin = Clock::now();
  for (int step = 0; step < steps; ++step) {
    loss = 10 - 9 * static_cast<float>(step) / static_cast<float>(steps);
    for (int i = 0; trains && i < tensors; i += 2)
      values[static_cast<size_t>(i)][0] += 1e-3F * normal(random);
    if (run->BeginStep(tdbg::ModeKey::kTrain)) {
      if (trains && step == 0) PutTopics(*run, tensors / 2);
      run->PutMany(ids, data);
      const double of_step[] = {0.01, 1.0 * step, 0, 64, 1.0 * step};
      for (size_t i = 0; i < series.size(); ++i) run->PutScalar(series[i], of_step[i]);
    }
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
  const bool trains = argc >= 5 && std::strcmp(argv[1], "train") == 0;
  if (trains || (argc >= 5 && std::strcmp(argv[1], "write") == 0))
    return Write(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), argc > 5 ? std::atof(argv[5]) : 0, trains);
  if (argc == 3 && std::strcmp(argv[1], "read") == 0) return Read(argv[2]);
  std::fprintf(stderr, "rules_runs write|train DIRECTORY TENSORS STEPS [RATE] | read DIRECTORY\n");
  return 2;
}
