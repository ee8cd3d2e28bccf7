// What ranks of one model do that they should not: all take the same batch, each trains a model of its own,
// one has another learning rate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "rules/profile/detector.h"
#include "rules/profile/replicas.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kSameSteps = 10, kChanges = 5;
constexpr int kDifferent = 20;  // steps with batches of their own: that goes on
constexpr double kFewElements = 64;
constexpr int kApartSteps = 100;

// Each rank computes what all others do: no DistributedSampler, one seed for all. Copies of a model that are
// given one batch have one gradient, so that the mean of all is that of one.
class SameBatches : public Detector {
 public:
  explicit SameBatches(const Replicas& replicas) : replicas_(replicas) {}

  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || different_ >= kDifferent || replicas_.ranks() < 2) return;
    ++steps_;
    // Ranks of a model that is kept in parts are given one batch on purpose, and so are stages of a pipeline.
    if (replicas_.compared() == 0 || replicas_.equal() < replicas_.compared()) return;
    const auto marks = MarksOf(step);
    if (marks.size() < replicas_.ranks()) return;  // not looked at, or not in this step
    const std::vector<double>& first = marks.begin()->second;
    const bool same = std::ranges::all_of(marks, [&](const auto& mark) { return mark.second == first; });
    judged_ = true;
    different_ += !same;
    same_ = same ? same_ + 1 : 0;
    // Who trains on all data at once has one batch everywhere, and always.
    changes_ += last_ && *last_ != first;
    last_ = first;
    if (same_ < kSameSteps || changes_ < kChanges || !replicas_.learnt()) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "same_on_all_ranks", "context/batch_fingerprint",
                    Measured("steps with one batch on all ranks", same_, ">=", kSameSteps),
                    fmt::format("all {} ranks were given the same batch in each of {} steps that were looked "
                                "at, and hold one model: each computes what the others do",
                                marks.size(), same_)));
  }

  std::string Unjudged() const override {
    return steps_ >= kDifferent && !judged_ ? "whether ranks take different batches (no whole copies of one "
                                              "model, or no batches, were seen)"
                                            : "";
  }

 private:
  // What tells one batch from another; nothing of a rank whose batch was not looked at at this step.
  static std::map<WorkerIndex, std::vector<double>> MarksOf(const Digest& step) {
    std::map<WorkerIndex, std::vector<double>> marks;
    const auto add = [&](const std::vector<Digest::OfRank>& values) {
      for (const Digest::OfRank& one : values) marks[one.worker].push_back(one.value);
    };
    if (TooFew(step)) return marks;
    if (step.series("batch_fingerprint")) {
      add(step.by_rank("batch_fingerprint"));
      // A first input that is not the data, as the times of a diffusion: labels then tell.
      for (const char* const name : {"labels/min", "labels/max", "labels/distinct", "labels/count"})
        add(step.by_rank(name));
      return marks;
    }
    // On a device: exact numbers of the whole input. Of tokens these are few, and the loss has to be the same
    // to the bit as well.
    if (!step.series("input/max")) return marks;
    for (const char* const name : {"input/min", "input/max", "input/mean", "input/std", "labels/max"})
      add(step.by_rank(name));
    if (step.series("input/std").value_or(0) > 0) return marks;
    if (step.losses().empty()) return {};
    add(step.loss_by_rank());
    return marks;
  }

  // A number that is annealed, a few flags: no batch.
  static bool TooFew(const Digest& step) {
    const std::string* const text = step.topic("batch");
    if (text == nullptr) return false;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array()) return false;
    double elements = 1;
    for (const auto& size : json["shape"]) elements *= size.is_number() ? size.get<double>() : 1;
    return elements < kFewElements;
  }

  const Replicas& replicas_;
  std::optional<std::vector<double>> last_;
  int64_t steps_ = 0;
  int same_ = 0, changes_ = 0, different_ = 0;
  bool told_ = false, judged_ = false;
};

