// Are parameters, losses and optimizers connected as they should be? By the context that is recorded with
// every step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text.h"
#include "rules/profile/detector.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kSteps = 10;          // steps in a row before something is reported
constexpr int kRoutedSteps = 1000;  // of what is chosen by its input
constexpr size_t kNamesShown = 3;

std::string Names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kNamesShown) text += fmt::format(" and {} more", names.size() - kNamesShown);
  return text;
}

// The root module: "Net" of "Net_l1.weight", as adaptors name them.
std::string RootOf(const std::string& name) { return name.substr(0, name.find('_')); }

class NoGradient : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || step.step().skipped() || step.stepped().empty()) return;
    const auto count = step.series("gradients_absent");
    recorded_ = recorded_ || count;
    stepped_ = true;
    if (!count) return;
    const bool alone = step.stepped().size() == 1;
    for (const std::string& optimizer : step.stepped()) {
      // Of one optimizer the record says all; of several each has one of its own.
      const std::vector<std::string> names = !alone       ? step.absent_of(optimizer)
                                             : *count > 0 ? step.absent()
                                                          : std::vector<std::string>();
      Look(step, optimizer, names, findings);
    }
  }

  std::string Unjudged() const override {
    return stepped_ && !recorded_ ? "which parameters get a gradient (not recorded by this framework)" : "";
  }

 private:
  struct Past {
    std::set<std::string> never;
    std::set<std::string> routed;  // families of which one has a gradient at some steps only
    int steps = 0;
    bool told = false;
  };

  // "Net_experts.#.weight" of "Net_experts.3.weight".
  static std::string FamilyOf(const std::string& name) {
    std::string family;
    for (const char c : name) {
      if (c < '0' || c > '9') {
        family += c;
      } else if (family.empty() || family.back() != '#') {
        family += '#';
      }
    }
    return family;
  }

  // Experts are chosen, and one that no input has chosen so far is none that is cut off.
  static std::set<std::string> Unexplained(const Past& past) {
    std::set<std::string> names = past.never;
    if (past.steps < kRoutedSteps)
      std::erase_if(names, [&](const std::string& name) { return past.routed.contains(FamilyOf(name)); });
    return names;
  }

  void Look(const Digest& step, const std::string& optimizer, const std::vector<std::string>& absent,
            std::vector<Finding>* findings) {
    Past& past = past_[optimizer];
    if (past.told) return;
    std::set<std::string> now;
    for (const std::string& name : absent) {
      const Parameter* const parameter = step.parameter(name);
      if (parameter == nullptr || !parameter->frozen) now.insert(name);
    }
    if (past.steps == 0) {
      past.never = now;
    } else {
      for (const std::string& name : now) {
        if (!past.never.contains(name)) past.routed.insert(FamilyOf(name));
      }
      std::erase_if(past.never, [&](const std::string& name) {
        if (now.contains(name)) return false;
        past.routed.insert(FamilyOf(name));
        return true;
      });
    }
    if (++past.steps < kSteps || past.never.empty()) return;
    const std::set<std::string> never = Unexplained(past);
    if (never.empty()) return;
    std::vector<std::string> names;  // in the data's direction
    int64_t all = 0;
    for (const Parameter& parameter : step.parameters()) {
      if (never.contains(parameter.name)) names.push_back(parameter.name);
      all +=
          parameter.group >= 0 && step.groups()[static_cast<size_t>(parameter.group)].optimizer == optimizer;
    }
    if (names.empty()) names.assign(never.begin(), never.end());
    past.told = true;
    findings->push_back(MakeFinding(
        step, "no_gradient", names.back(), Measured("steps without a gradient", past.steps, ">=", kSteps),
        fmt::format("{} of the {} that {} updates got no gradient in {} steps: {}{}",
                    base::Counted(names.size(), "parameter"), all, optimizer, past.steps, Names(names),
                    Cut(step, optimizer, never))));
  }

  // Where the graph is cut: with nothing on one side of it, and something on all of the other.
  static std::string Cut(const Digest& step, const std::string& optimizer,
                         const std::set<std::string>& never) {
    const Parameter *last_without = nullptr, *first_with = nullptr;
    size_t without = 0;
    for (const Parameter& parameter : step.parameters()) {
      if (parameter.frozen || parameter.group < 0 ||
          step.groups()[static_cast<size_t>(parameter.group)].optimizer != optimizer)
        continue;
      const bool none = never.contains(parameter.name);
      without += none;
      const Parameter*& bound = none ? last_without : first_with;
      if (bound == nullptr || (none ? parameter.order > bound->order : parameter.order < bound->order))
        bound = &parameter;
    }
    if (without != never.size() || without < 2 || first_with == nullptr || last_without == nullptr) return {};
    if (last_without->order > first_with->order || last_without->layer() == first_with->layer()) return {};
    return fmt::format("; the graph is cut between {} and {}", last_without->layer(), first_with->layer());
  }

  std::map<std::string, Past> past_;  // by the optimizer's label
  bool stepped_ = false, recorded_ = false;
};

