// Question:  what does a step of a C++ training loop cost with the default capture?
// Workload:  200 tensors of 64 KiB (float32, normal values): statistics of all at every step, histograms of
// all at every tenth. Baseline:  the same loop reading each tensor once, by the best of several plain read
// loops, in the same round.
//
// A training's own work lies between two looks at a weight, so a buffer that no cache holds is walked before
// every pass: the tensors come from memory. Printed beside it: the same with everything in the caches, where
// reading is several times faster and the arithmetic of the statistics is all that is left.
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
#include <utility>
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

constexpr size_t kBeyondCaches = size_t{256} << 20;

/// Seconds of one pass, after `before`.
template <typename Before, typename F>
double Seconds(Before&& before, F&& f) {
  before();
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Middle(std::vector<double> v, double share = 0.5) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(share * static_cast<double>(v.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 40;
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
  const std::vector<uint64_t> others(kBeyondCaches / sizeof(uint64_t), 1);
  struct Series {
    std::vector<double> ratios, reads, steps;
  };
  const auto round = [&](Series* into, const auto& before) {
    double read = 1e9;
    for (const auto reader : readers) {
      read = std::min(read, Seconds(before, [&] {
                        for (const void* tensor : data)
                          sink = sink ^ reader(static_cast<const std::byte*>(tensor), kBytes);
                      }));
    }
    const double taken = Seconds(before, step);
    into->reads.push_back(read);
    into->steps.push_back(taken);
    into->ratios.push_back(taken / read);
  };
  Series memory, caches;
  step();
  for (int i = 0; i < rounds; ++i) {
    round(&memory,
          [&] { sink = sink ^ Read4(reinterpret_cast<const std::byte*>(others.data()), kBeyondCaches); });
    round(&caches, [&] {
      for (const void* tensor : data) sink = sink ^ Read4(static_cast<const std::byte*>(tensor), kBytes);
    });
  }
  const Run::Counters counters = run->counters();
  const bool complete = run->dropped().empty() && counters.summaries == counters.steps * kTensors;
  run->End("completed");
  for (const auto& [where, series] : {std::pair("memory", &memory), std::pair("the caches", &caches)}) {
    std::printf("200 tensors of 64 KiB in %s: reading %.0f us, a step %.0f us: %.2f times (%.2f-%.2f)\n",
                where, 1e6 * Middle(series->reads), 1e6 * Middle(series->steps), Middle(series->ratios),
                Middle(series->ratios, 0.1), Middle(series->ratios, 0.9));
  }
  if (!complete) std::printf("SOMETHING WAS LOST: does not count\n");
  if (!json.empty()) {
    if (std::FILE* file = std::fopen(json.c_str(), "w")) {
      std::fprintf(file, "{\"ratio\": %.4f, \"in_caches\": %.4f, \"rounds\": %d, \"complete\": %s}\n",
                   Middle(memory.ratios), Middle(caches.ratios), rounds, complete ? "true" : "false");
      std::fclose(file);
    }
  }
  std::filesystem::remove_all(directory);
  return 0;
}
