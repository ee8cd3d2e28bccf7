// Question:  how long does a registry of jobs take to answer, once it holds many?
// Workload:  JOBS jobs (default 10,000), each with six transitions and two attempts, environment and flags as
//            of a real one (2 KB), in a file on the disk that is given. `describe` finds one of them by its
//            name, with its transitions and attempts, as `tdbg jobs JOB` does; `list` the latest 100.
// Baseline:  the bars, p99 of 10 ms and 50 ms.
//
//   registry_bench DIRECTORY [JOBS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "jobs/registry.h"

namespace {

using tdbg::jobs::JobPhase;
using tdbg::jobs::Registry;

template <typename F>
double P99Millis(int rounds, F&& f) {
  std::vector<double> millis;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f(i);
    millis.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(millis.begin(), millis.end());
  return millis[millis.size() * 99 / 100];
}

void OrExit(const tdbg::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "registry_bench: %s\n", status.message().c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: registry_bench DIRECTORY [JOBS]\n");
    return 2;
  }
  const int jobs = argc > 2 ? std::atoi(argv[2]) : 10'000;
  const std::string path = std::string(argv[1]) + "/registry_bench.sqlite";
  std::remove(path.c_str());
  auto registry = Registry::Open(path);
  OrExit(registry.status());
  for (int i = 0; i < jobs; ++i) {
    tdbg::jobs::JobRecord job;
    job.run_id = "run" + std::to_string(i);
    job.run_directory = "/somewhere/runs/train-" + std::to_string(i);
    job.working_directory = "/somewhere";
    job.command = {"python", "train.py", "--epochs", "10"};
    for (int n = 0; n < 40; ++n) job.environment["VARIABLE_" + std::to_string(n)] = std::string(30, 'v');
    OrExit(registry->Launch(job, "starting", 10 * i).status());
    OrExit(registry->Move(job.run_id, JobPhase::kTraining, "attempt 0", 10 * i + 1));
    OrExit(registry->Move(job.run_id, JobPhase::kInterrupted, "exit code 1", 10 * i + 2));
    OrExit(registry->BeginAttempt(job.run_id, 1, 10 * i + 3));
    OrExit(registry->Move(job.run_id, JobPhase::kRestarting, "attempt 1", 10 * i + 3));
    OrExit(registry->Move(job.run_id, JobPhase::kTraining, "attempt 1", 10 * i + 4));
    OrExit(registry->Move(job.run_id, JobPhase::kCompleted, "completed", 10 * i + 5));
  }
  std::mt19937 random(0);
  const double describe = P99Millis(2000, [&](int) {
    const std::string name = "train-" + std::to_string(random() % static_cast<unsigned>(jobs));
    const auto job = registry->Find(name);
    OrExit(job.status());
    OrExit(registry->Transitions(job->id).status());
    OrExit(registry->Attempts(job->id).status());
  });
  const double list = P99Millis(500, [&](int) {
    const auto listed = registry->List({});
    OrExit(listed.status());
    if (listed->size() != static_cast<size_t>(std::min(jobs, 100))) std::exit(1);
  });
  std::remove(path.c_str());
  for (const char* beside : {"-wal", "-shm"}) std::remove((path + beside).c_str());
  std::printf("{\"jobs\": %d, \"describe_p99_ms\": %.3f, \"list_p99_ms\": %.3f}\n", jobs, describe, list);
  return describe <= 10 && list <= 50 ? 0 : 1;
}
