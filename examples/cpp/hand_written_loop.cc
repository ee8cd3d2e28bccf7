// A training loop in plain C++ with tdbg in it: a two-layer perceptron learns to tell two moons apart.
//
//   tdbg run --rule exploding_tensor -- hand_written_loop
//   hand_written_loop [--steps N] [RUN_DIRECTORY]
//
// Weights, gradients and the loss are watched at every step. Without `tdbg run`, which decides what is kept,
// the weights are kept raw at every hundredth. At the end the run is opened and read back, as any other
// process could at any time.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tdbg/run.h"
#include "tdbg/trial.h"

namespace {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

constexpr int kIn = 2, kHidden = 64, kBatch = 128;

struct Parameter {
  std::vector<float> value, gradient;
  Run::Id value_id = Run::kNotWanted, gradient_id = Run::kNotWanted;
};

Parameter MakeParameter(size_t n, float scale, std::mt19937* random) {
  std::normal_distribution<float> normal(0, scale);
  Parameter p;
  p.value.resize(n);
  p.gradient.resize(n);
  for (float& v : p.value) v = normal(*random);
  return p;
}

struct Mlp {
  Parameter w1, b1, w2, b2;
  explicit Mlp(std::mt19937* random)
      : w1(MakeParameter(kHidden * kIn, 1.0f, random)),
        b1(MakeParameter(kHidden, 0.1f, random)),
        w2(MakeParameter(kHidden, 0.2f, random)),
        b2(MakeParameter(1, 0.0f, random)) {}
  std::vector<Parameter*> all() { return {&w1, &b1, &w2, &b2}; }

  /// Mean logistic loss of the batch; fills the gradients.
  float ForwardBackward(const std::vector<float>& x, const std::vector<float>& y) {
    for (Parameter* p : all()) std::fill(p->gradient.begin(), p->gradient.end(), 0.0f);
    float loss = 0;
    float hidden[kHidden];
    for (int i = 0; i < kBatch; ++i) {
      const float* in = &x[static_cast<size_t>(i) * kIn];
      float logit = b2.value[0];
      for (size_t h = 0; h < kHidden; ++h) {
        const float z = w1.value[h * kIn] * in[0] + w1.value[h * kIn + 1] * in[1] + b1.value[h];
        hidden[h] = std::tanh(z);
        logit += w2.value[h] * hidden[h];
      }
      const float target = y[static_cast<size_t>(i)];  // -1 or 1
      const float margin = target * logit;
      loss += std::log1p(std::exp(-margin)) / kBatch;
      const float d_logit = -target / (1 + std::exp(margin)) / kBatch;
      b2.gradient[0] += d_logit;
      for (size_t h = 0; h < kHidden; ++h) {
        w2.gradient[h] += d_logit * hidden[h];
        const float d_z = d_logit * w2.value[h] * (1 - hidden[h] * hidden[h]);
        b1.gradient[h] += d_z;
        w1.gradient[h * kIn] += d_z * in[0];
        w1.gradient[h * kIn + 1] += d_z * in[1];
      }
    }
    return loss;
  }
};

void TwoMoons(std::mt19937* random, std::vector<float>* x, std::vector<float>* y) {
  std::uniform_real_distribution<float> angle(0, 3.14159f);
  std::normal_distribution<float> noise(0, 0.1f);
  for (size_t i = 0; i < kBatch; ++i) {
    const bool upper = (*random)() % 2 == 0;
    const float a = angle(*random);
    (*x)[i * kIn] = (upper ? std::cos(a) : 1 - std::cos(a)) + noise(*random);
    (*x)[i * kIn + 1] = (upper ? std::sin(a) : 0.5f - std::sin(a)) + noise(*random);
    (*y)[i] = upper ? 1.0f : -1.0f;
  }
}

/// What to capture where nobody else has said it. Without a plan: the same, and no raw tensors. `tdbg run`
/// writes such a file from its flags and configuration (docs/configuration.md).
constexpr const char* kPlan = R"({
  "kind": "tdbg.plan", "major": 1, "minor": 0, "journal_bytes": 16777216,
  "collections": [
    {"name": "weights",   "kinds": ["weight"],   "keep": true, "raw": {"train": {"interval": 100}}},
    {"name": "biases",    "kinds": ["bias"],     "keep": true},
    {"name": "gradients", "kinds": ["gradient"], "keep": true},
    {"name": "losses",    "kinds": ["loss"],     "keep": true}
  ]})";

