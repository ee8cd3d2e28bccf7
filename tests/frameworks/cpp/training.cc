// A hand-written training with tdbg in it, for the conformance suite (program.h): a perceptron of two layers,
// so many steps with momentum, then one evaluation.
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "tdbg/run.h"

namespace {

using conformance::Seen;
using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

constexpr size_t kIn = 3, kHidden = 5, kOut = 2, kBatch = 4;
constexpr float kLearningRate = 0.1f, kMomentum = 0.9f;

/// A tensor of the training: its memory, and what tdbg calls it. `strides` where that is not C order.
struct Tensor {
  std::string name, kind;
  DType dtype;
  std::vector<int64_t> shape;
  void* data;
  std::vector<int64_t> strides = {};
  Run::Id id = Run::kNotWanted;
};

struct Parameter {
  std::vector<float> value, gradient, momentum;
  Parameter(size_t n, std::mt19937* random) : value(n), gradient(n), momentum(n) {
    // From the engine itself: what a distribution makes of it is the library's affair.
    for (float& v : value) v = static_cast<float>((*random)()) / 4294967296.0f - 0.5f;
  }
};

class Training {
 public:
  Training(std::string model, uint32_t seed)
      : model_(std::move(model)),
        random_(seed),
        w1_(kIn * kHidden, &random_),
        b1_(kHidden, &random_),
        w2_(kOut * kHidden, &random_),
        b2_(kOut, &random_) {
    const std::array<std::pair<const char*, Parameter*>, 4> parameters = {
        {{"fc1.weight", &w1_}, {"fc1.bias", &b1_}, {"fc2.weight", &w2_}, {"fc2.bias", &b2_}}};
    const auto hidden = static_cast<int64_t>(kHidden), in = static_cast<int64_t>(kIn);
    const auto out = static_cast<int64_t>(kOut), batch = static_cast<int64_t>(kBatch);
    const std::array<std::vector<int64_t>, 4> shapes = {{{hidden, in}, {hidden}, {out, hidden}, {out}}};
    for (size_t n = 0; n < parameters.size(); ++n) {
      const auto& [leaf, p] = parameters[n];
      // The first layer's matrices lie in memory the other way round, and are handed over as they lie.
      const std::vector<int64_t> strides = n == 0 ? std::vector<int64_t>{1, hidden} : std::vector<int64_t>{};
      const std::string name = model_ + "_" + leaf;
      weights_.push_back({name, shapes[n].size() == 2 ? "weight" : "bias", DType::kFloat32, shapes[n],
                          p->value.data(), strides});
      training_.push_back(
          {"gradient/" + name, "gradient", DType::kFloat32, shapes[n], p->gradient.data(), strides});
      training_.push_back({"optimizer/" + name + "/momentum", "optimizer", DType::kFloat32, shapes[n],
                           p->momentum.data(), strides});
      all_.push_back(p);
    }
    training_.push_back(
        {"hyperparameters/learning_rate", "hyperparameter", DType::kFloat32, {1}, &learning_rate_});
    training_.push_back({"hyperparameters/momentum", "hyperparameter", DType::kFloat32, {1}, &momentum_});
    forward_ = {{model_ + "_input_0", "input", DType::kFloat32, {batch, in}, x_.data()},
                {model_ + "_tanh_output_0", "output", DType::kFloat32, {batch, hidden}, hidden_.data()},
                {model_ + "_output_0", "output", DType::kFloat32, {batch, out}, scores_.data()},
                {model_ + "_predictions", "prediction", DType::kFloat32, {batch, out}, chances_.data()},
                {model_ + "_labels", "label", DType::kInt64, {batch}, labels_.data()},
                {model_ + "_cross_entropy_output_0", "loss", DType::kFloat32, {1}, &loss_},
                {model_ + "_accuracy", "metric", DType::kFloat64, {1}, &accuracy_}};
  }
  Training(const Training&) = delete;  // tensors point into it
  Training& operator=(const Training&) = delete;

  /// \param run  may be null, and become something else in `after`
  /// \param after  called after each update with the step's number
  void Train(std::unique_ptr<Run>* run, int steps, const std::function<void(int)>& after, Seen* seen) {
    for (int step = 0; step < steps; ++step) {
      Meet(run->get());
      if (*run) (*run)->BeginStep(ModeKey::kTrain);
      Batch();
      Forward();
      Backward();
      Hand(run->get(), seen, "TRAIN", {&weights_, &training_, &forward_});
      for (Parameter* p : all_) {
        for (size_t i = 0; i < p->value.size(); ++i) {
          p->momentum[i] = kMomentum * p->momentum[i] + p->gradient[i];
          p->value[i] -= kLearningRate * p->momentum[i];
        }
      }
      if (*run) (*run)->EndStep();
      after(step);
    }
    Meet(run->get());
    if (*run) (*run)->BeginStep(ModeKey::kEval);
    Batch();
    Forward();
    Hand(run->get(), seen, "EVAL", {&forward_});
    if (*run) (*run)->EndStep();
    for (Parameter* p : all_) seen->Result(p->value.data(), p->value.size() * sizeof(float));
    const uint32_t next = random_();  // in which state the random numbers are
    seen->Result(&next, sizeof next);
  }