// Ranks begin with one model, and from the first update on each has its own: their gradients are not summed.
// Averages of weights that are made now and then (local SGD) bring them together again.
class RanksApart : public Detector {
 public:
  explicit RanksApart(const Replicas& replicas) : replicas_(replicas) {}

  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || met_ || replicas_.learnt()) return;
    if (step.step().attempt() != attempt_ || replicas_.ranks() != ranks_) {
      attempt_ = step.step().attempt();
      ranks_ = replicas_.ranks();
      began_as_one_ = false;
      apart_ = 0;
      if (ranks_ < 2) return;
      began_as_one_ = replicas_.compared() > 0 && replicas_.equal() == replicas_.compared();
      return;
    }
    if (!began_as_one_ || replicas_.compared() == 0) return;
    if (replicas_.equal() > 0) {
      // Equal before its first update, or brought together by somebody.
      met_ = apart_ > 0;
      return;
    }
    // Rates of their own: a search for the best one.
    if (Differ(step)) {
      met_ = true;
      return;
    }
    if (++apart_ < kApartSteps) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "ranks_apart", {},
                    Measured("steps in which no weight is that of another rank", apart_, ">=", kApartSteps),
                    fmt::format("the {} ranks began with equal weights, and since the first update each has "
                                "its own: in {} steps none of {} was the same in all of them",
                                ranks_, apart_, base::Counted(replicas_.compared(), "matrix", "matrices"))));
  }

 private:
  static bool Differ(const Digest& step) {
    for (const Group& group : step.groups()) {
      const auto& rates = step.by_rank(fmt::format("lr/{}/{}", group.optimizer, group.number));
      for (const Digest::OfRank& one : rates) {
        if (one.value != rates.front().value) return true;
      }
    }
    return false;
  }

  const Replicas& replicas_;
  int64_t attempt_ = -1;
  size_t ranks_ = 0;
  int apart_ = 0;
  bool began_as_one_ = false, met_ = false, told_ = false;
};

// Copies that are updated at different rates are copies no more.
class RatesDiffer : public Detector {
 public:
  explicit RatesDiffer(const Replicas& replicas) : replicas_(replicas) {}

  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || !replicas_.learnt()) return;
    const Group* differs = nullptr;
    std::vector<Digest::OfRank> rates;
    for (const Group& group : step.groups()) {
      rates = step.by_rank(SeriesOf(group));
      const auto other = [&](const Digest::OfRank& one) { return one.value != rates.front().value; };
      if (rates.size() < 2 || std::ranges::none_of(rates, other)) continue;
      differs = &group;
      break;
    }
    steps_ = differs != nullptr ? steps_ + 1 : 0;
    if (steps_ < 2) return;
    told_ = true;
    const auto other =
        std::ranges::find_if(rates, [&](const auto& one) { return one.value != rates.front().value; });
    Finding finding = MakeFinding(step, "rates_differ", "context/" + SeriesOf(*differs));
    finding.worker = step.step().worker_name(other->worker);
    finding.measure = "learning rate";
    finding.value = other->value;
    finding.comparison = "!=";
    finding.threshold = rates.front().value;
    finding.text = fmt::format(
        "the learning rate of {} is {:.6g} on {} and {:.6g} on {}, which hold copies of one model",
        differs->optimizer, other->value, finding.worker, rates.front().value,
        step.step().worker_name(rates.front().worker));
    findings->push_back(std::move(finding));
  }

 private:
  static std::string SeriesOf(const Group& group) {
    return fmt::format("lr/{}/{}", group.optimizer, group.number);
  }

  const Replicas& replicas_;
  int steps_ = 0;
  bool told_ = false;
};

}  // namespace

void AddRanks(const Replicas& replicas, Detectors* to) {
  to->push_back(std::make_unique<SameBatches>(replicas));
  to->push_back(std::make_unique<RanksApart>(replicas));
  to->push_back(std::make_unique<RatesDiffer>(replicas));
}

}  // namespace tdbg::rules::profile