class NoOptimizer : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train()) return;
    JudgeUnregistered(step, findings);
    if (told_ || step.in_no_optimizer().empty() || ++steps_ < kSteps) return;
    // A model of which nothing is updated is intended: a teacher, a target network, a copy.
    std::set<std::string> trained;
    for (const Parameter& parameter : step.parameters()) {
      if (parameter.group >= 0) trained.insert(RootOf(parameter.name));
    }
    std::vector<std::string> names;
    for (const std::string& name : step.in_no_optimizer()) {
      if (trained.contains(RootOf(name))) names.push_back(name);
    }
    if (names.empty()) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "no_optimizer", names.front(),
                    Measured("trainable parameters in no optimizer", static_cast<double>(names.size()), ">"),
                    fmt::format("{} of {} {} in no optimizer and will never change: {}",
                                base::Counted(names.size(), "trainable parameter"), RootOf(names.front()),
                                names.size() == 1 ? "is" : "are", Names(names))));
  }

 private:
  // Layers in a plain list are no part of the model, so that no optimizer got them.
  void JudgeUnregistered(const Digest& step, std::vector<Finding>* findings) {
    const std::string* const text = step.topic("unregistered");
    if (told_unregistered_ || text == nullptr) return;
    told_unregistered_ = true;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("where") || !json["where"].is_array() || json["where"].empty() ||
        !json.contains("parameters") || !json["parameters"].is_number_unsigned())
      return;
    std::vector<std::string> where;
    for (const auto& one : json["where"]) where.push_back(one.is_string() ? one.get<std::string>() : "");
    findings->push_back(MakeFinding(
        step, "no_optimizer", where.front(),
        Measured("parameters that no module and no optimizer has", json["parameters"].get<double>(), ">"),
        fmt::format(
            "{} of layers in {}, a plain list or dict, get a gradient and are in no optimizer, because the "
            "model does not know them: nn.ModuleList and nn.ModuleDict register their layers",
            base::Counted(json["parameters"].get<uint64_t>(), "parameter"), Names(where))));
  }

  int steps_ = 0;
  bool told_ = false, told_unregistered_ = false;
};

class LossSign : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    ++seen_;
    if (step.losses().size() != 1 || step.stepped().size() != 1) return;
    const auto differentiated = step.series("backward_loss");
    const Loss& loss = step.losses().front();
    if (!differentiated || loss.kind == LossKind::kOther) return;
    judged_ = true;
    const bool negative = loss.value > 0 && std::abs(*differentiated + loss.value) <= 1e-4 * loss.value &&
                          std::ranges::none_of(step.groups(), &Group::maximizes);
    steps_ = negative ? steps_ + 1 : 0;
    if (steps_ < kSteps) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "loss_sign", loss.name, Measured("what is differentiated", *differentiated, "=", -loss.value),
        fmt::format("{} is {:.4g}, and backward was called on {:.4g}: its negative, for {} steps", loss.name,
                    loss.value, *differentiated, steps_)));
  }

  // Who maximises what others minimise does so on purpose: a generator its judge's loss.
  void Returns(int64_t) override { steps_ = 0; }

  std::string Unjudged() const override {
    return seen_ >= kSteps && !judged_ ? "the loss's sign (no single loss whose direction is known)" : "";
  }

 private:
  int seen_ = 0, steps_ = 0;
  bool told_ = false, judged_ = false;
};

