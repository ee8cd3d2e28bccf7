#include "rules/profile/digest.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "rules/selector.h"

namespace tdbg::rules::profile {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kContext = "context/", kLr = "context/lr/",
                           kOptimizerStep = "context/optimizer_step/";

bool In(const TensorInfo& info, std::string_view collection) {
  return std::ranges::find(info.collections, collection) != info.collections.end();
}

std::vector<std::string> Texts(const Json& json, const char* key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return texts;
  for (const Json& item : *found) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

double NumberOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

void TakeOptions(const Json& options, Group* group) {
  const auto is_true = [&](const char* key) { return options.contains(key) && options[key] == true; };
  group->weight_decay = NumberOf(options, "weight_decay");
  group->momentum = NumberOf(options, "momentum");
  group->epsilon = NumberOf(options, "eps");
  group->dampening = NumberOf(options, "dampening");
  group->lr_decay = NumberOf(options, "lr_decay");
  if (options.contains("alpha") && options["alpha"].is_number()) group->alpha = NumberOf(options, "alpha");
  if (const auto betas = options.find("betas"); betas != options.end() && betas->is_array() &&
                                                betas->size() == 2 && (*betas)[0].is_number() &&
                                                (*betas)[1].is_number()) {
    group->betas.emplace((*betas)[0].get<double>(), (*betas)[1].get<double>());
  }
  group->decoupled = is_true("decoupled_weight_decay");
  group->maximizes = is_true("maximize");
}

LossKind KindOfLoss(const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("BCE") || has("binary_cross_entropy")) return LossKind::kBinaryCrossEntropy;
  if (has("CrossEntropy") || has("cross_entropy") || has("NLLLoss") || has("nll_loss"))
    return LossKind::kCrossEntropy;
  for (const char* const part : {"MSELoss", "mse_loss", "L1Loss", "l1_loss", "HuberLoss", "huber_loss"}) {
    if (has(part)) return LossKind::kRegression;
  }
  return LossKind::kOther;
}

Numbers NumbersOf(const Rows& rows, uint32_t i) {
  Numbers numbers;
  numbers.count = rows.count(i);
  numbers.zeros = rows.zero_count(i);
  numbers.nan = rows.nan_count(i);
  numbers.infinite = rows.pos_inf_count(i) + rows.neg_inf_count(i);
  numbers.mean = rows.mean(i);
  numbers.variance = rows.variance(i);
  numbers.l2 = rows.l2(i);
  return numbers;
}

Nonfinite NonfiniteLoss(const LossValue& loss) {
  Nonfinite one;
  one.tensor = loss.tensor;
  one.worker = loss.worker;
  one.numbers.count = 1;
  (std::isnan(loss.value) ? one.numbers.nan : one.numbers.infinite) = 1;
  return one;
}

Selector Losses() {
  auto selector = Selector::Make({"losses"}, {});
  return selector.ok() ? *std::move(selector) : Selector();
}

}  // namespace

bool Parameter::matrix() const {
  const bool multiplies =
      module_kind == "linear" || module_kind == "conv" || module_kind == "attention" || module_kind == "rnn";
  return multiplies && shape.size() >= 2 && fan_in() >= 2 && units() >= 2;
}

double Parameter::fan_in() const {
  double product = 1;
  for (const int64_t size : shape) product *= static_cast<double>(size);
  return product / std::max(units(), 1.0);
}

double Parameter::units() const {
  const size_t axis = unit_axis < 0 ? 0 : static_cast<size_t>(unit_axis);
  return axis < shape.size() ? static_cast<double>(shape[axis]) : 1;
}

Digest::Digest() : loss_reader_(Losses()) {}

