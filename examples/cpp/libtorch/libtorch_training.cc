// A training of libtorch's with tdbg in it: no Python in the process.
//
//   tdbg run --rule exploding_tensor -- libtorch_training
//   libtorch_training [RUN_DIRECTORY]
//
// A small network learns a linear map; weights, gradients and the loss are recorded at every step under the
// names that torch::nn gives them, the loss of a held-out batch at every fiftieth. What it prints can be
// compared with the run:
//
//   tdbg tensors RUN_DIRECTORY
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tdbg/run.h"

namespace {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

/// The types that one trains in; others have no statistics here.
DType DTypeOf(const torch::Tensor& t) {
  switch (t.scalar_type()) {
    case torch::kFloat32:
      return DType::kFloat32;
    case torch::kFloat64:
      return DType::kFloat64;
    case torch::kBFloat16:
      return DType::kBFloat16;
    case torch::kFloat16:
      return DType::kFloat16;
    default:
      return DType::kInvalid;
  }
}

/// Hands a tensor over as a borrowed view: it is read during the call and not kept.
void Put(Run* run, Run::Id id, const torch::Tensor& t) {
  if (id == Run::kNotWanted || !t.defined()) return;
  const torch::Tensor host = t.detach().cpu();  // no copy where it is there already
  run->Put(id, {host.const_data_ptr(),
                DTypeOf(host),
                {host.sizes().data(), host.sizes().size()},
                {host.strides().data(), host.strides().size()}});
}

/// A module's parameters and gradients, defined once.
class Watched {
 public:
  Watched(Run* run, const std::string& model, const torch::nn::Module& module) : run_(run) {
    for (const auto& p : module.named_parameters()) {
      const std::string name = model + "_" + p.key();
      const std::string kind = p.key().find("bias") != std::string::npos ? "bias" : "weight";
      const std::vector<int64_t> shape = p.value().sizes().vec();
      const DType dtype = DTypeOf(p.value());
      rows_.push_back({name, p.value(),
                       run->Define({.name = name,
                                    .short_name = p.key(),
                                    .kind = kind,
                                    .dtype = dtype,
                                    .shape = shape,
                                    .unit_axis = 0}),
                       run->Define({.name = "gradient/" + name,
                                    .short_name = "gradient/" + p.key(),
                                    .kind = "gradient",
                                    .dtype = dtype,
                                    .shape = shape,
                                    .unit_axis = 0})});
    }
  }
  void PutWeights() const {
    for (const Row& row : rows_) Put(run_, row.value, row.tensor);
  }
  void PutGradients() const {
    for (const Row& row : rows_) Put(run_, row.gradient, row.tensor.grad());
  }
  void Print(int step) const {
    for (const Row& row : rows_) {
      const torch::Tensor value = row.tensor.detach().to(torch::kFloat64),
                          grad = row.tensor.grad().to(torch::kFloat64);
      std::printf("%d %s mean %.12g l2 %.12g\n", step, row.name.c_str(), value.mean().item<double>(),
                  value.norm().item<double>());
      std::printf("%d gradient/%s mean %.12g l2 %.12g\n", step, row.name.c_str(), grad.mean().item<double>(),
                  grad.norm().item<double>());
    }
  }

 private:
  struct Row {
    std::string name;
    torch::Tensor tensor;
    Run::Id value, gradient;
  };
  Run* run_;
  std::vector<Row> rows_;
};

/// \param directory  empty: that of `tdbg run`.
int Train(const std::string& directory) {
  auto opened = Run::Open({.directory = directory, .adaptor = "libtorch " TORCH_VERSION});
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 1;
  }
  const std::unique_ptr<Run> run = *std::move(opened);
  run->ShareThreads(torch::get_num_threads());
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(10, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const torch::Tensor map = torch::randn({10, 1}), held_out = torch::randn({256, 10});

  const Watched watched(run.get(), "Sequential", *net);
  const Run::Id loss_id = run->Define({.name = "MSELoss_output_0", .kind = "loss", .dtype = DType::kFloat32});
  const Run::Id rate_id = run->DefineScalar("context/lr/SGD/0");
  bool asked_to_stop = false;
  for (int step = 0; step < 200 && !asked_to_stop; ++step) {
    const torch::Tensor x = torch::randn({64, 10});
    const bool due = run->BeginStep(ModeKey::kTrain);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(net->forward(x), x.matmul(map));
    loss.backward();
    if (due) {  // before the update: weights as the gradients saw them
      Put(run.get(), loss_id, loss);
      watched.PutWeights();
      watched.PutGradients();
    }
    run->PutScalar(rate_id, optimizer.param_groups()[0].options().get_lr());
    if (step % 50 == 0) {
      std::printf("%d MSELoss_output_0 mean %.12g\n", step, loss.item<double>());
      watched.Print(step);
    }
    optimizer.step();
    run->EndStep();
    while (const auto request = run->TakeRequest()) asked_to_stop |= request->action == "stop";

    if (step % 50 == 49) {
      const torch::NoGradGuard no_gradients;
      const bool eval_due = run->BeginStep(ModeKey::kEval);
      const torch::Tensor eval = torch::mse_loss(net->forward(held_out), held_out.matmul(map));
      if (eval_due) Put(run.get(), loss_id, eval);
      run->EndStep();
      std::printf("held-out loss after step %d: %.12g\n", step, eval.item<double>());
    }
  }
  run->BeginEnd();  // the final weights
  watched.PutWeights();
  run->End(asked_to_stop ? "stopped" : "completed");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool under_tdbg = std::getenv("TDBG_RUN") != nullptr;
  return Train(argc > 1 ? argv[1] : under_tdbg ? "" : "tdbg-runs/libtorch-training");
}
