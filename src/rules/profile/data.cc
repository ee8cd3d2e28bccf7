// What the training is fed: its inputs, its labels, and what the loss function is given. Looked at by the
// training process at some steps (docs/incidents.md, "Data"), so that "in a row" here means looks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rules/profile/detector.h"
#include "rules/profile/history.h"

namespace tdbg::rules::profile {
namespace {

constexpr double kUnscaled = 30, kShift = 10, kBeyond = 3;
constexpr double kFew = 8;  // rows of a batch
constexpr double kCancelled = 100;
constexpr double kFarOff = 3.5;  // standard deviations

Finding Found(const Digest& step, std::string_view id, const char* series, const char* measure, double value,
              const char* comparison, double threshold, std::string text) {
  return MakeFinding(step, id, std::string("context/") + series,
                     Measured(measure, value, comparison, threshold), std::move(text));
}

// sqrt(mean of squares); nothing at a step whose input was not looked at, or is no floating point.
std::optional<double> SizeOfInput(const Digest& step) {
  const auto mean = step.series("input/mean"), deviation = step.series("input/std");
  if (!mean || !deviation) return std::nullopt;
  const double size = std::sqrt(*mean * *mean + *deviation * *deviation);
  return std::isfinite(size) ? std::optional(size) : std::nullopt;
}

// The shape that a topic tells; no array: it tells none.
nlohmann::json ShapeOf(const Digest& step, std::string_view topic) {
  const std::string* const text = step.topic(topic);
  if (text == nullptr) return {};
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("shape") ? json["shape"] : nlohmann::json();
}

// A model may be made for missing values: only what ends in a loss or gradient that is not finite is a fault.
class InputNonfinite : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const double nan = step.series("input/nan").value_or(0);
    const double infinite = step.series("input/infinite").value_or(0);
    // A GPU's extremes are not known apart from its NaN.
    if (!(nan > 0 || infinite > 0) || step.nonfinite().empty()) return;
    told_ = true;
    findings->push_back(
        Found(step, "input_nonfinite", nan > 0 ? "input/nan" : "input/infinite",
              nan > 0 ? "NaN in the input" : "infinities in the input", nan > 0 ? nan : infinite, ">", 0,
              fmt::format(
                  "{:.0f} {} of the model's first input {} {}, and the loss or its gradients are not finite",
                  nan > 0 ? nan : infinite, (nan > 0 ? nan : infinite) == 1 ? "element" : "elements",
                  (nan > 0 ? nan : infinite) == 1 ? "is" : "are", nan > 0 ? "NaN" : "infinite")));
  }

 private:
  bool told_ = false;
};

// Large numbers are a fault only where they reach a weight: a model may scale them itself. What reaches the
// first layer its gradients tell: that of the weight is the bias' times the layer's input.
class InputUnscaled : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.step().skipped()) return;
    const auto size = SizeOfInput(step);
    if (!size) return;
    if (*size <= kUnscaled) {
      looks_ = 0;
      return;
    }
    const Parameter* const first = First(step);
    const Parameter* const bias = first == nullptr ? nullptr : BiasOf(step, *first);
    if (bias == nullptr || !bias->gradient_now || !(bias->gradient_now->l2 > 0)) {
      no_bias_ = true;  // a norm follows such a layer, and scales what it gives
      return;
    }
    const double arrives = first->gradient_now->l2 / (bias->gradient_now->l2 * std::sqrt(first->fan_in()));
    if (arrives > kCancelled * *size) {
      no_bias_ = true;  // a norm over the batch follows, behind which a bias has no gradient but rounding
      looks_ = 0;
      return;
    }
    looks_ = arrives > 0.05 * *size ? looks_ + 1 : 0;
    if (looks_ < 3) return;
    told_ = true;
    const double low = step.series("input/min").value_or(0), high = step.series("input/max").value_or(0);
    findings->push_back(Found(step, "input_unscaled", "input/std", "root mean square of the input", *size,
                              ">", kUnscaled,
                              fmt::format("the model's first input is between {:.4g} and {:.4g} (mean "
                                          "{:.3g}, standard deviation {:.3g}), and reaches {} like that",
                                          low, high, step.series("input/mean").value_or(0),
                                          step.series("input/std").value_or(0), first->name)));
  }

  std::string Unjudged() const override {
    return no_bias_ && !told_ ? "whether inputs are scaled (no bias in the first layer tells what reaches it)"
                              : "";
  }

 private:
  static const Parameter* First(const Digest& step) {
    const Parameter* first = nullptr;
    for (const Parameter& parameter : step.parameters()) {
      if (!parameter.matrix() || !parameter.gradient_now || !parameter.gradient_now->finite()) continue;
      if (first == nullptr || parameter.order < first->order) first = &parameter;
    }
    return first;
  }
  // "Net_cell.bias_ih_l0" of "Net_cell.weight_ih_l0".
  static const Parameter* BiasOf(const Digest& step, const Parameter& weight) {
    const size_t dot = weight.name.rfind('.');
    const size_t at = weight.name.find("weight", dot == std::string::npos ? 0 : dot);
    if (at == std::string::npos) return nullptr;
    std::string name = weight.name;
    return step.parameter(name.replace(at, std::string_view("weight").size(), "bias"));
  }

  int looks_ = 0;
  bool told_ = false, no_bias_ = false;
};

