// What the loss is computed from, as the training process saw it in torch's graph and at layers in its first
// steps (python/tdbg/adaptors/torch: loss_graph.py, made_anew.py, lone.py, batch_axis.py). Facts, each of
// several steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "rules/profile/detector.h"

namespace tdbg::rules::profile {
namespace {

constexpr int kLooks = 3;  // in a row

// One of the facts, and the detector that tells of it.
struct Fact {
  const char* name;
  const char* detector;
  const char* tensor;   // what else the same detector may have told of
  const char* measure;  // a phrase of docs/incidents.md
  std::string (*sentence)(const nlohmann::json& told);
};

std::string WordOf(const nlohmann::json& told, const char* key) {
  return told.contains(key) && told[key].is_string() ? told[key].get<std::string>() : std::string("?");
}

double AmountOf(const nlohmann::json& told, const char* key) {
  return told.contains(key) && told[key].is_number() ? told[key].get<double>() : 0;
}

std::string ShapeIn(const nlohmann::json& told) {
  return told.contains("shape") ? told["shape"].dump() : std::string("?");
}

std::string OverBatch(const nlohmann::json& told) {
  return fmt::format(
      "the last layer's outputs {} go through {} along axis 0, the batch's: each sample competes with the "
      "others of its batch, and not each class with the other classes",
      ShapeIn(told), WordOf(told, "function"));
}

std::string OfOne(const nlohmann::json& told) {
  return fmt::format(
      "the last layer's outputs {} go through {} along an axis of one element: that is always {}, whatever "
      "the model computes, and no gradient comes back",
      ShapeIn(told), WordOf(told, "function"), WordOf(told, "function") == "softmax" ? 1 : 0);
}

std::string NoLogits(const nlohmann::json& told) {
  const std::string function = WordOf(told, "function"), given = WordOf(told, "given");
  if (function != "kl_div") {
    return fmt::format("{} is given what a {} gave, and takes what the last layer itself returns", function,
                       given);
  }
  if (given.starts_with("targets")) {
    return "kl_div is called with log_target=True and is given targets above 0, which are no logarithms of "
           "probabilities";
  }
  return fmt::format(
      "kl_div is given {} where it takes logarithms of probabilities (log_softmax), which are never above 0",
      given.starts_with("numbers") ? given : "what a " + given + " gave");
}

std::string OutOfReach(const nlohmann::json& told) {
  const std::string function = WordOf(told, "function");
  const char* const range = function == "tanh"                             ? "nothing below -1 and above 1"
                            : function == "ReLU" || function == "softplus" ? "nothing below 0"
                                                                           : "nothing below 0 and above 1";
  return fmt::format(
      "the outputs that are compared with the targets come from a {}, which gives {}; {:.0f} % of the "
      "targets lie outside of that (they are between {:.4g} and {:.4g})",
      function, range, 100 * AmountOf(told, "share"), AmountOf(told, "least"), AmountOf(told, "most"));
}

std::string InPairs(const nlohmann::json& told) {
  const auto shape = [&](const char* key) {
    return told.contains(key) ? told[key].dump() : std::string("?");
  };
  return fmt::format(
      "the loss is made of differences of shape {}, of predictions of shape {}: each is compared with every "
      "target, and not only with its own",
      shape("result"), shape("input"));
}

constexpr Fact kFacts[] = {
    {"softmax_over_batch", "softmax_over_batch", "context/loss_graph/softmax_over_batch",
     "steps with a softmax over the batch", OverBatch},
    {"softmax_of_one", "softmax_of_one", "context/loss_graph/softmax_of_one",
     "steps with a softmax of one number", OfOne},
    {"not_logits", "not_logits", "context/loss_input/wrong", "batches in a row", NoLogits},
    {"out_of_reach", "targets_out_of_reach", "context/loss_graph/out_of_reach",
     "batches whose targets cannot be reached", OutOfReach},
    {"pairs", "loss_broadcast", "context/loss_graph/pairs", "steps with a loss of pairs", InPairs},
};

class LossGraph : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train()) return;
    for (size_t i = 0; i < std::size(kFacts); ++i) {
      const Fact& fact = kFacts[i];
      const auto seen = step.series(std::string("loss_graph/") + fact.name);
      if (!seen || told_[i]) continue;
      looks_[i] = *seen > 0 ? looks_[i] + 1 : 0;
      const std::string* const text = step.topic("loss_graph");
      if (looks_[i] < kLooks || text == nullptr) continue;
      const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || !json.contains(fact.name) || !json[fact.name].is_object()) continue;
      told_[i] = true;
      findings->push_back(MakeFinding(step, fact.detector, fact.tensor,
                                      Measured(fact.measure, looks_[i], ">=", kLooks),
                                      fact.sentence(json[fact.name])));
    }
  }

 private:
  int looks_[std::size(kFacts)] = {};
  bool told_[std::size(kFacts)] = {};
};

