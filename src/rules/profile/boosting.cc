// Boosted trees: what their metrics, splits and gains say. docs/incidents.md, "Boosted trees".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "base/text.h"
#include "rules/profile/detector.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kFirstRounds = 10;  // without a split, or at no rate, before something is reported
constexpr int kStill = 20;        // rounds that change nothing

std::string RowsOf(double rows) {
  return rows > 0 ? base::Counted(static_cast<uint64_t>(rows), "row") : std::string("rows");
}

class OneLabel : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    const Rounds& rounds = step.rounds();
    const auto& labels = rounds.training_labels();
    // A script's own objective may have its targets elsewhere.
    const bool own = !rounds.objective() || rounds.objective()->empty();
    if (told_ || !labels || own || rounds.training_rows() < 2 || labels->lowest != labels->highest) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "one_label", {}, Measured("label", labels->lowest),
                    fmt::format("the label is {:g} in all {} of the training data: there is nothing to learn",
                                labels->lowest, RowsOf(rounds.training_rows()))));
  }

 private:
  bool told_ = false;
};

// Of several sets XGBoost's early stopping looks at the last one.
class StopsByTraining : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    const Rounds& rounds = step.rounds();
    if (told_ || !rounds.early_stopping() || rounds.stops_by().empty()) return;
    const auto by = std::ranges::find(rounds.sets(), rounds.stops_by(), &EvaluatedSet::name);
    const auto other = std::ranges::find(rounds.sets(), true, &EvaluatedSet::held_out);
    if (by == rounds.sets().end() || !by->training || other == rounds.sets().end()) return;
    told_ = true;
    Finding finding = MakeFinding(step, "stops_by_training");
    finding.text = fmt::format(
        "early stopping looks at {:?}, which is the training data, and not at {:?}: it ends the training "
        "when the training metric gets no better",
        by->name, other->name);
    findings->push_back(std::move(finding));
  }

 private:
  bool told_ = false;
};

class NoSplits : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    ++rounds_;
    const auto splits = step.rounds().splits();
    if (splits) looked_ = true;
    if (splits && *splits > 0) split_ = true;
    if (told_ || split_ || !splits) return;
    last_ = Found(step);
    if (rounds_ >= kFirstRounds) Tell(findings);
  }

  void AtEnd(const StepContext&, std::vector<Finding>* findings) override {
    if (looked_ && !split_ && !told_ && rounds_ >= 3) Tell(findings);
  }

 private:
  Finding Found(const Digest& step) const {
    Finding finding = MakeFinding(step, "no_splits", "context/boosting/splits");
    finding.measure = "splits";
    finding.text = fmt::format(
        "none of the trees of the first {} rounds has a split, so that every row gets the same prediction; "
        "there are {} to train on",
        rounds_, RowsOf(step.rounds().training_rows()));
    return finding;
  }
  void Tell(std::vector<Finding>* findings) {
    told_ = true;
    findings->push_back(last_);
  }

  int rounds_ = 0;
  bool looked_ = false, split_ = false, told_ = false;
  Finding last_;
};

