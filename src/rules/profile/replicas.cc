// Ranks that train one model keep a copy of each weight, and the copies are equal to the bit: the same
// gradient was applied to all of them. Equal elements have equal statistics, whatever the number of threads,
// so that no values have to be compared. That ranks hold copies at all nobody says; it is learnt of their
// being equal while they change.
#include "rules/profile/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "rules/profile/detector.h"
#include "trial/columns.h"

namespace tdbg::rules::profile {
namespace {

// So many updates must have left all copies equal: two trainings of one seed are equal before their first.
constexpr int kUpdates = 2;

// What tells one value of a tensor from another. Any single element that is changed changes its sum of
// squares but for rounding, and its extremes where it was one.
struct Print {
  uint64_t count, zeros, nan, positive, negative;
  double min, max, mean, variance, m3, m4, l1, l2, abs_min, abs_max;
  bool operator==(const Print& other) const { return std::memcmp(this, &other, sizeof(*this)) == 0; }
};
static_assert(sizeof(Print) == 15 * sizeof(double));

Print PrintOf(const Rows& rows, uint32_t i) {
  return {rows.count(i), rows.zero_count(i), rows.nan_count(i), rows.pos_inf_count(i), rows.neg_inf_count(i),
          rows.min(i),   rows.max(i),        rows.mean(i),      rows.variance(i),      rows.m3(i),
          rows.m4(i),    rows.l1(i),         rows.l2(i),        rows.abs_min(i),       rows.abs_max(i)};
}

class ReplicaDiffers : public Detector, public Replicas {
 public:
  bool learnt() const override { return Certain(); }
  size_t ranks() const override { return ranks_; }
  size_t compared() const override { return compared_; }
  size_t equal() const override { return equal_; }

  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    compared_ = equal_ = ranks_ = 0;
    if (told_ || !step.train()) return;
    Gather(step);
    if (ranks_ < 2) return;
    std::vector<const Weight*> differ;  // in the data's direction
    bool moved = false;
    for (const Parameter& parameter : step.parameters()) {
      Weight& weight = weights_[parameter.weight];
      if (weight.now.size() < 2) continue;
      const bool equal = std::ranges::all_of(
          weight.now, [&](const Copy& copy) { return copy.print == weight.now.front().print; });
      if (parameter.matrix() && parameter.group >= 0 && weight.now.size() == ranks_) {
        ++compared_;
        equal_ += equal;
      }
      if (weight.never) continue;
      if (!equal) {
        if (weight.equal_before) differ.push_back(&weight);
        if (!Certain()) weight.never = true;
        continue;
      }
      if (weight.equal_before && !(*weight.equal_before == weight.now.front().print)) moved = true;
      weight.equal_before = weight.now.front().print;
    }
    if (!differ.empty() && Certain()) return Tell(step, differ, findings);
    if (moved && differ.empty()) ++updates_;
  }

 private:
  struct Copy {
    WorkerIndex worker;
    Print print;
  };
  struct Weight {
    TensorIndex tensor = 0;
    std::vector<Copy> now;  // of this step, by rank
    std::optional<Print> equal_before;
    bool never = false;  // ranks that hold something else of that name: parts, or a model of their own
  };

  bool Certain() const { return updates_ >= kUpdates; }

  void Gather(const Digest& step) {
    for (; seen_ < step.parameters().size(); ++seen_) {
      const TensorIndex tensor = step.parameters()[seen_].weight;
      if (tensor >= weights_.size()) weights_.resize(tensor + 1);
      weights_[tensor].tensor = tensor;
      is_weight_.resize(weights_.size());
      is_weight_[tensor] = true;
    }
    const auto all = step.step().rows();
    for (size_t i = 0; i < all.size(); ++i) ranks_ += i == 0 || all[i].worker() != all[i - 1].worker();
    if (ranks_ < 2) return;
    for (Weight& weight : weights_) weight.now.clear();
    for (const Rows rows : all) {
      for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
        const TensorIndex tensor = rows.tensor(i);
        if (tensor >= is_weight_.size() || !is_weight_[tensor]) continue;
        if (rows.point(i) != Point::kNone || rows.sub(i) != 0) continue;
        // A row made of saved reductions has some of the numbers only, and not those of its neighbour.
        if (!rows.at(i).Knows(columns::kMean | columns::kVariance | columns::kZeroCount)) continue;
        auto& now = weights_[tensor].now;
        if (now.empty() || now.back().worker != rows.worker())
          now.push_back({rows.worker(), PrintOf(rows, i)});
      }
    }
  }

  // Of the copies the largest group of equal ones is taken for right, of two groups of a size the first.
  static size_t Right(const std::vector<Copy>& copies) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < copies.size(); ++i) {
      const auto same =
          std::ranges::count_if(copies, [&](const Copy& copy) { return copy.print == copies[i].print; });
      if (static_cast<size_t>(same) > most) {
        most = static_cast<size_t>(same);
        best = i;
      }
    }
    return best;
  }

  void Tell(const Digest& step, const std::vector<const Weight*>& differ, std::vector<Finding>* findings) {
    told_ = true;
    const Weight& first = *differ.front();
    const Copy& right = first.now[Right(first.now)];
    std::vector<const Copy*> wrong;
    for (const Copy& copy : first.now) {
      if (!(copy.print == right.print)) wrong.push_back(&copy);
    }
    const auto name = [&](const Copy& copy) { return step.step().worker_name(copy.worker); };
    const std::string& tensor = step.step().tensor(first.tensor).name;
    Finding finding = MakeFinding(step, "replica_differs", tensor);
    finding.worker = name(*wrong.front());
    finding.measure = "replicas that differ";
    finding.value = static_cast<double>(wrong.size());
    finding.comparison = ">";
    std::string who = name(*wrong.front());
    if (wrong.size() > 1) who += fmt::format(" (and {} more)", base::Counted(wrong.size() - 1, "rank"));
    finding.text = fmt::format(
        "{} of {} is not that of {} any more: mean {:.9g}, there {:.9g}; {} of {} replicated weights differ, "
        "which were equal in all ranks before",
        tensor, who, name(right), wrong.front()->print.mean, right.print.mean, differ.size(), Replicated());
    findings->push_back(std::move(finding));
  }

  size_t Replicated() const {
    return static_cast<size_t>(std::ranges::count_if(
        weights_, [](const Weight& weight) { return weight.equal_before.has_value(); }));
  }

  std::vector<Weight> weights_;  // by TensorIndex
  std::vector<bool> is_weight_;
  size_t seen_ = 0;                              // of the parameters
  size_t ranks_ = 0, compared_ = 0, equal_ = 0;  // of the step at hand
  int updates_ = 0;
  bool told_ = false;
};

}  // namespace

void AddReplicas(Detectors* to) {
  auto differs = std::make_unique<ReplicaDiffers>();
  const Replicas& replicas = *differs;
  to->push_back(std::move(differs));
  AddRanks(replicas, to);
}

}  // namespace tdbg::rules::profile