std::optional<double> Digest::series(const std::string& name) const {
  const auto found = series_.find(name);
  return found == series_.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<Digest::OfRank>& Digest::by_rank(const std::string& name) const {
  static const std::vector<OfRank>* const kNone = new std::vector<OfRank>;
  const auto found = series_of_ranks_.find(name);
  return found == series_of_ranks_.end() ? *kNone : found->second;
}

std::vector<Digest::OfRank> Digest::loss_by_rank() const {
  std::vector<OfRank> values;
  for (const LossValue& one : loss_values_) {
    if (one.tensor == losses_.front().tensor) values.push_back({one.worker, one.value});
  }
  return values;
}

const Parameter* Digest::parameter(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &parameters_[found->second];
}

std::optional<double> Digest::classes() const {
  // The last linear layer that is updated. A head that shares an embedding's weight counts as the embedding.
  const Parameter* last = nullptr;
  for (const Parameter& parameter : parameters_) {
    if (parameter.shape.size() != 2 || parameter.module_kind != "linear" || parameter.group < 0) continue;
    if (last == nullptr || parameter.order > last->order) last = &parameter;
  }
  if (last == nullptr || last->units() < 2) return std::nullopt;
  return last->units();
}

std::optional<double> Digest::classes_compared() const {
  const std::string* const text = step_->Context("loss_input");
  if (text == nullptr) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("shape")) return std::nullopt;
  const Json& shape = json["shape"];  // without the batch's axis
  if (!shape.is_array() || shape.empty() || !shape[0].is_number()) return std::nullopt;
  return shape[0].get<double>();
}

std::vector<std::string> Digest::absent_of(const std::string& label) const {
  const std::string* const text = step_->Context("gradients_absent/" + label);
  if (text == nullptr) return {};
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? Texts(json, "names") : std::vector<std::string>();
}

const std::string& Digest::first_worker() const {
  static const std::string* const kNone = new std::string;
  return step_->rows().empty() ? *kNone : step_->worker_name(step_->rows().front().worker());
}

void Digest::Take(const StepContext& step) {
  step_ = &step;
  judged_ = false;
  LearnTensors();
  rounds_.Take(step);
  TakeSeries();
  if (train()) LearnContext();
  TakeRows();
  losses_.clear();
  loss_values_ = loss_reader_.Read(step);
  for (const LossValue& value : loss_values_) {
    judged_ = true;
    const std::string& name = step.tensor(value.tensor).name;
    const bool seen = std::ranges::any_of(losses_, [&](const Loss& l) { return l.tensor == value.tensor; });
    if (!seen) losses_.push_back({value.tensor, name, KindOfLoss(name), value.value});
    if (!std::isfinite(value.value)) nonfinite_.push_back(NonfiniteLoss(value));
  }
  // What is differentiated may be more than what a loss function returned.
  if (!step.skipped() &&
      std::ranges::none_of(nonfinite_, [](const Nonfinite& one) { return one.kind == Nonfinite::kLoss; })) {
    for (const StepContext::Scalar& scalar : step.scalars()) {
      const auto named = series_names_.find(scalar.tensor);
      if (named == series_names_.end() || named->second != "backward_loss" || scalar.sub.sub != 0) continue;
      if (!std::isfinite(scalar.value))
        nonfinite_.push_back(NonfiniteLoss({scalar.tensor, scalar.worker, scalar.value}));
    }
  }
  if (train()) LearnOwnLoss();
  the_loss_ = nullptr;
  if (losses_.size() != 1 || stepped_.size() > 1 || losses_.front().kind == LossKind::kOther) return;
  const Loss& loss = losses_.front();
  if (!std::isfinite(loss.value)) return;
  if (const auto whole = series("backward_loss"); train() && whole && loss.value != 0) {
    // A constant factor is how losses are weighted, scaled, or averaged over micro-steps.
    const double share = *whole / loss.value;
    if (!std::isfinite(share)) return;
    if (!share_) share_ = share;
    if (std::abs(share - *share_) > 0.1 * std::abs(*share_)) return;
  }
  the_loss_ = &losses_.front();
}

// What the script computes by itself has no name that says what it is. The training process looks at its
// graph as seldom as at its inputs.
void Digest::LearnOwnLoss() {
  if (losses_.size() != 1 || !losses_.front().name.starts_with("backward_loss")) return;
  Loss& loss = losses_.front();
  if (const auto looked = series("own_loss")) {
    LossKind& kind = own_kinds_[loss.name] = LossKind::kOther;
    const std::string* const text = *looked > 0 ? topic("own_loss") : nullptr;
    const Json json = text == nullptr ? Json() : Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("function") && json["function"].is_string())
      kind = KindOfLoss(json["function"].get<std::string>());
  }
  const auto known = own_kinds_.find(loss.name);
  // The negative of one is what the script wants to grow.
  if (known == own_kinds_.end() || loss.value < 0) return;
  loss.kind = known->second;
  loss.own = loss.kind != LossKind::kOther;
}