// The metric that the training makes smaller stands where it began: a rate of next to nothing.
class NoProgress : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (told_) return;
    ++rounds_;
    const auto rate = step.rounds().learning_rate();
    if (rate) rates_ += *rate;
    rated_ += rate.has_value();
    const Metric* const metric = Followed(step.rounds());
    if (metric != nullptr) See(*metric);
    last_ = MakeFinding(step, "no_progress", metric != nullptr ? metric->name : "context/learning_rate");
    if (rated_ == rounds_ && rounds_ == kFirstRounds && rates_ <= kFirstRounds * kNoRate) {
      last_.measure = "learning rate";
      last_.value = *rate;
      last_.text =
          fmt::format("the learning rate is {:g}: {} rounds have changed no prediction", *rate, rounds_);
      Tell(findings);
    } else if (seen_ == rounds_ && rounds_ == kStill && first_ > kPerfect &&
               highest_ - lowest_ <= 1e-6 * first_) {
      last_.measure = metric->metric;
      last_.value = metric->value;
      last_.text = fmt::format("{} is {:.6g} and has not moved in the first {} rounds{}", metric->name,
                               metric->value, rounds_, RateWords());
      Tell(findings);
    }
  }

  void AtEnd(const StepContext&, std::vector<Finding>* findings) override {
    // What is left of a difference after rounds of rate r is at least (1 - r) of it each time.
    const bool little = rated_ == rounds_ && rates_ < kReach && seen_ == rounds_ && first_ > kPerfect;
    if (told_ || rounds_ < kStill || !little || highest_ - lowest_ > kReach * first_) return;
    last_.measure = "sum of learning rates";
    last_.value = rates_;
    last_.comparison = "<";
    last_.threshold = kReach;
    last_.text = fmt::format(
        "{} went from {:.6g} to {:.6g} in {} rounds{}: so few rounds at so low a rate go {:.2g} % of the way",
        name_, first_, now_, rounds_, RateWords(), 100 * rates_);
    Tell(findings);
  }

 private:
  static constexpr double kNoRate = 1e-6, kReach = 0.05, kPerfect = 1e-9;

  // The first of the training data, else of another set; the same one each time.
  const Metric* Followed(const Rounds& rounds) const {
    const Metric* found = nullptr;
    for (const Metric& metric : rounds.metrics()) {
      if (metric.of != Metric::Of::kLoss || metric.higher_is_better ||
          (!name_.empty() && metric.name != name_))
        continue;
      if (found == nullptr || (rounds.sets()[metric.set].training && !rounds.sets()[found->set].training))
        found = &metric;
    }
    return found;
  }
  void See(const Metric& metric) {
    const double size = std::abs(metric.value);
    if (seen_++ == 0) {
      name_ = metric.name;
      first_ = lowest_ = highest_ = size;
    }
    now_ = size;
    lowest_ = std::min(lowest_, size);
    highest_ = std::max(highest_, size);
  }
  std::string RateWords() const {
    return rated_ == 0 ? "" : fmt::format(" (learning rate {:.3g})", rates_ / rated_);
  }
  void Tell(std::vector<Finding>* findings) {
    told_ = true;
    findings->push_back(last_);
  }

  int rounds_ = 0, seen_ = 0, rated_ = 0;
  double rates_ = 0, first_ = 0, now_ = 0, lowest_ = 0, highest_ = 0;
  std::string name_;
  Finding last_;
  bool told_ = false;
};

// The loss of the training data rises: a rate that is too high, or gradients of a script's own that point
// the other way. Only of what the objective makes smaller.
class TrainingWorsens : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    const Rounds& rounds = step.rounds();
    if (told_ || !rounds.objective() || rounds.weighted() || rounds.drops()) return;
    for (const Metric& metric : rounds.metrics()) {
      if (!rounds.sets()[metric.set].training || metric.of != Metric::Of::kLoss) continue;
      if (!rounds.objective()->empty() && !IsOwnMetric(*rounds.objective(), metric.metric)) continue;
      if (!See(metric)) continue;
      const Past& past = past_[metric.name];
      told_ = true;
      findings->push_back(MakeFinding(
          step, "training_worsens", metric.name, Measured(metric.metric, metric.value, ">", 2 * past.best),
          fmt::format(
              "{} is {:.4g}, began with {:.4g} and was {:.4g} at best: it rose in {} of the last {} rounds{}",
              metric.name, metric.value, past.first, past.best, past.rises.Sum(), kFirstRounds,
              rounds.objective()->empty() ? "; the gradients are the script's own" : "")));
      return;
    }
  }

 private:
  class Rises {
   public:
    void Add(bool rose) { bits_ = ((bits_ << 1) | (rose ? 1U : 0U)) & ((1U << kFirstRounds) - 1); }
    int Sum() const { return __builtin_popcount(bits_); }

   private:
    uint32_t bits_ = 0;
  };
  struct Past {
    int seen = 0, above = 0;
    double first = 0, best = 0, last = 0;
    Rises rises;
  };

  bool See(const Metric& metric) {
    Past& past = past_[metric.name];
    const double now = metric.value;
    if (past.seen++ == 0) past.first = past.best = past.last = now;
    past.best = std::min(past.best, now);
    past.rises.Add(now > past.last);
    past.last = now;
    past.above = past.best > 0 && now > 1.5 * past.best ? past.above + 1 : 0;
    // Of a loss that is nearly 0 anything is twice the best.
    return past.above >= kFirstRounds && past.rises.Sum() >= 8 && now > 2 * past.best &&
           now > 0.5 * past.first;
  }

  std::map<std::string, Past> past_;
  bool told_ = false;
};