// The largest rate of all groups, since one group's may be zero on purpose.
class LearningRate : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    ++steps_;
    double rate = -1;
    std::string name;
    for (const Group& group : step.groups()) {
      if (!group.lr || *group.lr <= rate) continue;
      rate = *group.lr;
      name = fmt::format("context/lr/{}/{}", group.optimizer, group.number);
    }
    if (rate < 0) return;
    judged_ = true;
    // A schedule's last rate may be zero; report only a rate that stays zero.
    if (rate == 0 && ++zeros_ == kSteps) {
      told_ = true;
      findings->push_back(MakeFinding(
          step, "zero_rate", name, Measured("learning rate", 0, "="),
          before_.seen() > 0
              ? fmt::format("the learning rate has been 0 for {} steps, and was {:.3g} before", zeros_,
                            before_.last())
              : fmt::format("the learning rate has been 0 for {} steps, since the first", zeros_)));
      return;
    }
    if (rate > 0) {
      zeros_ = 0;
      // What it was for some steps: one that was high for a moment is cut by going back.
      const double stood = before_.seen() > 0 ? before_.Min() : 0;
      if (stood > 0 && cut_from_ == 0 && rate <= stood / 1000 * 1.001) {
        cut_from_ = stood;
        cut_steps_ = 0;
      }
      if (largest_ > 0 && seen_ >= 2 * kSteps && rate > 50 * largest_ && !jumped_) {
        jumped_ = true;
        Jumped(step, name, rate, largest_, findings);
      }
      largest_ = std::max(largest_, rate);
      ++seen_;
      if (cut_from_ > 0 && rate > cut_from_ / 100) cut_from_ = 0;  // a schedule that starts again
      before_.Add(rate);
    }
    if (cut_from_ == 0 || ++cut_steps_ < kSteps / 2) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "rate_cut", name, Measured("learning rate", rate, "<=", cut_from_ / 1000),
                    fmt::format("the learning rate fell from {:.3g} to {:.3g} from one step to the next",
                                cut_from_, rate)));
  }

  // What is set for some hundred steps at a time does not jump between them.
  void Returns(int64_t apart) override {
    if (apart > 2 * kSteps) *this = LearningRate();
  }

  std::string Unjudged() const override {
    return steps_ > 0 && !judged_ ? "the learning rate (none is recorded)" : "";
  }

 private:
  static void Jumped(const Digest& step, const std::string& name, double rate, double largest,
                     std::vector<Finding>* findings) {
    findings->push_back(
        MakeFinding(step, "rate_jump", name, Measured("learning rate", rate, ">", 50 * largest),
                    fmt::format("the learning rate is {:.3g}, {:.3g} times its largest so far ({:.3g})", rate,
                                rate / largest, largest)));
  }

  History before_{5};  // not of zeros
  double largest_ = 0, cut_from_ = 0;
  int64_t seen_ = 0, steps_ = 0;
  int zeros_ = 0, cut_steps_ = 0;
  bool told_ = false, jumped_ = false, judged_ = false;
};

class Decay : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    for (const Group& group : step.groups()) {
      if (!group.lr || *group.lr * group.weight_decay <= 0.1) continue;
      told_ = true;
      Finding finding = MakeFinding(step, "decay_too_strong",
                                    fmt::format("context/lr/{}/{}", group.optimizer, group.number));
      finding.measure = "learning rate x weight decay";
      finding.value = *group.lr * group.weight_decay;
      finding.comparison = ">";
      finding.threshold = 0.1;
      finding.text = fmt::format(
          "{} has weight_decay={:g} at a learning rate of {:g}: each step takes {:.0f} % of the weights away",
          group.optimizer, group.weight_decay, *group.lr, 100 * finding.value);
      findings->push_back(std::move(finding));
      return;
    }
  }

 private:
  bool told_ = false;
};