class InputShifted : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.the_loss() == nullptr) return;
    const auto size = SizeOfInput(step);
    if (!size) return;
    const double usual = sizes_.seen() >= 10 ? sizes_.Median() : 0;
    // Of sounds and of noise of all sizes some batches are far from the median: beyond the others, too.
    const bool shifted = usual > 0 && ((*size > kShift * usual && *size > kBeyond * sizes_.Max()) ||
                                       (*size * kShift < usual && *size * kBeyond < sizes_.Min()));
    looks_ = shifted ? looks_ + 1 : 0;
    if (!shifted) sizes_.Add(*size);
    // Two silent sounds in a row are no news, two batches of them are.
    if (looks_ < (step.series("batch_size").value_or(kFew) < kFew ? 10 : 2)) return;
    told_ = true;
    findings->push_back(
        Found(step, "input_shifted", "input/std", "root mean square of the input", *size,
              *size > usual ? ">" : "<", *size > usual ? kShift * usual : usual / kShift,
              fmt::format("the model's first input has a root mean square of {:.3g}; so far {:.3g} was usual",
                          *size, usual)));
  }

  void Returns(int64_t) override { *this = InputShifted(); }

 private:
  History sizes_{20};
  int looks_ = 0;
  bool told_ = false;
};

class InputConstant : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.the_loss() == nullptr) return;
    const auto same = step.series("input/same_rows");
    if (!same) return;
    looks_ = *same > 0 ? looks_ + 1 : 0;
    if (looks_ < 10) return;
    told_ = true;
    const auto low = step.series("input/min"), high = step.series("input/max");
    const bool one = low && high && *low == *high;
    findings->push_back(Found(
        step, "input_constant", "input/same_rows", "batches of one row", looks_, ">=", 10,
        one ? fmt::format(
                  "all elements of the model's first input are {:.4g}, in {} batches that were looked at",
                  *low, looks_)
            : fmt::format("all rows of the model's first input are one and the same, in each of {} batches "
                          "that were looked at",
                          looks_)));
  }

  void Returns(int64_t) override { *this = InputConstant(); }

 private:
  int looks_ = 0;
  bool told_ = false;
};

