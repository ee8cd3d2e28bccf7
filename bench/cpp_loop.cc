// Question:  what does a step of a C++ training loop cost with the default capture?
// Workload:  200 tensors of 64 KiB (float32, normal values): statistics and histograms of all, every step.
// Baseline:  the same loop reading each tensor once, by the best of several plain read loops, in the same
// round.
//
//   cpp_loop [--rounds N] [--json FILE] [DIRECTORY]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "read_loops.h"
#include "tdbg/run.h"

namespace {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

constexpr int kTensors = 200;
constexpr int64_t kElements = 16384;
constexpr size_t kBytes = kElements * sizeof(float);

// A drain thread that has not caught up shares the core with what is timed: rounds are apart.
constexpr int kStepsInARound = 4;

template <typename F>
double Seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kStepsInARound; ++i) f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kStepsInARound;
}

double Middle(std::vector<double> v, double share = 0.5) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(share * static_cast<double>(v.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 60;
  std::string json, directory = std::filesystem::temp_directory_path() / "tdbg-cpp-loop";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
      rounds = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      directory = argv[i];
    }
  }
  std::filesystem::remove_all(directory);
  auto opened = Run::Open({.directory = directory, .adaptor = "bench"});
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 1;
  }
  const std::unique_ptr<Run> run = *std::move(opened);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> tensors(kTensors, std::vector<float>(kElements));
  std::vector<Run::Id> ids;
  std::vector<const void*> data;
  for (std::vector<float>& tensor : tensors) {
    for (float& x : tensor) x = normal(random);
    data.push_back(tensor.data());
    ids.push_back(run->Define({.name = "weight_" + std::to_string(ids.size()),
                               .kind = "weight",
                               .dtype = DType::kFloat32,
                               .shape = {128, kElements / 128}}));
  }
  uint64_t (*const readers[])(const std::byte*, size_t) = {Read1, Read4, Read8, ReadAhead2K, ReadAhead8K};
  volatile uint64_t sink = 0;
  const auto step = [&] {
    if (run->BeginStep(ModeKey::kTrain)) run->PutMany(ids, data);
    run->EndStep();
  };
  step();
  std::vector<double> ratios, reads, steps;
  for (int round = 0; round < rounds; ++round) {
    double read = 1e9;
    for (const auto reader : readers) {
      read = std::min(read, Seconds([&] {
                        for (const void* tensor : data)
                          sink = sink ^ reader(static_cast<const std::byte*>(tensor), kBytes);
                      }));
    }
    const double taken = Seconds(step);
    reads.push_back(read);
    steps.push_back(taken);
    ratios.push_back(taken / read);
  }
  const Run::Counters counters = run->counters();
  const bool complete = run->losses().empty() && counters.summaries == counters.steps * kTensors;
  run->End("completed");
  const double ratio = Middle(ratios);
  std::printf("200 tensors of 64 KiB: reading %.0f us, a step %.0f us: %.2f times (%.2f-%.2f), %s\n",
              1e6 * Middle(reads), 1e6 * Middle(steps), ratio, Middle(ratios, 0.1), Middle(ratios, 0.9),
              complete ? "nothing lost" : "SOMETHING LOST");
  if (!json.empty()) {
    if (std::FILE* file = std::fopen(json.c_str(), "w")) {
      std::fprintf(
          file, "{\"ratio\": %.4f, \"read_us\": %.1f, \"step_us\": %.1f, \"rounds\": %d, \"complete\": %s}\n",
          ratio, 1e6 * Middle(reads), 1e6 * Middle(steps), rounds, complete ? "true" : "false");
      std::fclose(file);
    }
  }
  std::filesystem::remove_all(directory);
  return 0;
}
