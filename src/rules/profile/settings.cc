// Settings that are out of the ordinary: of modules and of functions, as the training process read them at
// its first steps (python/tdbg/adaptors/torch/settings.py), and of optimizers, whose options are recorded
// whenever they change. One table says which range trainings use.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr int kStepsOdd = 3;  // in a row
constexpr int kStepsOutweighed = 10;
constexpr size_t kPlacesShown = 3;

// What is usual of a setting, and what it does beyond. Ranges are wider than what is advised: networks of the
// past dropped 80 %, Inception added 1 to its squares.
struct Usual {
  std::string_view of, setting;  // empty setting: each that `of` has
  double least, most;
  std::string_view below, above;  // what it does, and what to do
};

constexpr std::string_view kDrops =
    "it is the share that is dropped, and hardly anything is left; where it was meant to be kept, drop 1 - "
    "that";
constexpr std::string_view kEps =
    "it is added to every variance, and outweighs those of usual outputs; 1e-5 is usual (of BatchNorm the "
    "second argument is eps, and not momentum)";
constexpr std::string_view kTurned = "where a weight is below 0 the loss is turned around; make it positive";
constexpr std::string_view kAllZero = "what it weights adds nothing to the loss; make it positive";

constexpr auto kUsual = std::to_array<Usual>({
    {"dropout", "p", 0, 0.89, "", kDrops},
    {"drop_path", "p", 0, 0.89, "", kDrops},
    {"recurrent", "dropout", 0, 0.89, "", kDrops},
    {"attention", "dropout", 0, 0.89, "", kDrops},
    {"own", "", 0, 0.89, "", kDrops},
    {"batch_norm", "momentum", 1e-6, 0.89,
     "the running averages never leave the zeros and ones that they were made with, and evaluations use "
     "them; 0.1 is usual",
     "it is the share of the newest batch (Keras' 0.99 is 0.01 here), so that evaluations use the last batch "
     "alone; 0.1 is usual"},
    {"batch_norm", "eps", 0, 0.09, "", kEps},
    {"norm", "eps", 0, 0.09, "", kEps},
    {"norm", "elements", 2, kAny,
     "one number is normalised, which gives its bias whatever the number is; normalise over the features",
     ""},
    {"leaky_relu", "negative_slope", 0, 0.99, "what is below 0 is turned around; 0.01 is usual",
     "at 1 it is no activation at all (LeakyReLU(True) is a slope of 1, and not inplace); 0.01 is usual"},
    {"elu", "alpha", 0, kAny, "what is below 0 is turned around; 1 is usual", ""},
    {"embedding", "max_norm", 0.01, kAny,
     "each row is cut to that length whenever it is used; leave it out, or take about the usual length of a "
     "row",
     ""},
    {"cross_entropy", "label_smoothing", 0, 0.49, "",
     "it is the share that all classes get alike, and more than what the right one gets; 0.1 is usual"},
    {"cross_entropy", "weight_least", 0, kAny, kTurned, ""},
    {"cross_entropy", "weight_most", 1e-30, kAny, kAllZero, ""},
    {"nll_loss", "weight_least", 0, kAny, kTurned, ""},
    {"nll_loss", "weight_most", 1e-30, kAny, kAllZero, ""},
    {"binary_cross_entropy", "weight_least", 0, kAny, kTurned, ""},
    {"binary_cross_entropy_with_logits", "weight_least", 0, kAny, kTurned, ""},
    {"binary_cross_entropy_with_logits", "pos_weight_least", 0, kAny, kTurned, ""},
    {"binary_cross_entropy_with_logits", "pos_weight_most", 1e-30, kAny, kAllZero, ""},
    {"clip_grad_norm_", "max_norm", 1e-7, kAny,
     "nothing is left of the gradients (below 0 they are turned around); take about their usual norm", ""},
    {"clip_grad_value_", "clip_value", 1e-7, kAny,
     "nothing is left of the gradients; take about the size of their largest elements", ""},
});

