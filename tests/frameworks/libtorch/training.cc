// A libtorch training with tdbg in it, for the conformance suite (../cpp/program.h): a perceptron of two
// layers, so many steps with momentum, then one evaluation. Tensors are handed over as they lie, the first
// layer's weights the other way round.
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../cpp/program.h"
#include "tdbg/run.h"

namespace {

using conformance::Seen;
using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

constexpr int64_t kIn = 3, kHidden = 5, kOut = 2, kBatch = 4;
constexpr double kLearningRate = 0.1, kMomentum = 0.9;

/// What of a step there is: tdbg's name for it, what it is, and the tensor.
struct Named {
  std::string name, kind;
  torch::Tensor tensor;
};

DType DTypeOf(const torch::Tensor& t) {
  return t.scalar_type() == torch::kFloat32   ? DType::kFloat32
         : t.scalar_type() == torch::kFloat64 ? DType::kFloat64
                                              : DType::kInt64;
}

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(kIn, kHidden));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(kHidden, kOut));
};

class Training {
 public:
  Training(std::string model, uint32_t seed)
      : model_(std::move(model)), random_(seed), optimizer_(Initialized(), Options()) {}
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void Train(std::unique_ptr<Run>* run, int steps, const std::function<void(int)>& after, Seen* seen) {
    for (int step = 0; step < steps; ++step) {
      if (*run) (*run)->BeginStep(ModeKey::kTrain);
      optimizer_.zero_grad();
      std::vector<Named> found = Forward();
      loss_.backward();
      for (const auto& p : net_.named_parameters()) {
        const std::string name = model_ + "_" + p.key();
        found.push_back(Weight(p.key(), p.value()));
        found.push_back({"gradient/" + name, "gradient", p.value().grad()});
        found.push_back({"optimizer/" + name + "/momentum", "optimizer", Momentum(p.value())});
      }
      found.push_back({"hyperparameters/learning_rate", "hyperparameter", torch::tensor({kLearningRate})});
      found.push_back({"hyperparameters/momentum", "hyperparameter", torch::tensor({kMomentum})});
      Hand(run->get(), seen, "TRAIN", found);
      optimizer_.step();
      if (*run) (*run)->EndStep();
      after(step);
    }
    const torch::NoGradGuard no_gradients;
    if (*run) (*run)->BeginStep(ModeKey::kEval);
    Hand(run->get(), seen, "EVAL", Forward());
    if (*run) (*run)->EndStep();
    for (const torch::Tensor& p : net_.parameters()) {
      const torch::Tensor rows = p.contiguous();
      seen->Result(rows.const_data_ptr(), rows.nbytes());
    }
    const uint32_t next = random_();  // in which state the random numbers are
    seen->Result(&next, sizeof next);
  }

  /// The weights after the last update, and goodbye.
  void End(Run* run, Seen* seen) {
    if (run) run->BeginEnd();
    for (const auto& p : net_.named_parameters()) {
      const Named weight = Weight(p.key(), p.value());
      Copy("final", weight, seen);
      if (run) Put(run, weight);
    }
    if (run) run->End("completed");
  }

 private:
  static torch::optim::SGDOptions Options() {
    return torch::optim::SGDOptions(kLearningRate).momentum(kMomentum);
  }
  std::vector<torch::Tensor> Initialized() {
    net_.fc1->weight.set_data(torch::empty({kIn, kHidden}).t());
    const torch::NoGradGuard no_gradients;
    for (torch::Tensor& p : net_.parameters()) p.copy_(Random(p.sizes()) - 0.5f);
    return net_.parameters();
  }
  /// Between 0 and 1. libtorch's own generator is the process's, and two trainings would share it.
  torch::Tensor Random(torch::IntArrayRef shape) {
    torch::Tensor drawn = torch::empty(shape);
    float* to = drawn.mutable_data_ptr<float>();
    for (int64_t i = 0; i < drawn.numel(); ++i) to[i] = static_cast<float>(random_()) / 4294967296.0f;
    return drawn;
  }
  /// Before the update; zeros before there was one.
  torch::Tensor Momentum(const torch::Tensor& parameter) {
    const auto state = optimizer_.state().find(parameter.unsafeGetTensorImpl());
    if (state == optimizer_.state().end()) return torch::zeros_like(parameter);
    return static_cast<torch::optim::SGDParamState&>(*state->second).momentum_buffer();
  }
  Named Weight(const std::string& key, const torch::Tensor& value) const {
    return {model_ + "_" + key, key.ends_with("bias") ? "bias" : "weight", value};
  }
  std::vector<Named> Forward() {
    const torch::Tensor x = Random({kBatch, kIn}) * 2 - 1;
    const torch::Tensor labels = (Random({kBatch}) < 0.5f).to(torch::kInt64);
    const torch::Tensor hidden = torch::tanh(net_.fc1(x)), scores = net_.fc2(hidden);
    loss_ = torch::nn::functional::cross_entropy(scores, labels);
    const torch::Tensor right = (scores.argmax(1) == labels).to(torch::kFloat64).mean();
    return {{model_ + "_input_0", "input", x},
            {model_ + "_tanh_output_0", "output", hidden},
            {model_ + "_output_0", "output", scores},
            {model_ + "_predictions", "prediction", torch::softmax(scores, 1)},
            {model_ + "_labels", "label", labels},
            {model_ + "_cross_entropy_output_0", "loss", loss_},
            {model_ + "_accuracy", "metric", right}};
  }

  static void Copy(const char* what, const Named& n, Seen* seen) {
    const torch::Tensor rows = n.tensor.detach().contiguous();
    seen->Value(what, n.name, DTypeOf(rows), rows.sizes().vec(), rows.const_data_ptr());
  }
  void Hand(Run* run, Seen* seen, const char* mode, const std::vector<Named>& found) {
    seen->Step(mode);
    for (const Named& n : found) {
      Copy("value", n, seen);
      if (run) Put(run, n);
    }
  }
  /// As a borrowed view: read during the call and not kept.
  void Put(Run* run, const Named& n) {
    if (run != met_) ids_.clear();
    met_ = run;
    auto known = ids_.find(n.name);
    if (known == ids_.end()) {
      const Run::Id id = run->Define(
          {.name = n.name, .kind = n.kind, .dtype = DTypeOf(n.tensor), .shape = n.tensor.sizes().vec()});
      known = ids_.emplace(n.name, id).first;
    }
    const torch::Tensor t = n.tensor.detach();
    run->Put(known->second, {t.const_data_ptr(),
                             DTypeOf(t),
                             {t.sizes().data(), t.sizes().size()},
                             {t.strides().data(), t.strides().size()}});
  }

  std::string model_;
  std::mt19937 random_;
  Mlp net_;
  torch::optim::SGD optimizer_;
  torch::Tensor loss_;
  std::map<std::string, Run::Id> ids_;  // of met_
  const Run* met_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) { return conformance::Program<Training>(argc, argv, TORCH_VERSION); }