void Digest::LearnTensors() {
  const auto take_gradient = [this](TensorIndex tensor, const std::string& weight) {
    const auto found = by_name_.find(weight);
    if (found == by_name_.end()) return false;
    parameters_[found->second].gradient = tensor;
    known_[tensor].parameter = found->second;
    return true;
  };
  const size_t before = known_.size();
  for (auto i = static_cast<TensorIndex>(before); i < step_->tensor_count(); ++i) {
    const TensorInfo& info = step_->tensor(i);
    Known& known = known_.emplace_back();
    if (info.name.starts_with(kContext)) {
      series_names_[i] = info.name.substr(kContext.size());
      if (info.name.starts_with(kOptimizerStep)) labels_.push_back(info.name.substr(kOptimizerStep.size()));
    } else if (info.name == "backward_loss") {
      series_names_[i] = info.name;
    } else if (In(info, "losses")) {
      known.role = Role::kLoss;
    } else if (In(info, "buffers")) {
      known.role = Role::kBuffer;
    } else if (In(info, "weights") || In(info, "biases")) {
      known.role = Role::kWeight;
      known.parameter = parameters_.size();
      by_name_[info.name] = parameters_.size();
      Parameter parameter;
      parameter.name = info.name;
      parameter.module_kind = info.module_kind;
      parameter.weight = i;
      parameter.dtype = info.dtype;
      parameter.shape = info.shape;
      parameter.unit_axis = info.unit_axis;
      parameter.order = info.order;
      parameters_.push_back(std::move(parameter));
    } else if (In(info, "gradients") && info.name.starts_with("gradient/")) {
      known.role = Role::kGradient;
      orphans_.emplace_back(i, info.name.substr(sizeof("gradient/") - 1));
    }
  }
  if (known_.size() == before) return;
  for (size_t i = before; i < known_.size(); ++i) {
    const bool metric =
        known_[i].role == Role::kLoss && step_->tensor(static_cast<TensorIndex>(i)).kind == "metric";
    metrics_ |= metric;
    layers_ |= known_[i].role != Role::kNone && !metric;
  }
  topics_.clear();  // parameters that they name may be known by now
  std::erase_if(orphans_, [&](const auto& orphan) { return take_gradient(orphan.first, orphan.second); });
}

void Digest::LearnContext() {
  bool changed = false;
  const auto news = [&](const std::string& topic) -> std::optional<Json> {
    const std::string* const text = step_->Context(topic);
    if (text == nullptr || (topics_.contains(topic) && topics_[topic] == *text)) return std::nullopt;
    topics_[topic] = *text;
    Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return std::nullopt;
    changed = true;
    return json;
  };
  if (const auto json = news("parameters")) {
    in_no_optimizer_ = Texts(*json, "in_no_optimizer");
    const std::vector<std::string> frozen = Texts(*json, "frozen");
    const std::set<std::string> names(frozen.begin(), frozen.end());
    for (Parameter& parameter : parameters_) parameter.frozen = names.contains(parameter.name);
  }
  if (const auto json = news("gradients_absent")) absent_ = Texts(*json, "names");
  for (const std::string& label : labels_) {
    const auto json = news("optimizer/" + label);
    if (!json) continue;
    std::erase_if(groups_, [&](const Group& group) { return group.optimizer == label; });
    const auto groups = json->find("groups");
    if (groups == json->end() || !groups->is_array()) continue;
    const auto name = json->find("class");
    size_t number = 0;
    for (const Json& one : *groups) {
      Group group;
      group.optimizer = label;
      if (name != json->end() && name->is_string()) group.optimizer_class = name->get<std::string>();
      group.number = number++;
      if (one.is_object() && one.contains("options") && one["options"].is_object()) {
        TakeOptions(one["options"], &group);
      }
      groups_.push_back(std::move(group));
    }
  }
  if (changed) {
    // Indices of groups have changed: every optimizer's members are read again.
    for (Parameter& parameter : parameters_) parameter.group = -1;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Json json = Json::parse(topics_["optimizer/" + groups_[g].optimizer], nullptr, false);
      if (!json.is_object() || !json.contains("groups") || !json["groups"].is_array()) continue;
      if (groups_[g].number >= json["groups"].size() || !json["groups"][groups_[g].number].is_object())
        continue;
      for (const std::string& name : Texts(json["groups"][groups_[g].number], "parameters")) {
        if (const auto found = by_name_.find(name); found != by_name_.end())
          parameters_[found->second].group = static_cast<int>(g);
      }
    }
  }
  for (Group& group : groups_)
    group.lr = series("lr/" + group.optimizer + "/" + std::to_string(group.number));
  stepped_.clear();
  for (const std::string& label : labels_) {
    if (series_.contains("optimizer_step/" + label)) stepped_.push_back(label);
  }
}

