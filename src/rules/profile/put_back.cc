// What a script does to weights again and again beside its optimizer: it puts old ones back, or rounds them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

// All matrices are, to the last bit of their statistics, what they were at an earlier step, and had been
// others meanwhile. Once is a checkpoint that was loaded on purpose (after a search for a learning rate, a
// loss that exploded). Again and again to one and the same state means that all that was learnt since is
// thrown away: the best weights are taken for the first ones, a copy goes the wrong way. A learner of
// learners does so, too: within a few steps, and then that state moves on.
class WeightsPutBack : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    ++steps_;
    if (step.step().attempt() != attempt_) {
      attempt_ = step.step().attempt();
      Forget();
    }
    uint64_t state = 0;
    const Parameter* first = nullptr;
    for (const Parameter& parameter : step.parameters()) {
      if (!parameter.matrix() || parameter.group < 0 || parameter.frozen) continue;
      if (!parameter.weight_now || !parameter.weight_now->finite()) return;
      if (first == nullptr) first = &parameter;
      const Numbers& now = *parameter.weight_now;
      for (const double number : {now.mean, now.variance, now.l2})
        state = (state ^ std::bit_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15U + (state >> 29);
    }
    if (first == nullptr) return;
    const bool same = state == last_;
    last_ = state;
    if (same) return;  // an update that was skipped, or that changed nothing
    const auto [known, is_new] = seen_.try_emplace(state, Seen{steps_, step.global_step(), 0, steps_});
    if (is_new) {
      if (seen_.size() > kMostStates) Forget();
      return;
    }
    Seen& seen = known->second;
    if (steps_ - std::exchange(seen.latest, steps_) < kApart) return;
    ++seen.times;
    if (seen.times < kTimes || steps_ - seen.first < kLong) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "weights_put_back", first->name, Measured("times", seen.times, ">=", kTimes),
                    fmt::format("all weights are what they were at step {}, to the last bit, for the {}. "
                                "time in the {} steps since: what is learnt in between is lost each time",
                                seen.step, seen.times, steps_ - seen.first)));
  }

  void Returns(int64_t) override { Forget(); }

 private:
  struct Seen {
    int64_t first = 0;  // of the steps counted here
    int64_t step = 0;   // as it is told
    int times = 0;      // that it came back
    int64_t latest = 0;
  };

  void Forget() {
    seen_.clear();
    last_ = 0;
  }

  static constexpr size_t kMostStates = 50000;
  static constexpr int kTimes = 3;
  static constexpr int64_t kApart = 10, kLong = 100;
  std::unordered_map<uint64_t, Seen> seen_;  // by the weights' statistics
  uint64_t last_ = 0;
  int64_t steps_ = 0, attempt_ = 0;
  bool told_ = false;
};

// Many weights are exactly zero at one step, and at the next, after one update, none are: they were rounded
// to a grid in between. Weights that are cut out stay zero, or grow back slowly.
class WeightsRounded : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    past_.resize(step.parameters().size());
    for (size_t i = 0; i < past_.size(); ++i) {
      const Parameter& parameter = step.parameters()[i];
      if (!parameter.matrix() || parameter.group < 0 || parameter.frozen || !parameter.weight_now) continue;
      const Numbers& now = *parameter.weight_now;
      if (!now.finite() || now.count < kElements) continue;
      const double share = static_cast<double>(now.zeros) / static_cast<double>(now.count);
      Past& past = past_[i];
      const Zeros zeros = share < kFew ? kFewZeros : share < kMany ? kSomeZeros : kManyZeros;
      past.times += zeros == kFewZeros && past.last == kManyZeros && past.before == kFewZeros;
      past.before = std::exchange(past.last, zeros);
      if (zeros == kManyZeros) past.share = share;
      if (past.times < kTimes) continue;
      told_ = true;
      findings->push_back(MakeFinding(
          step, "weights_rounded", parameter.name, Measured("share of zeros", past.share, ">=", kMany),
          fmt::format("{:.0f} % of the elements of {} were exactly 0 before an update and none after it, {} "
                      "times so far: something rounds them",
                      100 * past.share, parameter.name, past.times)));
      return;
    }
  }

 private:
  enum Zeros : uint8_t { kFewZeros, kSomeZeros, kManyZeros };
  struct Past {
    double share = 0;
    int times = 0;
    Zeros last = kSomeZeros, before = kSomeZeros;  // at the two steps before
  };
  static constexpr uint64_t kElements = 64;
  static constexpr double kFew = 0.005, kMany = 0.05;
  static constexpr int kTimes = 3;
  std::vector<Past> past_;
  bool told_ = false;
};

}  // namespace

void AddPutBack(Detectors* to) {
  to->push_back(std::make_unique<WeightsPutBack>());
  to->push_back(std::make_unique<WeightsRounded>());
}

}  // namespace tdbg::rules::profile