class ClippedAway : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.step().skipped()) return;
    const auto before = step.series("grad_norm");
    if (!before || !step.gradient_norm() || !(*before > 0)) return;
    const double left = *step.gradient_norm() / *before;
    steps_ = left < 1e-3 && Tiny(step) ? steps_ + 1 : 0;
    if (steps_ < kSteps) return;
    told_ = true;
    findings->push_back(MakeFinding(step, "clipped_away", "context/grad_norm",
                                    Measured("share of the gradients that clipping left", left, "<", 1e-3),
                                    fmt::format("clipping cut the norm of the gradients from {:.3g} to "
                                                "{:.3g}, and to less than a thousandth for {} steps",
                                                *before, *step.gradient_norm(), steps_)));
  }

 private:
  // A large loss that is clipped to a usual norm is no fault. An optimizer that divides by the gradients'
  // size does not mind a small one either, until it is as small as what is added to the divisor.
  static bool Tiny(const Digest& step) {
    double weights = 0, elements = 0, rate = 0;
    bool plain = true;
    for (const Parameter& parameter : step.parameters()) {
      if (parameter.group < 0 || !parameter.weight_now || !parameter.gradient_now) continue;
      const Group& group = step.groups()[static_cast<size_t>(parameter.group)];
      plain = plain && group.optimizer_class == "SGD";
      rate = std::max(rate, group.lr.value_or(0));
      weights += parameter.weight_now->l2 * parameter.weight_now->l2;
      elements += static_cast<double>(parameter.gradient_now->count);
    }
    if (elements == 0) return false;
    const double norm = *step.gradient_norm();
    return plain ? rate * norm < 3e-5 * std::sqrt(weights) : norm < 1e-6 * std::sqrt(elements);
  }

  int steps_ = 0;
  bool told_ = false;
};

// A script that trains on all data at once has the same batch from the first step on, which is no fault. A
// loader that got stuck delivered different batches before.
class SameBatch : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    // Where optimizers take turns one may be given a batch for some steps on purpose, until others have
    // stepped: the first step of each turn is looked at.
    if (turns_ > 0 && !std::exchange(returned_, false)) {
      if (--turns_ == 0) Forget();
      return;
    }
    const auto mark = step.series("batch_fingerprint");
    ++steps_;
    marked_ = marked_ || mark;
    if (!mark || !step.nonfinite().empty()) return;  // NaNs are alike, whatever they were made of
    // A policy's states, of which a step may have several, may be the same each time. What has a loss of
    // torch's, and is no handful of numbers, is a batch.
    if (!IsBatch(step)) return;
    if (seen_ && *mark == last_) {
      ++same_;
    } else {
      longest_ = std::max(longest_, same_);
      changed_ += seen_;
      same_ = 1;
    }
    last_ = *mark;
    seen_ = true;
    // Or for some turns, as what a policy has seen last: no longer than that.
    const int enough = turns_ > 0 ? std::max(5, 2 * longest_ + 1) : 5;
    if (same_ < enough || changed_ < 3) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "same_batch", "context/batch_fingerprint",
        Measured(turns_ > 0 ? "turns with the same batch" : "steps with the same batch", same_, ">=", enough),
        fmt::format("the last {} {} were given the same batch, and those before it others", same_,
                    turns_ > 0 ? "turns of an optimizer" : "steps")));
  }

  void Returns(int64_t) override {
    if (turns_ == 0) Forget();
    turns_ = kTurn;
    returned_ = true;
  }

  std::string Unjudged() const override {
    return steps_ > 0 && !marked_ ? "whether batches repeat (no batch in host memory was seen)" : "";
  }

 private:
  void Forget() {
    seen_ = false;
    same_ = changed_ = longest_ = 0;
  }

  static bool IsBatch(const Digest& step) {
    const bool known =
        std::ranges::any_of(step.losses(), [](const Loss& loss) { return loss.kind != LossKind::kOther; });
    const std::string* const text = step.topic("batch");
    if (!known || text == nullptr) return known;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array()) return known;
    double elements = 1;
    for (const auto& size : json["shape"]) elements *= size.is_number() ? size.get<double>() : 1;
    return elements >= 256;
  }

  double last_ = 0;
  bool seen_ = false, told_ = false, marked_ = false, returned_ = false;
  int64_t steps_ = 0, turns_ = 0;  // training steps; above 0: optimizers take turns, and turns are counted
  int same_ = 0, changed_ = 0, longest_ = 0;
};