  /// The weights after the last update, and goodbye.
  void End(Run* run, Seen* seen) {
    if (run) run->BeginEnd();
    for (const Tensor& t : weights_) {
      Copy("final", t, seen);
      if (run) run->Put(t.id, View(t));
    }
    if (run) run->End("completed");
  }

 private:
  /// Says once what there is.
  void Meet(Run* run) {
    if (run == nullptr || run == met_) return;
    met_ = run;
    for (auto* group : {&weights_, &training_, &forward_}) {
      for (Tensor& t : *group) {
        t.id = run->Define({.name = t.name, .kind = t.kind, .dtype = t.dtype, .shape = t.shape});
      }
    }
  }
  static tdbg::TensorView View(const Tensor& t) { return {t.data, t.dtype, t.shape, t.strides}; }

  static void Copy(const char* what, const Tensor& t, Seen* seen) {
    if (t.strides.empty()) return seen->Value(what, t.name, t.dtype, t.shape, t.data);
    std::vector<float> rows;
    for (int64_t i = 0; i < t.shape[0]; ++i) {
      for (int64_t j = 0; j < t.shape[1]; ++j) {
        rows.push_back(static_cast<const float*>(t.data)[i * t.strides[0] + j * t.strides[1]]);
      }
    }
    seen->Value(what, t.name, t.dtype, t.shape, rows.data());
  }

  static void Hand(Run* run, Seen* seen, const char* mode,
                   std::initializer_list<const std::vector<Tensor>*> groups) {
    seen->Step(mode);
    for (const auto* group : groups) {
      std::vector<Run::Id> ids;
      std::vector<const void*> data;
      for (const Tensor& t : *group) {
        Copy("value", t, seen);
        if (run == nullptr || !run->Due(t.id)) continue;
        if (t.strides.empty()) {
          ids.push_back(t.id);
          data.push_back(t.data);
        } else {
          run->Put(t.id, View(t));
        }
      }
      if (run != nullptr) run->PutMany(ids, data);
    }
  }

  void Batch() {
    for (float& v : x_) v = static_cast<float>(random_()) / 2147483648.0f - 1;
    for (int64_t& label : labels_) label = random_() % kOut;
  }
  void Forward() {
    loss_ = 0;
    accuracy_ = 0;
    for (size_t row = 0; row < kBatch; ++row) {
      const float* x = &x_[row * kIn];
      float* hidden = &hidden_[row * kHidden];
      float* scores = &scores_[row * kOut];
      float* chances = &chances_[row * kOut];
      for (size_t h = 0; h < kHidden; ++h) {
        float z = b1_.value[h];
        for (size_t i = 0; i < kIn; ++i) z += w1_.value[i * kHidden + h] * x[i];
        hidden[h] = std::tanh(z);
      }
      float sum = 0;
      for (size_t k = 0; k < kOut; ++k) {
        scores[k] = b2_.value[k];
        for (size_t h = 0; h < kHidden; ++h) scores[k] += w2_.value[k * kHidden + h] * hidden[h];
        sum += std::exp(scores[k]);
      }
      for (size_t k = 0; k < kOut; ++k) chances[k] = std::exp(scores[k]) / sum;
      const auto label = static_cast<size_t>(labels_[row]);
      loss_ -= std::log(chances[label]) / kBatch;
      if (scores[label] >= scores[1 - label]) accuracy_ += 1.0 / kBatch;
    }
  }
  void Backward() {
    for (Parameter* p : all_) std::fill(p->gradient.begin(), p->gradient.end(), 0.0f);
    for (size_t row = 0; row < kBatch; ++row) {
      const float* hidden = &hidden_[row * kHidden];
      std::array<float, kHidden> d_hidden = {};
      for (size_t k = 0; k < kOut; ++k) {
        const bool right = labels_[row] == static_cast<int64_t>(k);
        const float d = (chances_[row * kOut + k] - (right ? 1.0f : 0.0f)) / kBatch;
        b2_.gradient[k] += d;
        for (size_t h = 0; h < kHidden; ++h) {
          w2_.gradient[k * kHidden + h] += d * hidden[h];
          d_hidden[h] += d * w2_.value[k * kHidden + h];
        }
      }
      for (size_t h = 0; h < kHidden; ++h) {
        const float d = d_hidden[h] * (1 - hidden[h] * hidden[h]);
        b1_.gradient[h] += d;
        for (size_t i = 0; i < kIn; ++i) w1_.gradient[i * kHidden + h] += d * x_[row * kIn + i];
      }
    }
  }

  std::string model_;
  std::mt19937 random_;
  Parameter w1_, b1_, w2_, b2_;
  std::vector<Parameter*> all_;
  std::array<float, kBatch * kIn> x_ = {};
  std::array<float, kBatch * kHidden> hidden_ = {};
  std::array<float, kBatch * kOut> scores_ = {}, chances_ = {};
  std::array<int64_t, kBatch> labels_ = {};
  float loss_ = 0, learning_rate_ = kLearningRate, momentum_ = kMomentum;
  double accuracy_ = 0;
  std::vector<Tensor> weights_, training_, forward_;
  const Run* met_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) { return conformance::Program<Training>(argc, argv, "GCC " __VERSION__); }