std::optional<double> NumberIn(const nlohmann::json& json, const char* key) {
  if (!json.is_object() || !json.contains(key)) return std::nullopt;
  const auto& value = json[key];
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string StringIn(const nlohmann::json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
}

void TellOdd(const Digest& step, const std::string& where, const char* measure, double value,
             const char* comparison, double threshold, std::string text, std::vector<Finding>* findings) {
  findings->push_back(MakeFinding(step, "odd_setting", where, Measured(measure, value, comparison, threshold),
                                  std::move(text)));
}

// Of modules and of functions.
class OddSetting : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train()) return;
    const std::string* const text = step.topic("settings");
    if (text == nullptr || ++steps_ < 2) return;
    if (*text != text_) {
      text_ = *text;
      settings_ = nlohmann::json::parse(text_, nullptr, /*allow_exceptions=*/false);
      if (!settings_.is_array()) settings_ = nlohmann::json::array();
      for (const auto& one : settings_) Look(step, one, findings);
    }
    JudgeWeights(step, findings);
    JudgePositive(step, findings);
    JudgeIgnored(step, findings);
  }

 private:
  void Look(const Digest& step, const nlohmann::json& one, std::vector<Finding>* findings) {
    if (!one.is_object()) return;
    const std::string of = StringIn(one, "of"), setting = StringIn(one, "setting");
    const auto usual = std::ranges::find_if(kUsual, [&](const Usual& known) {
      return known.of == of && (known.setting.empty() || known.setting == setting);
    });
    // What is NaN or infinite is told as text.
    const auto number = NumberIn(one, "value");
    if (usual == kUsual.end() || (!number && StringIn(one, "value") != "nan")) return;
    const double value = number.value_or(std::nan(""));
    const bool below = value<usual->least, above = value> usual->most;
    if (number && !below && !above) return;
    const std::string key = of + "/" + setting;
    if (std::exchange(told_[key], true)) return;
    const std::string where = Places(one, of);
    const bool several = where != of && NumberIn(one, "count").value_or(0) > 1;
    TellOdd(step, FirstPlace(one), "setting", value, below ? "<" : ">", below ? usual->least : usual->most,
            fmt::format("{} {} {}={:g}: {}", where, several ? "have" : "has", Spoken(setting), value,
                        !number ? "a weight that is no number makes the loss none"
                        : below ? usual->below
                                : usual->above),
            findings);
  }

  // "weight" of weight_least.
  static std::string Spoken(const std::string& setting) {
    const size_t at = std::min(setting.rfind("_least"), setting.rfind("_most"));
    return at == std::string::npos
               ? setting
               : (setting.ends_with("_least") ? "a smallest " : "a largest ") + setting.substr(0, at);
  }

  static std::string FirstPlace(const nlohmann::json& one) {
    const bool any = one.contains("where") && one["where"].is_array() && !one["where"].empty();
    return any && one["where"][0].is_string() ? one["where"][0].get<std::string>() : StringIn(one, "of");
  }

  static std::string Places(const nlohmann::json& one, const std::string& of) {
    if (!one.contains("where") || !one["where"].is_array() || one["where"].empty()) return of;
    std::string text;
    size_t shown = 0;
    for (const auto& name : one["where"]) {
      if (shown == kPlacesShown || !name.is_string()) break;
      text += (shown++ > 0 ? ", " : "") + name.get<std::string>();
    }
    const double all = NumberIn(one, "count").value_or(0);
    if (all > static_cast<double>(shown))
      text += fmt::format(" and {:.0f} more", all - static_cast<double>(shown));
    return text;
  }

  const nlohmann::json* Entry(std::string_view function, std::string_view setting) const {
    for (const auto& one : settings_) {
      if (one.is_object() && StringIn(one, "of") == function && StringIn(one, "setting") == setting)
        return &one;
    }
    return nullptr;
  }

  // Weights of classes are to make up for how often each comes. These do the opposite: the more of it, the
  // more it counts.
  void JudgeWeights(const Digest& step, std::vector<Finding>* findings) {
    const std::string* const text = step.topic("labels");
    if (text == nullptr || *text == labels_ || told_weights_) return;
    labels_ = *text;
    const auto labels = nlohmann::json::parse(labels_, nullptr, /*allow_exceptions=*/false);
    if (!labels.is_object() || !labels.contains("counts") || !labels["counts"].is_object()) return;
    if (NumberIn(labels, "batches").value_or(0) < 10) return;
    for (const char* const function : {"cross_entropy", "nll_loss"}) {
      const nlohmann::json* const entry = Entry(function, "weight_least");
      if (entry == nullptr || !entry->contains("all") || !(*entry)["all"].is_array()) continue;
      std::vector<std::pair<double, double>> classes;  // count, weight
      for (size_t i = 0; i < (*entry)["all"].size(); ++i) {
        const auto& weight = (*entry)["all"][i];
        const double count = NumberIn(labels["counts"], std::to_string(i).c_str()).value_or(0.5);
        if (weight.is_number() && weight.get<double>() > 0) classes.emplace_back(count, weight.get<double>());
      }
      if (!FollowCounts(classes)) continue;
      told_weights_ = true;
      const auto most = *std::ranges::max_element(classes), least = *std::ranges::min_element(classes);
      TellOdd(step, function, "weight of the most frequent class over that of the rarest",
              most.second / least.second, ">", 1,
              fmt::format("{} weights classes by how often they come (of {:.0f} labels {:g}, of {:.0f} "
                          "labels {:g}): what is seldom counts for less still; take the inverse",
                          function, most.first, most.second, std::floor(least.first), least.second),
              findings);
    }
  }

  // The same of ones and zeros: the weight of ones is to make up for how seldom they are.
  void JudgePositive(const Digest& step, std::vector<Finding>* findings) {
    const auto mean = step.series("targets/mean");
    const nlohmann::json* const entry = Entry("binary_cross_entropy_with_logits", "pos_weight_most");
    if (told_positive_ || !mean || entry == nullptr) return;
    ones_ += *mean;
    if (++positive_looks_ < 20) return;
    const double share = ones_ / positive_looks_, weight = NumberIn(*entry, "value").value_or(1);
    const nlohmann::json* const smallest = Entry("binary_cross_entropy_with_logits", "pos_weight_least");
    const double least = smallest == nullptr ? weight : NumberIn(*smallest, "value").value_or(1);
    const bool seldom = share < 0.25 && weight > 0 && weight < 0.5, common = share > 0.75 && least > 2;
    if (!seldom && !common) return;
    told_positive_ = true;
    TellOdd(step, "binary_cross_entropy_with_logits", "pos_weight", seldom ? weight : least,
            seldom ? "<" : ">", 1,
            fmt::format(
                "binary_cross_entropy_with_logits has pos_weight={:.3g}, and {:.2g} % of the labels are "
                "ones: what is {} counts for {} still; take the number of zeros over that of ones",
                seldom ? weight : least, 100 * share, seldom ? "seldom" : "common", seldom ? "less" : "more"),
            findings);
  }

  static bool FollowCounts(const std::vector<std::pair<double, double>>& classes) {
    if (classes.size() < 2) return false;
    const auto n = static_cast<double>(classes.size());
    double sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
    for (const auto& [count, weight] : classes) {
      const double x = std::log(count), y = std::log(weight);
      sx += x, sy += y, sxx += x * x, syy += y * y, sxy += x * y;
    }
    const auto [low, high] = std::ranges::minmax(classes);
    const double spread = sxx - sx * sx / n, weights = syy - sy * sy / n, both = sxy - sx * sy / n;
    // Among the labels of some batches; and of few classes the order may be chance.
    return high.first >= 3 * low.first && high.second >= 3 * low.second && spread > 0 && weights > 0 &&
           both / std::sqrt(spread * weights) > 0.9 && both / spread > 0.3;
  }

  // A class of its own that the loss leaves out. Padding, and what nobody has labelled, is left out as well:
  // of words and pixels, or as most of all.
  void JudgeIgnored(const Digest& step, std::vector<Finding>* findings) {
    const auto share = step.series("labels/ignored"), count = step.series("labels/count");
    const auto rows = step.series("batch_size"), classes = step.classes_compared();
    if (told_ignored_ || !share || !count || !rows || !classes || !step.series("input/std")) return;
    const nlohmann::json* entry = Entry("cross_entropy", "ignore_index");
    if (entry == nullptr) entry = Entry("nll_loss", "ignore_index");
    const double ignored = entry == nullptr ? -1 : NumberIn(*entry, "value").value_or(-1);
    const bool one_each = *share < 1 && std::abs(*count / (1 - *share) - *rows) < 0.5;
    if (ignored < 0 || ignored >= *classes || !one_each) return;
    ++looks_;
    shares_ += *share;
    const double mean = shares_ / looks_;
    if (looks_ < 10 || mean > 0.5 || mean < 0.3 / *classes) return;
    told_ignored_ = true;
    TellOdd(step, StringIn(*entry, "of"), "share of labels that are left out", mean, ">", 0,
            fmt::format("{} has ignore_index={:g}, which is one of the {:g} classes and the label of {:.0f} "
                        "% of all rows: that class is never learnt; take a number that is no class (-100)",
                        StringIn(*entry, "of"), ignored, *classes, 100 * mean),
            findings);
  }

  std::string text_, labels_;
  double ones_ = 0;  // share of all labels looked at
  int positive_looks_ = 0;
  bool told_positive_ = false;
  nlohmann::json settings_ = nlohmann::json::array();
  std::map<std::string, bool> told_;
  int64_t steps_ = 0;
  int looks_ = 0;
  double shares_ = 0;
  bool told_weights_ = false, told_ignored_ = false;
};