// Class labels, and those of a binary cross entropy.
class Labels : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    const Loss* const loss = step.the_loss();
    if (!step.train() || loss == nullptr) return;
    const auto low = step.series("labels/min"), high = step.series("labels/max");
    if (!low || !high) return;
    if (loss->kind == LossKind::kBinaryCrossEntropy) JudgeRange(step, *low, *high, findings);
    const auto count = step.series("labels/count"), distinct = step.series("labels/distinct");
    if (!count || !distinct || *count < 1) return;
    ++looks_;
    all_ += *count;
    // A picture's pixels and a sentence's words are of one class together.
    rows_ += std::min(*count, step.series("batch_size").value_or(*count));
    least_ = looks_ == 1 ? *low : std::min(least_, *low);
    most_ = looks_ == 1 ? *high : std::max(most_, *high);
    const bool single = *distinct == 1 && *low == *high;
    if (single && *count >= 8) {
      ++singles_[*low];
      changes_ += last_ && *last_ != *low;
      last_ = *low;
    }
    const bool binary = loss->kind == LossKind::kBinaryCrossEntropy;
    JudgeOne(step, binary || step.classes().value_or(0) == 2, findings);
    JudgeOrder(step, findings);
  }

  // A generator tells its judge that all it made is real.
  void Returns(int64_t) override { *this = Labels(); }

 private:
  void JudgeRange(const Digest& step, double low, double high, std::vector<Finding>* findings) {
    outside_ = low < 0 || high > 1 ? outside_ + 1 : 0;
    if (outside_ < 2 || told_range_) return;
    told_range_ = true;
    findings->push_back(Found(step, "labels_out_of_range", low < 0 ? "labels/min" : "labels/max",
                              low < 0 ? "smallest label" : "largest label", low < 0 ? low : high,
                              low < 0 ? "<" : ">", low < 0 ? 0 : 1,
                              fmt::format("a binary cross entropy is given labels between {:.4g} and {:.4g}; "
                                          "they are probabilities, 0 to 1",
                                          low, high)));
  }

  // A contrastive loss has the right answer in its first column always, and other columns than the model has
  // classes; one that ranks pairs calls a binary cross entropy of their difference with ones.
  static bool OfClasses(const Digest& step, double label) {
    if (step.the_loss()->kind == LossKind::kBinaryCrossEntropy) return label == 0;
    return step.classes() && step.classes_compared() == step.classes();
  }

  // Of two classes one may be seldom: fraud, a disease. Of more, the first may be "nothing of these".
  void JudgeOne(const Digest& step, bool two, std::vector<Finding>* findings) {
    // A model that is right at once by saying yes to everything has been shown nothing else. Pairs are not
    // told apart so soon, or there is nothing to learn of them.
    if (++steps_ <= kSoon && least_ == 1 && step.series("predictions/mean").value_or(0) > kYes) ++yes_;
    const bool all_yes = yes_ >= 5 && step.the_loss()->kind == LossKind::kBinaryCrossEntropy;
    const double enough = two && !all_yes ? 5000 : 500;
    if (told_one_ || least_ != most_ || looks_ < (two && !all_yes ? 20 : 10) || rows_ < enough) return;
    if (!all_yes && !OfClasses(step, least_)) return;
    told_one_ = true;
    findings->push_back(Found(
        step, "labels_one_class", "labels/distinct", "labels of one class", rows_, ">=", enough,
        fmt::format("all {:.0f} labels that were looked at, of {} batches, are {:g}", all_, looks_, least_)));
  }

  // In a shuffled set a batch of one class alone is seldom, and then of the most frequent one. Who draws a
  // class for each batch, or trains on real and on made ones in turn, has one class after the other.
  void JudgeOrder(const Digest& step, std::vector<Finding>* findings) {
    if (told_order_ || looks_ < 16) return;
    int batches = 0, classes = 0;
    for (const auto& [label, times] : singles_) {
      batches += times;
      classes += times >= 2;
    }
    if (2 * batches < looks_ || classes < 2) return;
    double same = 0;  // the chance that two batches are of one class
    for (const auto& [label, times] : singles_) same += std::pow(times / static_cast<double>(batches), 2);
    const double by_chance = (batches - 1) * (1 - same);
    if (changes_ + kFarOff * std::sqrt(by_chance * same) > by_chance) return;
    told_order_ = true;
    findings->push_back(
        Found(step, "labels_sorted", "labels/distinct", "batches with labels of one class alone", batches,
              ">=", looks_ / 2.0,
              fmt::format("{} of {} batches that were looked at have labels of one class alone, which is not "
                          "always the same one ({} classes so far): the data come sorted",
                          batches, looks_, singles_.size())));
  }

  static constexpr int kSoon = 40;  // looks
  static constexpr double kYes = 0.98;
  std::map<double, int> singles_;  // label -> batches of it alone
  std::optional<double> last_;     // of those, the latest
  double all_ = 0, rows_ = 0, least_ = 0, most_ = 0;
  int looks_ = 0, outside_ = 0, changes_ = 0, steps_ = 0, yes_ = 0;
  bool told_range_ = false, told_one_ = false, told_order_ = false;
};

// Rows that sum to 1 where a softmax is still to come, and the like.
class NotLogits : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    // Where no loss of torch's was seen, this one's graph was: it is all of what is trained on.
    const bool unnamed =
        std::ranges::all_of(step.losses(), [](const Loss& loss) { return loss.kind == LossKind::kOther; });
    if (!step.train() || told_ || (step.the_loss() == nullptr && !unnamed)) return;
    const auto wrong = step.series("loss_input/wrong");
    const std::string* const text = step.topic("loss_input");
    if (!wrong || text == nullptr) return;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("function") || !json["function"].is_string()) return;
    const auto function = json["function"].get<std::string>();
    looks_ = *wrong > 0 ? looks_ + 1 : 0;
    const bool binary = function == "binary_cross_entropy_with_logits";
    // Logits near 0 may happen to be of one sign in a batch, but not in ten of both labels.
    if (binary) both_ = both_ || step.series("labels/distinct").value_or(0) == 2;
    if (looks_ < (binary ? 10 : 3) || (binary && !both_)) return;
    told_ = true;
    const char* const what =
        binary ? "is given values between 0 and 1 only, as a sigmoid makes them, and takes a sigmoid itself"
        : function == "nll_loss"
            ? "is given what is no logarithm of probabilities (its exponentials do not sum to 1)"
            : "is given rows that are probabilities (none is negative, each sums to 1), and takes a softmax "
              "itself";
    findings->push_back(Found(step, "not_logits", "loss_input/wrong", "batches in a row", looks_,
                              ">=", binary ? 10 : 3, fmt::format("{} {}", function, what)));
  }

 private:
  int looks_ = 0;
  bool both_ = false, told_ = false;
};