// One feature has all the gain, and the metric is perfect: that feature is the label, or made of it.
class LabelLeak : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    ++rounds_;
    const Rounds& rounds = step.rounds();
    const auto share = rounds.leading_share();
    if (told_ || rounds_ < 3 || !share || *share < kShare || rounds.features().value_or(0) < 2) return;
    const bool held_out = std::ranges::any_of(
        rounds.metrics(), [&](const Metric& metric) { return rounds.sets()[metric.set].held_out; });
    for (const Metric& metric : rounds.metrics()) {
      const EvaluatedSet& set = rounds.sets()[metric.set];
      if ((held_out && !set.held_out) || !Perfect(metric, set)) continue;
      told_ = true;
      findings->push_back(
          MakeFinding(step, "label_leak", metric.name, Measured("share of gain", *share, ">=", kShare),
                      fmt::format("{} has {:.4g} % of the gain of all splits, of {:g} features, and {} is "
                                  "{:.4g} after {} rounds: it may hold the label",
                                  rounds.leader().empty() ? "one feature" : rounds.leader(), 100 * *share,
                                  *rounds.features(), metric.name, metric.value, rounds_)));
      return;
    }
  }

 private:
  static constexpr double kShare = 0.98, kOfGuessing = 0.02, kArea = 5e-4;

  // Nearer to perfect than one feature of many takes a model; compared with what a constant has.
  static bool Perfect(const Metric& metric, const EvaluatedSet& set) {
    if (!set.labels || !(set.labels->deviation > 0) || set.samples < 50) return false;
    const LabelRange& labels = *set.labels;
    const bool binary = labels.lowest == 0 && labels.highest == 1;
    const double p = labels.mean, bad = metric.badness();
    const std::string_view name = metric.metric;
    if (bad < 0) return false;
    if (name == "auc") return bad <= kArea;
    if (name == "logloss" || name == "binary_logloss" || name == "cross_entropy") {
      return binary && p > 0 && p < 1 && bad <= kOfGuessing * -(p * std::log(p) + (1 - p) * std::log(1 - p));
    }
    if (name == "error" || name == "binary_error") return binary && bad <= kOfGuessing * std::min(p, 1 - p);
    if (name == "rmse" || name == "mae" || name == "l1") return bad <= kOfGuessing * labels.deviation;
    if (name == "l2") return bad <= kOfGuessing * kOfGuessing * labels.deviation * labels.deviation;
    // Of classes a guess has ln(classes) where they are equally many, and less else.
    if (name == "mlogloss" || name == "multi_logloss") return bad <= kOfGuessing * 0.5;
    return false;
  }

  int rounds_ = 0;
  bool told_ = false;
};

// Whatever the held-out rows are, the model says the same of them, while it tells the training's apart.
class ConstantEvaluation : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (told_ || over_) return;
    ++rounds_;
    const Rounds& rounds = step.rounds();
    const Metric* blind = nullptr;
    bool tells = false;
    for (const Metric& metric : rounds.metrics()) {
      const EvaluatedSet& set = rounds.sets()[metric.set];
      if (metric.metric != "auc") continue;
      if (set.training) tells = metric.value > 0.6;
      const bool two_classes = set.labels && set.labels->deviation > 0 && set.samples >= 50;
      if (set.held_out && two_classes && metric.value == 0.5) blind = &metric;
    }
    over_ = blind == nullptr;
    if (over_ || !tells || rounds_ < kFirstRounds) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "constant_evaluation", blind->name, Measured(blind->metric, blind->value),
                    fmt::format("{} is exactly 0.5 in each of the first {} rounds: all rows of {:?} get the "
                                "same prediction, and those of the training data do not",
                                blind->name, rounds_, rounds.sets()[blind->set].name)));
  }

 private:
  int rounds_ = 0;
  bool told_ = false, over_ = false;
};