// A part of what is differentiated that has no graph, and that is not always the same: a term that was meant
// to teach. What is subtracted (an entropy of the targets) is none.
class TermWithoutGradient : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.stepped().size() > 1) return;
    const auto constant = step.series("loss_graph/constant"), whole = step.series("backward_loss");
    if (!constant || !whole) return;
    looks_ = *constant > 1e-3 * std::abs(*whole) ? looks_ + 1 : 0;
    if (looks_ == 0) return;
    least_ = looks_ == 1 ? *constant : std::min(least_, *constant);
    most_ = looks_ == 1 ? *constant : std::max(most_, *constant);
    if (looks_ < kTermLooks || most_ - least_ < 1e-3 * most_) return;
    told_ = true;
    findings->push_back(
        MakeFinding(step, "term_without_gradient", "context/loss_graph/constant",
                    Measured("part of the loss without a gradient", *constant, ">", 1e-3 * std::abs(*whole)),
                    fmt::format("of {:.4g} that backward was called on, {:.4g} is a number without a "
                                "gradient, and another one at each of {} steps: that term teaches nothing",
                                *whole, *constant, looks_)));
  }

  void Returns(int64_t) override { looks_ = 0; }

 private:
  static constexpr int kTermLooks = 5;
  int looks_ = 0;
  double least_ = 0, most_ = 0;
  bool told_ = false;
};

// Layers whose weights are others at each step, and that neither a model nor an optimizer has.
class LayerMadeAnew : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const std::string* const text = step.topic("made_anew");
    if (text == nullptr) return;
    told_ = true;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("layers") || !json["layers"].is_array() || json["layers"].empty())
      return;
    const auto& layers = json["layers"];
    const double steps = AmountOf(json, "steps");
    Finding finding = MakeFinding(step, "layer_made_anew");
    finding.measure = "steps with another weight";
    finding.value = steps;
    finding.comparison = ">=";
    finding.threshold = steps;
    const std::string first =
        layers[0].is_object()
            ? fmt::format("a {} with a weight of shape {}", WordOf(layers[0], "kind"), ShapeIn(layers[0]))
            : std::string("a layer");
    finding.text = fmt::format(
        "{}{} is made anew at every step ({:.0f} in a row): neither a model nor an optimizer has its "
        "parameters, and what they should learn is gone at the next step",
        first, layers.size() > 1 ? fmt::format(", one of {},", layers.size()) : std::string(), steps);
    findings->push_back(std::move(finding));
  }

 private:
  bool told_ = false;
};

// Parameters that get a gradient, and that neither a model nor an optimizer has: those in a plain list.
class LoneParameters : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const std::string* const text = step.topic("lone_parameters");
    if (text == nullptr) return;
    told_ = true;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || AmountOf(json, "parameters") < 1) return;
    const auto count = static_cast<uint64_t>(AmountOf(json, "parameters"));
    const bool placed = json.contains("where") && json["where"].is_array() && !json["where"].empty() &&
                        json["where"][0].is_string();
    const std::string where = placed ? json["where"][0].get<std::string>() : std::string();
    const bool shaped = json.contains("shapes") && json["shapes"].is_array() && !json["shapes"].empty();
    findings->push_back(MakeFinding(
        step, "no_optimizer", where,
        Measured("parameters that no module and no optimizer has", static_cast<double>(count), ">"),
        fmt::format("{}{}{} {} a gradient and {} in no optimizer, because no module has {}: nn.ParameterList "
                    "registers those of a list, and an attribute has to be the nn.Parameter itself, not what "
                    ".to() makes of it",
                    base::Counted(count, "parameter"),
                    shaped ? " of shape " + json["shapes"][0].dump() : std::string(),
                    placed ? " in " + where : std::string(), count == 1 ? "gets" : "get",
                    count == 1 ? "is" : "are", count == 1 ? "it" : "them")));
  }

 private:
  bool told_ = false;
};