// Of optimizers. Looked at in every step: a schedule may move any of them.
class OddOption : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train()) return;
    for (size_t g = 0; g < step.groups().size(); ++g) {
      const Group& group = step.groups()[g];
      if (std::ranges::find(step.stepped(), group.optimizer) == step.stepped().end()) continue;
      JudgeBetas(step, group, findings);
      JudgeAverages(step, group, findings);
      JudgeRate(step, group, g, findings);
      JudgeSign(step, group, findings);
      JudgeOutweighed(step, group, g, findings);
    }
  }

 private:
  static bool Has(const Group& group, std::string_view part) {
    return group.optimizer_class.find(part) != std::string::npos;
  }

  // Has it been so for some steps, and was it not told?
  bool Stays(const Group& group, const char* what, bool odd, int steps = kStepsOdd) {
    int& seen = seen_[fmt::format("{}/{}/{}", group.optimizer, group.number, what)];
    if (seen < 0) return false;
    seen = odd ? seen + 1 : 0;
    if (seen < steps) return false;
    seen = -1;
    return true;
  }

  void JudgeBetas(const Digest& step, const Group& group, std::vector<Finding>* findings) {
    if (!group.betas || !Has(group, "Adam")) return;
    const auto [first, second] = *group.betas;
    // Cycles of the first one come near to a second one of 0.95.
    const bool swapped = first > second + 0.05;
    if (Stays(group, "swapped", swapped)) {
      TellOdd(step, group.optimizer, "betas", first, ">", second,
              fmt::format("{} has betas=({:g}, {:g}): the first averages gradients and the second their "
                          "squares, which takes longer; (0.9, 0.999) is usual",
                          group.optimizer, first, second),
              findings);
    }
    if (Stays(group, "slow first", !swapped && first >= 0.995))
      TellSlow(step, group, "betas[0]", first, findings);
    if (Stays(group, "squares", second >= 1 || (!swapped && second < 0.5))) {
      TellOdd(step, group.optimizer, "betas[1]", second, second < 1 ? "<" : ">=", second < 1 ? 0.5 : 1,
              fmt::format("{} has betas[1]={:g}: {}; 0.999 is usual", group.optimizer, second,
                          second < 1 ? "squares of gradients are those of a step or two, and updates jump"
                                     : "the average of squares never changes"),
              findings);
    }
  }

  void JudgeAverages(const Digest& step, const Group& group, std::vector<Finding>* findings) {
    const double momentum = group.momentum;
    const bool known = Has(group, "SGD") || Has(group, "RMSprop") || Has(group, "LARS");
    if (Stays(group, "slow", known && momentum >= 0.995))
      TellSlow(step, group, "momentum", momentum, findings);
    const double dampening = group.dampening;
    if (Stays(group, "dampening", Has(group, "SGD") && momentum > 0 && dampening >= 1)) {
      TellOdd(step, group.optimizer, "dampening", dampening, ">=", 1,
              fmt::format("{} has dampening={:g}: of no gradient but the first anything is added to the "
                          "momentum; 0 is usual",
                          group.optimizer, dampening),
              findings);
    }
    const double alpha = group.alpha.value_or(0.99);
    if (Stays(group, "alpha", Has(group, "RMSprop") && (alpha < 0.3 || alpha >= 1))) {
      TellOdd(step, group.optimizer, "alpha", alpha, alpha < 1 ? "<" : ">=", alpha < 1 ? 0.3 : 1,
              fmt::format("{} has alpha={:g}: {}; 0.99 is usual", group.optimizer, alpha,
                          alpha < 1 ? "squares of gradients are those of a step or two, and updates jump"
                                    : "the average of squares never changes"),
              findings);
    }
    const double decay = group.lr_decay;
    if (Stays(group, "lr_decay", Has(group, "Adagrad") && decay >= 0.1)) {
      TellOdd(step, group.optimizer, "lr_decay", decay, ">=", 0.1,
              fmt::format(
                  "{} has lr_decay={:g}: the rate is divided by 1 + {:g} x the number of steps; 0 is usual",
                  group.optimizer, decay, decay),
              findings);
    }
  }

  static void TellSlow(const Digest& step, const Group& group, const char* what, double value,
                       std::vector<Finding>* findings) {
    TellOdd(step, group.optimizer, what, value, ">=", 0.995,
            value < 1 ? fmt::format("{} has {}={:g}: each gradient goes on for {:.0f} steps, and adds up to "
                                    "that many times itself; 0.9 is usual",
                                    group.optimizer, what, value, 1 / (1 - value))
                      : fmt::format("{} has {}={:g}: gradients add up for ever; 0.9 is usual",
                                    group.optimizer, what, value),
            findings);
  }

  void JudgeRate(const Digest& step, const Group& group, size_t number, std::vector<Finding>* findings) {
    if (Stays(group, "negative", group.lr && *group.lr < 0)) {
      TellOdd(step, group.optimizer, "learning rate", *group.lr, "<", 0,
              fmt::format("{} has a learning rate of {:g}: updates go up the loss; look at the scheduler",
                          group.optimizer, *group.lr),
              findings);
    }
    // What makes pictures, and prompts, takes such steps; and with a large epsilon they are small ones.
    const bool matrices = std::ranges::any_of(step.parameters(), [&](const Parameter& parameter) {
      return parameter.group == static_cast<int>(number) && parameter.matrix();
    });
    const bool high = group.lr && *group.lr >= 1 && Has(group, "Adam") && group.epsilon < 0.01 && matrices;
    if (Stays(group, "high", high)) {
      TellOdd(step, group.optimizer, "learning rate", *group.lr, ">=", 1,
              fmt::format("{} has a learning rate of {:g}: it moves each weight by about that at each step, "
                          "whatever the gradient; 1e-3 is usual",
                          group.optimizer, *group.lr),
              findings);
    }
  }

  // Where the loss is known to be one that falls.
  void JudgeSign(const Digest& step, const Group& group, std::vector<Finding>* findings) {
    const auto whole = step.series("backward_loss");
    const bool up =
        group.maximizes && step.the_loss() != nullptr && step.the_loss()->value > 0 && (!whole || *whole > 0);
    if (!Stays(group, "maximize", up, kStepsOutweighed)) return;
    findings->push_back(MakeFinding(step, "loss_sign", step.the_loss()->name, Measured("maximize", 1, "="),
                                    fmt::format("{} has maximize=True, and {} is a loss that is to fall",
                                                group.optimizer, step.the_loss()->name)));
  }

  // Does what is added to gradients, or to the root of their squares, leave nothing of them? Of each matrix.
  void JudgeOutweighed(const Digest& step, const Group& group, size_t number,
                       std::vector<Finding>* findings) {
    const bool adam = Has(group, "Adam");
    const bool added = group.weight_decay >= 0.1 && group.optimizer_class != "AdamW" && !group.decoupled &&
                       (group.optimizer_class == "SGD" || group.optimizer_class == "Adam");
    const bool divided = adam && group.epsilon >= 0.01 && group.lr && *group.lr <= 0.01;
    double decay = kAny, root = 0;  // decay over gradient, the least; an element of a gradient, the largest
    int matrices = 0;
    for (const Parameter& parameter : step.parameters()) {
      if (!(added || divided) || parameter.group != static_cast<int>(number) || !parameter.matrix()) continue;
      if (!parameter.weight_now || !parameter.gradient_now || !parameter.gradient_now->finite()) continue;
      const double gradient = parameter.gradient_now->l2;
      ++matrices;
      decay = std::min(decay, gradient > 0 ? group.weight_decay * parameter.weight_now->l2 / gradient : kAny);
      root = std::max(root, gradient / std::sqrt(static_cast<double>(parameter.gradient_now->count)));
    }
    const bool judged = matrices > 0 && !step.step().skipped();
    if (Stays(group, "decay", judged && added && decay > 3 && decay < kAny, kStepsOutweighed)) {
      findings->push_back(MakeFinding(
          step, "decay_too_strong", fmt::format("context/lr/{}/{}", group.optimizer, group.number),
          Measured("weight decay over gradient", decay, ">", 3),
          fmt::format("{} has weight_decay={:g}, which adds {:.3g} times as much to the gradient of each "
                      "matrix as the loss gives, for {} steps",
                      group.optimizer, group.weight_decay, decay, kStepsOutweighed)));
    }
    if (Stays(group, "eps", judged && divided && root > 0 && root < group.epsilon / 30, kStepsOutweighed)) {
      TellOdd(
          step, group.optimizer, "eps", group.epsilon, ">", 30 * root,
          fmt::format("{} has eps={:g}, and no matrix has a gradient above {:.2g} an element: updates are "
                      "the gradients over eps, {:.2g} of what the learning rate says at most; 1e-8 is usual",
                      group.optimizer, group.epsilon, root, root / group.epsilon),
          findings);
    }
  }

  std::map<std::string, int> seen_;  // steps in a row; -1: told
};

