// libtorch with tdbg in it: the same calls as hand_written_loop.cc, with torch::nn's own names.
//
//   libtorch_training RUN_DIRECTORY
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
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

void Put(Run* run, Run::Id id, const torch::Tensor& t) {
  if (id == Run::kNotWanted || !t.defined()) return;
  const torch::Tensor host = t.detach().cpu();  // no copy where it is there already
  run->Put(id, {host.const_data_ptr(),
                DTypeOf(host),
                {host.sizes().data(), host.sizes().size()},
                {host.strides().data(), host.strides().size()}});
}

int Train(const std::string& directory) {
  auto opened = Run::Open({.directory = directory, .adaptor = "libtorch " TORCH_VERSION});
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 1;
  }
  const std::unique_ptr<Run> run = *std::move(opened);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(10, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  struct Watched {
    torch::Tensor tensor;
    Run::Id value, gradient;
  };
  std::vector<Watched> watched;
  for (const auto& p : net->named_parameters()) {
    const std::string name = "Sequential_" + p.key();
    const std::vector<int64_t> shape = p->sizes().vec();
    const bool bias = p.key().find("bias") != std::string::npos;
    watched.push_back(
        {p.value(),
         run->Define({.name = name,
                      .short_name = p.key(),
                      .kind = bias ? "bias" : "weight",
                      .dtype = DTypeOf(p.value()),
                      .shape = shape}),
         run->Define(
             {.name = "gradient/" + name, .kind = "gradient", .dtype = DTypeOf(p.value()), .shape = shape})});
  }
  const Run::Id loss_id = run->Define({.name = "MSELoss_output_0", .kind = "loss", .dtype = DType::kFloat32});
  const torch::Tensor target_weights = torch::randn({10, 1});
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor x = torch::randn({64, 10});
    const bool due = run->BeginStep(ModeKey::kTrain);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(net->forward(x), x.matmul(target_weights));
    loss.backward();
    if (due) {  // before the update: weights as the gradients saw them
      Put(run.get(), loss_id, loss);
      for (const Watched& w : watched) {
        Put(run.get(), w.value, w.tensor);
        Put(run.get(), w.gradient, w.tensor.grad());
      }
    }
    optimizer.step();
    run->EndStep();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  run->End("completed");
  std::printf("loss: %.4f -> %.4f, %llu summaries in %s\n", first, last,
              static_cast<unsigned long long>(run->counters().summaries), run->directory().c_str());
  return last < first && run->counters().summaries == 200 * 9 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "tdbg-runs/libtorch-training";
  std::filesystem::remove_all(directory);
  return Train(directory);
}