// A recurrent layer or attention that runs over the samples of a batch.
class ReadsAcrossBatch : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_) return;
    const auto seen = step.series("batch_axis");
    if (!seen) return;
    looks_ = *seen > 0 ? looks_ + 1 : 0;
    const std::string* const text = step.topic("batch_axis");
    if (looks_ < kLooks || text == nullptr) return;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array() || json["shape"].size() < 2)
      return;
    told_ = true;
    const bool batch_first = json.contains("batch_first") && json["batch_first"] == true;
    const std::string over = json["shape"][batch_first ? 1 : 0].dump(),
                      batch = json["shape"][batch_first ? 0 : 1].dump();
    findings->push_back(
        MakeFinding(step, "reads_across_batch", WordOf(json, "module"),
                    Measured("steps in which it runs over the batch", looks_, ">=", kLooks),
                    fmt::format("{} ({}, batch_first={}) is given {}, of which the {} are the samples of the "
                                "batch: it runs from one sample to the next, and takes the {} for samples",
                                WordOf(json, "module"), WordOf(json, "kind"), batch_first ? "True" : "False",
                                ShapeIn(json), over, batch)));
  }

  void Returns(int64_t) override { looks_ = 0; }

 private:
  int looks_ = 0;
  bool told_ = false;
};

// A number that each row has beside the first input, and that is always one and the same: the time of a
// denoiser, the class of a generator.
class ArgumentConstant : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (!step.train() || told_ || step.the_loss() == nullptr) return;
    const auto input =
        step.series("input/std").has_value() ? step.series("input/std") : step.series("input/max");
    const auto rows = step.series("batch_size");
    if (!rows) return;
    constexpr std::string_view kPrefix = "argument/", kLeast = "/least";
    for (const auto& [series, least] : step.all_series()) {
      if (!series.starts_with(kPrefix) || !series.ends_with(kLeast)) continue;
      const std::string name = series.substr(kPrefix.size(), series.size() - kPrefix.size() - kLeast.size());
      const auto most = step.series("argument/" + name + "/most");
      Past& past = past_[name];
      if (!most || *most != least || (past.looks > 0 && past.value != least)) past = {.varies = true};
      if (past.varies) continue;
      // Of a first input that is the same each time all may be.
      past.value = least;
      past.inputs += past.looks == 0 || (input && past.input != *input);
      past.input = input.value_or(0);
      ++past.looks;
      past.rows += *rows;
      if (past.looks < kEnough || past.rows < kEnoughRows || past.inputs < kEnough / 2) continue;
      told_ = true;
      findings->push_back(
          MakeFinding(step, "input_constant", "context/argument/" + name + "/most",
                      Measured("batches with one value", past.looks, ">=", kEnough),
                      fmt::format("another input of the model ({}) is {:g} in all rows of each of {} batches "
                                  "that were looked at, while its first input varies",
                                  name.find_first_not_of("0123456789") == std::string::npos
                                      ? "argument " + name + ", counted from 0"
                                      : name,
                                  least, past.looks)));
      return;
    }
  }

  void Returns(int64_t) override { past_.clear(); }

 private:
  static constexpr int kEnough = 20;
  static constexpr double kEnoughRows = 500;
  struct Past {
    double value = 0, input = 0, rows = 0;
    int looks = 0, inputs = 0;
    bool varies = false;
  };
  std::map<std::string, Past> past_;  // by the argument's name
  bool told_ = false;
};

}  // namespace

void AddLossGraph(Detectors* to) {
  to->push_back(std::make_unique<LossGraph>());
  to->push_back(std::make_unique<TermWithoutGradient>());
  to->push_back(std::make_unique<LayerMadeAnew>());
  to->push_back(std::make_unique<LoneParameters>());
  to->push_back(std::make_unique<ReadsAcrossBatch>());
  to->push_back(std::make_unique<ArgumentConstant>());
}

}  // namespace tdbg::rules::profile