// Clipping that comes before backward, or after the update: gradients are above its limit when the optimizer
// takes them, and what it found was nothing, or the step before's. Who clips by parts has a sum above the
// limit, and finds other norms.
class ClippedElsewhere : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.step().skipped() || step.stepped().size() != 1) return;
    const auto found = step.series("grad_norm"), now = step.gradient_norm();
    const double before = std::exchange(before_, now.value_or(0));
    const auto limit = Limit(step);
    if (!found || !now || !limit || *now < 1.05 * *limit) return;
    nothing_ = *found == 0 ? nothing_ + 1 : 0;
    const bool of_before =
        std::abs(*found - before) <= 1e-4 * before && std::abs(*found - *now) > 1e-3 * *now;
    late_ = before > 0 && of_before ? late_ + 1 : 0;
    if (std::max(nothing_, late_) < kStepsOutweighed) return;
    told_ = true;
    findings->push_back(MakeFinding(
        step, "clipped_elsewhere", "context/grad_norm",
        Measured("norm of the gradients of an update", *now, ">", *limit),
        fmt::format("gradients are clipped to {:g}, and those of the update have a norm of {:.3g}: for {} "
                    "steps clipping found {}",
                    *limit, *now, kStepsOutweighed,
                    nothing_ > 0 ? "none, so that it is called before backward()"
                                 : "those of the step before, so that it is called after the update")));
  }

  void Returns(int64_t) override { *this = ClippedElsewhere(); }

 private:
  // The smallest max_norm of the first steps.
  std::optional<double> Limit(const Digest& step) {
    const std::string* const text = step.topic("settings");
    if (text == nullptr || *text == text_) return limit_;
    text_ = *text;
    limit_.reset();
    const auto json = nlohmann::json::parse(text_, nullptr, /*allow_exceptions=*/false);
    if (!json.is_array()) return limit_;
    for (const auto& one : json) {
      const auto value = NumberIn(one, "value");
      if (!one.is_object() || StringIn(one, "setting") != "max_norm" ||
          StringIn(one, "of") != "clip_grad_norm_")
        continue;
      if (value && *value > 0 && (!limit_ || *value < *limit_)) limit_ = value;
    }
    return limit_;
  }

  std::string text_;
  std::optional<double> limit_;
  double before_ = 0;
  int nothing_ = 0, late_ = 0;
  bool told_ = false;
};

}  // namespace

void AddSettings(Detectors* to) {
  to->push_back(std::make_unique<OddSetting>());
  to->push_back(std::make_unique<OddOption>());
  to->push_back(std::make_unique<ClippedElsewhere>());
}

}  // namespace tdbg::rules::profile