void Digest::TakeSeries() {
  series_.clear();
  for (auto& [name, values] : series_of_ranks_) values.clear();
  const auto all = step_->scalars();  // by rank
  first_with_series_ = all.empty() ? 0 : all.front().worker;
  const bool several = !all.empty() && all.front().worker != all.back().worker;
  for (const StepContext::Scalar& scalar : all) {
    const auto found = series_names_.find(scalar.tensor);
    if (found == series_names_.end() || scalar.sub.sub != 0) continue;
    series_.try_emplace(found->second, scalar.value);  // the lowest rank's
    if (!several) continue;
    std::vector<OfRank>& values = series_of_ranks_[found->second];
    if (values.empty() || values.back().worker != scalar.worker)
      values.push_back({scalar.worker, scalar.value});
  }
}

void Digest::TakeRows() {
  nonfinite_.clear();
  running_means_.clear();
  gradient_norm_.reset();
  for (Parameter& parameter : parameters_) {
    parameter.weight_now.reset();
    parameter.gradient_now.reset();
  }
  double squares = 0;
  bool any = false;
  for (const Rows rows : step_->rows()) {
    for (uint32_t i = rows.begin(); i < rows.end(); ++i) {
      const TensorIndex tensor = rows.tensor(i);
      const Known& known = known_[tensor];
      if (known.role == Role::kNone || known.role == Role::kLoss) continue;
      if (rows.point(i) != Point::kNone || rows.sub(i) != 0 || rows.is_empty(i)) continue;
      // AMP finds its scale by overflows, and skipped this update.
      if (known.role == Role::kGradient && step_->skipped()) continue;
      judged_ = true;
      const bool has_parameter = known.role == Role::kWeight ||
                                 (known.role == Role::kGradient && known.parameter < parameters_.size() &&
                                  parameters_[known.parameter].gradient == tensor);
      if (!rows.is_finite(i)) {
        Nonfinite one;
        one.tensor = tensor;
        one.worker = rows.worker();
        one.numbers = NumbersOf(rows, i);
        one.kind = known.role == Role::kWeight     ? Nonfinite::kWeight
                   : known.role == Role::kGradient ? Nonfinite::kGradient
                                                   : Nonfinite::kBuffer;
        one.order = has_parameter ? parameters_[known.parameter].order : step_->tensor(tensor).order;
        nonfinite_.push_back(one);
      }
      if (known.role == Role::kBuffer && step_->tensor(tensor).name.ends_with("running_mean")) {
        const std::string& name = step_->tensor(tensor).name;
        const bool seen =
            std::ranges::any_of(running_means_, [&](const RunningMean& one) { return one.name == name; });
        if (!seen) running_means_.push_back({name, NumbersOf(rows, i)});
      }
      if (!has_parameter) continue;
      Parameter& parameter = parameters_[known.parameter];
      auto& now = known.role == Role::kWeight ? parameter.weight_now : parameter.gradient_now;
      if (now) continue;
      now = NumbersOf(rows, i);
      (known.role == Role::kWeight ? parameter.weight_of : parameter.gradient_of) = rows.worker();
      if (known.role != Role::kGradient || !now->finite() || !(now->l2 >= 0)) continue;
      squares += now->l2 * now->l2;
      any = true;
    }
  }
  if (any) gradient_norm_ = std::sqrt(squares);
}

}  // namespace tdbg::rules::profile