// The metric of held-out rows gets worse since its best round, by more than so many rows differ by chance,
// while the training goes on. Quiet as long as any held-out metric is at its best, and where the library
// itself ends the training.
class HeldOutWorsens : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    const Rounds& rounds = step.rounds();
    for (const Metric& metric : rounds.metrics()) {
      const auto [found, is_new] = past_.try_emplace(metric.name);
      found->second.recent.Add(metric.badness());
      found->second.now = metric.badness();
      found->second.lowest = std::min(found->second.lowest, found->second.recent.Mean(5));
      found->second.training = rounds.sets()[metric.set].training;
      found->second.held_out = rounds.sets()[metric.set].held_out;
      any_held_out_ |= found->second.held_out;
    }
    stops_ = rounds.early_stopping() && !StopsByTraining(rounds);
    drops_ = rounds.drops();
    if (drops_) return;
    for (const Metric& metric : rounds.metrics()) {
      if (told_) return;
      // With weights most answers may be wrong, and are meant to be.
      const bool own = !rounds.objective() || rounds.objective()->empty();
      const bool meant =
          (rounds.weighted() && metric.of != Metric::Of::kOrder) || (own && metric.of == Metric::Of::kRate);
      if (rounds.sets()[metric.set].held_out && !meant) Follow(step, metric, findings);
    }
  }

  std::string Unjudged() const override {
    if (drops_) return "whether metrics get worse (DART takes trees away, and puts them back)";
    return any_held_out_ ? "" : "overfitting (no metric that is known of held-out rows)";
  }

 private:
  static constexpr double kRise = 0.1;

  struct Past {
    History recent{5};
    double now = 0, first = 0, best = std::numeric_limits<double>::infinity();
    double lowest = std::numeric_limits<double>::infinity();  // of means of five
    bool training = false, held_out = false;
    int seen = 0, above = 0, best_seen = 0;
    int64_t best_round = 0;
    std::map<std::string, double> others;  // at its best round
  };

  static bool StopsByTraining(const Rounds& rounds) {
    const auto by = std::ranges::find(rounds.sets(), rounds.stops_by(), &EvaluatedSet::name);
    return by != rounds.sets().end() && by->training;
  }

  // By how much it differs by chance, of so many samples: a rate's deviation is known, a loss' is about as
  // large as the loss. Where one of two labels is seldom its rows are what counts.
  static double Chance(const Metric& metric, const EvaluatedSet& set, double best) {
    double n = set.samples > 0 ? set.samples : 200;
    if (set.labels && set.labels->lowest == 0 && set.labels->highest == 1) {
      n *= std::max(2 * std::min(set.labels->mean, 1 - set.labels->mean), 1 / n);
    }
    if (metric.of == Metric::Of::kLoss) return 2 * best / std::sqrt(n);
    // Of many rounds the best one was lucky: where it is now says more.
    const double rate = std::clamp(metric.badness(), 1 / n, 0.5);
    return 3 * std::sqrt(rate * (1 - rate) / n);
  }

  void Follow(const Digest& step, const Metric& metric, std::vector<Finding>* findings) {
    const Rounds& rounds = step.rounds();
    Past& past = past_[metric.name];
    const double now = metric.badness();
    if (past.seen++ == 0) past.first = now;
    if (!(now >= 0)) return;  // a likelihood of densities may be below 0: there is no measure then
    if (now < past.best) {
      past.best = now;
      past.best_round = step.global_step();
      past.best_seen = past.seen;
      past.above = 0;
      for (const auto& [name, other] : past_) past.others[name] = other.recent.Mean(5);
      return;
    }
    // A loss that was best at once was never worth training for: half of that is enough.
    const double rise = kRise * past.best + Chance(metric, rounds.sets()[metric.set], past.best);
    const double bar = past.best + (past.best_seen <= 2 && metric.of == Metric::Of::kLoss ? rise / 2 : rise);
    past.above = now > bar ? past.above + 1 : 0;
    // For ten rounds, and a tenth of all since the best.
    const int since = past.seen - past.best_seen;
    if (stops_ || past.above < kFirstRounds || past.above < since / 10 || !(past.best > 0)) return;
    // Where nearly all is learnt the best one is next to nothing, and so is what it rises by.
    if (now - past.best < 0.03 * (past.first - past.best)) return;
    if (!TrainingImproves(rounds, metric, past) || OthersImprove(metric.name, past)) return;
    Tell(step, metric, past, bar, findings);
  }

  const Past* TrainingOf(const Metric& metric, const Rounds& rounds, std::string* name) const {
    for (const Metric& other : rounds.metrics()) {
      if (other.metric != metric.metric || !rounds.sets()[other.set].training) continue;
      *name = other.name;
      return &past_.at(other.name);
    }
    return nullptr;
  }

  // Where the training data are not evaluated: what the objective makes smaller does, and so does the order
  // of the rows. Anything else may get worse of it, in training and out of it.
  bool TrainingImproves(const Rounds& rounds, const Metric& metric, const Past& past) const {
    std::string name;
    if (const Past* const training = TrainingOf(metric, rounds, &name)) {
      const auto then = past.others.find(name);
      return then != past.others.end() && training->now < 0.95 * then->second;
    }
    return rounds.objective() &&
           (metric.of == Metric::Of::kOrder || IsOwnMetric(*rounds.objective(), metric.metric));
  }

  // Better than it was then, and no worse than it ever was.
  bool OthersImprove(const std::string& name, const Past& past) const {
    return std::ranges::any_of(past_, [&](const auto& one) {
      const auto& [other_name, other] = one;
      if (!other.held_out || other_name == name) return false;
      const auto then = past.others.find(other_name);
      const double mean = other.recent.Mean(5);
      return then == past.others.end() || (mean < 0.98 * then->second && mean < 1.02 * other.lowest);
    });
  }

  void Tell(const Digest& step, const Metric& metric, const Past& past, double bar,
            std::vector<Finding>* findings) {
    told_ = true;
    const double sign = metric.higher_is_better ? -1 : 1,
                 best = metric.higher_is_better ? 1 - past.best : past.best;
    std::string training;
    const Past* const of_training = TrainingOf(metric, step.rounds(), &training);
    Finding finding = MakeFinding(step, "held_out_worsens", metric.name);
    finding.measure = metric.metric;
    finding.value = metric.value;
    finding.comparison = sign > 0 ? ">" : "<";
    finding.threshold = metric.higher_is_better ? 1 - bar : bar;
    const std::string since = past.best_seen == 1
                                  ? fmt::format("was never better than after the first round ({:.4g})", best)
                                  : fmt::format("was best with {:.4g} in round {}", best, past.best_round);
    finding.text = fmt::format("{} is {:.4g} and {}", metric.name, metric.value, since);
    if (of_training != nullptr) {
      const auto value = [&](double badness) { return metric.higher_is_better ? 1 - badness : badness; };
      finding.text += fmt::format("; {} went on from {:.4g} to {:.4g} meanwhile", training,
                                  value(past.others.at(training)), value(of_training->now));
    }
    findings->push_back(std::move(finding));
  }

  std::map<std::string, Past> past_;
  bool told_ = false, stops_ = false, drops_ = false, any_held_out_ = false;
};

// What nobody can judge, said at the end.
class UnknownMetrics : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>*) override {
    if (step.rounds().unknown() != names_) names_ = step.rounds().unknown();
  }
  std::string Unjudged() const override {
    return names_.empty() ? ""
                          : fmt::format("{} (which way is better is not known)", fmt::join(names_, ", "));
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace

void AddBoosting(Detectors* to) {
  to->push_back(std::make_unique<OneLabel>());
  to->push_back(std::make_unique<StopsByTraining>());
  to->push_back(std::make_unique<NoSplits>());
  to->push_back(std::make_unique<NoProgress>());
  to->push_back(std::make_unique<TrainingWorsens>());
  to->push_back(std::make_unique<LabelLeak>());
  to->push_back(std::make_unique<ConstantEvaluation>());
  to->push_back(std::make_unique<HeldOutWorsens>());
  to->push_back(std::make_unique<UnknownMetrics>());
}

}  // namespace tdbg::rules::profile