/// \param directory  empty: that of `tdbg run`, by its plan.
/// \return the run's directory, which another attempt or a training beside it may have made another one.
tdbg::Result<std::string> Train(const std::string& directory, int steps) {
  TDBG_ASSIGN_OR_RETURN(const auto run, Run::Open({.directory = directory,
                                                   .plan_json = directory.empty() ? "" : kPlan,
                                                   .adaptor = "hand-written"}));
  std::mt19937 random(1);
  Mlp net(&random);
  // 1. Say once what there is.
  const auto define = [&](Parameter* p, const std::string& name, const char* kind,
                          std::vector<int64_t> shape) {
    p->value_id = run->Define(
        {.name = "mlp_" + name, .short_name = name, .kind = kind, .dtype = DType::kFloat32, .shape = shape});
    p->gradient_id = run->Define(
        {.name = "gradient/mlp_" + name, .kind = "gradient", .dtype = DType::kFloat32, .shape = shape});
  };
  define(&net.w1, "fc1.weight", "weight", {kHidden, kIn});
  define(&net.b1, "fc1.bias", "bias", {kHidden});
  define(&net.w2, "fc2.weight", "weight", {1, kHidden});
  define(&net.b2, "fc2.bias", "bias", {1});
  const Run::Id loss_id =
      run->Define({.name = "logistic_loss_output_0", .kind = "loss", .dtype = DType::kFloat32, .shape = {1}});
  const Run::Id learning_rate_id = run->DefineScalar("learning_rate");

  std::vector<float> x(kBatch * kIn), y(kBatch);
  bool asked_to_stop = false;
  for (int step = 0; step < steps && !asked_to_stop; ++step) {
    TwoMoons(&random, &x, &y);
    const float learning_rate = step < 400 ? 0.5f : 0.05f;
    // 2. Around the optimizer's step: what is due is handed over before the update.
    const bool due = run->BeginStep(ModeKey::kTrain);
    const float loss = net.ForwardBackward(x, y);
    if (due) {
      std::vector<Run::Id> ids = {loss_id};
      std::vector<const void*> data = {&loss};
      for (Parameter* p : net.all()) {
        ids.insert(ids.end(), {p->value_id, p->gradient_id});
        data.insert(data.end(), {p->value.data(), p->gradient.data()});
      }
      run->PutMany(ids, data);
    }
    run->PutScalar(learning_rate_id, learning_rate);
    for (Parameter* p : net.all()) {
      for (size_t i = 0; i < p->value.size(); ++i) p->value[i] -= learning_rate * p->gradient[i];
    }
    run->EndStep();
    // 3. What a rule, or a person, asks of it.
    while (const auto request = run->TakeRequest()) asked_to_stop |= request->action == "stop";
  }
  // 4. The final weights, and goodbye.
  run->BeginEnd();
  for (Parameter* p : net.all()) {
    const void* data[] = {p->value.data()};
    run->PutMany({&p->value_id, 1}, data);
  }
  run->End(asked_to_stop ? "stopped" : "completed");
  return run->directory();
}

tdbg::Status ReadBack(const std::string& directory) {
  TDBG_ASSIGN_OR_RETURN(const auto trial, tdbg::Trial::Open(directory));
  TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
  (void)news;
  TDBG_ASSIGN_OR_RETURN(const auto losses, trial->series("logistic_loss_output_0", "mean"));
  std::printf("loss: %.4f -> %.4f over %zu steps\n", losses.values.front(), losses.values.back(),
              losses.values.size());
  const int64_t last = losses.steps.back();
  TDBG_ASSIGN_OR_RETURN(const auto summary, trial->summary("fc1.weight", last));
  std::printf("fc1.weight at step %ld: mean %g, l2 %g\n", static_cast<long>(last), summary.mean, summary.l2);
  TDBG_ASSIGN_OR_RETURN(const auto raw_steps, trial->tensor_steps("fc1.weight", tdbg::StepKind::kRaw));
  if (raw_steps.empty()) return tdbg::OkStatus();
  TDBG_ASSIGN_OR_RETURN(const auto value, trial->value("fc1.weight", raw_steps.back()));
  std::printf("fc1.weight[0] at step %ld: %g\n", static_cast<long>(raw_steps.back()),
              static_cast<double>(static_cast<const float*>(value.data)[0]));
  return tdbg::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::string directory = std::getenv("TDBG_RUN") != nullptr ? "" : "tdbg-runs/hand-written-loop";
  int steps = 600;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      steps = std::atoi(argv[++i]);
    } else {
      directory = argv[i];
    }
  }
  const auto run = Train(directory, steps);
  const tdbg::Status status = run.ok() ? ReadBack(*run) : run.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