class AllPadding : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const auto padding = step.series("input/padding"), ignored = step.series("labels/ignored");
    if (padding) inputs_ = *padding > 0.999 ? inputs_ + 1 : 0;
    // Of several tasks one may have no labels for a while.
    if (ignored && step.losses().size() == 1) labels_ = *ignored == 1 ? labels_ + 1 : 0;
    if (inputs_ < 3 && labels_ < 3) return;
    told_ = true;
    const bool tokens = inputs_ >= 3;
    const nlohmann::json shape = ShapeOf(step, "input");
    findings->push_back(Found(
        step, "all_padding", tokens ? "input/padding" : "labels/ignored",
        tokens ? "share of padding" : "share of labels that are ignored", tokens ? *padding : *ignored,
        ">=", tokens ? 0.999 : 1,
        tokens ? fmt::format("{:.4g} % of the model's first input{} are padding, in {} batches in a row",
                             100 * *padding, shape.is_array() ? " " + shape.dump() : std::string(), inputs_)
               : fmt::format("every label of {} batches in a row is one that the loss ignores", labels_)));
  }

 private:
  int inputs_ = 0, labels_ = 0;
  bool told_ = false;
};

// Something sets torch's random numbers back at each step: what they are drawn for is always the same.
class SameRandomNumbers : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    // A method that looks for a minimum of one function has to be given one.
    const bool one_function = std::ranges::any_of(step.groups(), [](const Group& group) {
      return group.optimizer_class.find("LBFGS") != std::string::npos;
    });
    for (size_t i = 0; i < std::size(kGenerators); ++i) {
      const auto back = step.series(std::string("random/") + kGenerators[i]);
      if (!back) continue;
      steps_[i] = *back > 0 && !one_function ? steps_[i] + 1 : 0;
      if (steps_[i] < kStepsBack) continue;
      told_ = true;
      findings->push_back(Found(
          step, "same_random_numbers", i == 0 ? "random/cpu" : "random/cuda",
          "steps that began in the same random state", steps_[i], ">=", kStepsBack,
          fmt::format("{} steps in a row began with torch's random numbers{} in one and the same state, and "
                      "drew from them: what is random (dropout, noise, samples) is the same at each step",
                      steps_[i], i == 0 ? "" : " of the GPU")));
      return;
    }
  }

 private:
  static constexpr const char* kGenerators[] = {"cpu", "cuda"};
  static constexpr int kStepsBack = 10;
  int steps_[std::size(kGenerators)] = {};
  bool told_ = false;
};

// Not a detector itself: says once for all of them what nobody recorded.
class Recorded : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>*) override {
    if (!step.train()) return;
    ++steps_;
    inputs_ = inputs_ || step.series("input/max");
    labels_ = labels_ || step.series("labels/max");
    counted_ = counted_ || step.series("labels/count");
    targets_ = targets_ || step.series("targets/mean");
  }

  std::string Unjudged() const override {
    if (steps_ == 0) return {};
    if (!inputs_ && !labels_ && !targets_)
      return "inputs and labels (none were seen, or this framework's are not recorded)";
    if (!inputs_) return "inputs (the model was given no tensor that has statistics)";
    if (!labels_ && targets_) return {};  // of numbers
    if (!labels_) return "labels (no loss function of torch's was seen that compares with any)";
    return counted_ ? "" : "how labels are spread (on a device they are not counted)";
  }

 private:
  int64_t steps_ = 0;
  bool inputs_ = false, labels_ = false, counted_ = false, targets_ = false;
};

}  // namespace

void AddData(Detectors* to) {
  to->push_back(std::make_unique<InputNonfinite>());
  to->push_back(std::make_unique<InputUnscaled>());
  to->push_back(std::make_unique<InputShifted>());
  to->push_back(std::make_unique<InputConstant>());
  to->push_back(std::make_unique<Labels>());
  to->push_back(std::make_unique<NotLogits>());
  to->push_back(std::make_unique<AllPadding>());
  to->push_back(std::make_unique<SameRandomNumbers>());
  to->push_back(std::make_unique<Recorded>());
}

}  // namespace tdbg::rules::profile
