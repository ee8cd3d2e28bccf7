// Rules of a shared library, made as a user makes them. One judges; the others break what can be broken.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tdbg/rule.h"

namespace {

using tdbg::custom::Finding;
using tdbg::custom::Info;
using tdbg::custom::Judged;
using tdbg::custom::Parameters;
using tdbg::custom::Step;
using tdbg::rule::Rule;  // the namespace of 0.1, an alias until 0.3

class LargeGradient : public Rule {
 public:
  static Info Describe() {
    return {.class_name = "LargeGradient",
            .summary = "a gradient's largest value",
            .parameters = {{.name = "threshold", .type = "float", .default_value = "20", .minimum = 0},
                           {.name = "unused", .type = "int"}},
            .collections = {"gradients"}};
  }
  explicit LargeGradient(const Parameters& parameters) : threshold_(parameters.Float("threshold")) {}
  Judged Invoke(const Step& step) override {
    bool seen = false;
    for (const tdbg_statistics& s : step.statistics()) {
      if (!step.IsIn(s.tensor, "gradients")) continue;
      seen = true;
      if (s.abs_max > threshold_) {
        step.Report({.row = &s,
                     .measure = "abs_max",
                     .value = s.abs_max,
                     .comparison = ">",
                     .threshold = threshold_});
      }
    }
    return seen ? Judged::kJudged : Judged::kNotDue;
  }

 private:
  const double threshold_;
};

// Slow only while the environment says so, as a rule on a busy machine is.
void HangIfTold() {
  while (std::getenv("TDBG_TEST_HANG")) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Judges like the one above, and at step 3 does what its parameter says.
class Saboteur : public Rule {
 public:
  static Info Describe() {
    return {.class_name = "Saboteur",
            .parameters = {{.name = "how", .required = true}},
            .collections = {"gradients"}};
  }
  explicit Saboteur(const Parameters& parameters) : how_(parameters.Text("how")) {
    if (how_ == "refuse") throw std::invalid_argument("no such way: refuse");
    if (how_ == "slow at the start") HangIfTold();
  }
  Judged Invoke(const Step& step) override {
    if (step.global_step() < 3) return Judged::kJudged;
    std::printf("about to %s\n", how_.c_str());
    if (how_ == "slow at step 3") HangIfTold();
    if (how_ == "throw") throw std::runtime_error("thrown on purpose");
    if (how_ == "throw an int") throw 1;
    if (how_ == "segfault") {
      volatile uintptr_t nowhere = 8;  // the compiler must not know
      *reinterpret_cast<volatile char*>(nowhere) = 1;
    }
    if (how_ == "hang") {
      while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    if (how_ == "allocate") {
      std::vector<std::vector<char>> kept;
      while (true) kept.emplace_back(16u << 20, 'x');
    }
    if (how_ == "exit") std::_Exit(7);
    return Judged::kJudged;
  }
  Judged AtEnd(const Step&) override {
    if (how_ == "slow at the end") HangIfTold();
    return Judged::kNotDue;
  }

 private:
  const std::string how_;
};

// Says what a raw value held, and judges at the end.
class Values : public Rule {
 public:
  static Info Describe() {
    return {.class_name = "Values", .collections = {"gradients"}, .raw = true, .raw_interval = 1};
  }
  explicit Values(const Parameters&) {}
  Judged Invoke(const Step& step) override {
    for (const tdbg_statistics& s : step.statistics()) {
      tdbg_value value;
      if (!step.Value(s.tensor, s.worker, &value)) continue;
      if (std::strcmp(value.dtype, "float64") != 0) throw std::runtime_error("not float64");
      for (uint64_t i = 0; i < value.elements; ++i) sum_ += static_cast<const double*>(value.data)[i];
    }
    return Judged::kJudged;
  }
  Judged AtEnd(const Step& last) override {
    last.Report({.tensor = "all", .measure = "sum", .value = sum_, .comparison = ">", .threshold = 0});
    return Judged::kJudged;
  }

 private:
  double sum_ = 0;
};

}  // namespace

TDBG_EXPORT_RULES(LargeGradient, Saboteur, Values)