// backward adds to what is there: without a reset each step descends along the sum of all that were before.
class GradientsKept : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    Count(step, "", step.series("gradients_kept"), findings);
    // Of several each has one of its own, which knows of the others' turns.
    for (const std::string& one : step.stepped())
      Count(step, "/" + one, step.series("gradients_kept/" + one), findings);
  }

  void Returns(int64_t) override { steps_[""] = 0; }

 private:
  void Count(const Digest& step, const std::string& of, std::optional<double> kept,
             std::vector<Finding>* findings) {
    int& steps = steps_[of] = kept.value_or(0) > 0 ? steps_[of] + 1 : 0;
    if (steps < kSteps || told_) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "gradients_kept", "context/gradients_kept" + of,
        Measured("steps whose gradients were added to those of the step before", steps, ">=", kSteps),
        fmt::format(
            "in {} steps {}in a row backward began with the gradients of the step before, and added to them",
            steps, of.empty() ? "" : "of " + of.substr(1) + " ")));
  }

  std::map<std::string, int> steps_;  // in a row; by "/" and the optimizer's label where there are several
  bool told_ = false;
};

// Predictions of shape [N, 1] and targets of shape [N]: each is compared with each.
class LossBroadcast : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const std::string* const text = step.topic("loss_broadcast");
    if (text == nullptr || ++steps_ < 2) return;
    told_ = true;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return;
    const auto part = [&](const char* key) { return json.contains(key) ? json[key].dump() : std::string(); };
    Finding finding =
        MakeFinding(step, "loss_broadcast", step.losses().empty() ? "" : step.losses().front().name);
    finding.measure = "shapes that a loss was given";
    finding.value = 1;
    finding.comparison = "=";
    finding.text = fmt::format(
        "the loss was given predictions of shape {} and targets of shape {}: each is compared with every "
        "other",
        part("input"), part("target"));
    findings->push_back(std::move(finding));
  }

 private:
  int steps_ = 0;
  bool told_ = false;
};

// A schedule that is stepped too often: it ends long before the training does.
class RateGone : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    double rate = -1;
    std::string name;
    for (const Group& group : step.groups()) {
      if (!group.lr || *group.lr <= rate) continue;
      rate = *group.lr;
      name = fmt::format("context/lr/{}/{}", group.optimizer, group.number);
    }
    if (rate < 0) return;
    ++seen_;
    last_.Add(rate);
    largest_ = std::max(largest_, last_.Min());  // what stood for some steps
    steps_ = rate > 0 && rate < 1e-5 * largest_ ? steps_ + 1 : 0;
    // The end of a cosine is as small, for some steps of many.
    if (steps_ < std::max<int64_t>(2 * kSteps, seen_ / 10)) return;
    told_ = true;
    findings->push_back(MakeFinding(step, "rate_gone", name,
                                    Measured("learning rate", rate, "<", 1e-5 * largest_),
                                    fmt::format("the learning rate has decayed from {:.3g} to {:.3g}, and "
                                                "has been below a hundred-thousandth for {} steps",
                                                largest_, rate, steps_)));
  }

 private:
  History last_{5};
  double largest_ = 0;
  int64_t seen_ = 0, steps_ = 0;
  bool told_ = false;
};

}  // namespace

void AddConnections(Detectors* to) {
  to->push_back(std::make_unique<NoGradient>());
  to->push_back(std::make_unique<NoOptimizer>());
}

void AddWiring(Detectors* to) {
  to->push_back(std::make_unique<LossSign>());
  to->push_back(std::make_unique<LearningRate>());
  to->push_back(std::make_unique<Decay>());
  to->push_back(std::make_unique<ClippedAway>());
  to->push_back(std::make_unique<SameBatch>());
  to->push_back(std::make_unique<GradientsKept>());
  to->push_back(std::make_unique<LossBroadcast>());
  to->push_back(std::make_unique<RateGone>());
}

}  // namespace tdbg::rules::profile
