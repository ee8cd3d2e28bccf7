// A hand-written training with tdbg in it, for the conformance suite: a perceptron of two layers, so many
// steps with momentum, then one evaluation. Whatever it hands to tdbg it also writes, copied by itself, into
// OUT.
//
//   cpp_training OUT SCENARIO [--run DIRECTORY --plan FILE] [--steps N] [--ask]
//
//   train       once; with $TDBG_RUN into that run, without either into none
//   again       a second training after the first, in the same run
//   two         two at once, each with a run and a thread of its own; the second one leaves OUT.second
//   fork        after the second step a child is forked, which leaves through all frames
//   fork_train  after the second step a child is forked, which trains from the beginning
//   spawn       after the second step a process is started that trains too, and leaves OUT.spawned
//
// With --ask, each step's update is told on standard output ("after N") and answered on standard input: "go",
// "raise TEXT" or "open DIRECTORY PLAN".
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tdbg/run.h"

namespace {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

constexpr size_t kIn = 3, kHidden = 5, kOut = 2, kBatch = 4;
constexpr float kLearningRate = 0.1f, kMomentum = 0.9f;

/// Raised by the training's own code.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// In a forked child that has nothing more to do.
struct Leaves {};

/// What a training saw, as text: a line per step and value, bytes as hexadecimal numbers.
class Seen {
 public:
  void Step(const char* mode) { text_ += std::string("step ") + mode + "\n"; }
  void Value(const char* what, const std::string& name, DType dtype, const std::vector<int64_t>& shape,
             const void* data) {
    text_ += std::string(what) + " " + name + " " + std::string(DTypeName(dtype)) + " ";
    size_t bytes = ItemSize(dtype);
    for (const int64_t n : shape) {
      text_ += std::to_string(n) + ",";
      bytes *= static_cast<size_t>(n);
    }
    text_ += " " + Hex(data, bytes) + "\n";
  }
  void Line(const std::string& line) { text_ += line + "\n"; }
  void Result(const void* data, size_t bytes) { result_ += Hex(data, bytes); }
  void Write(const std::string& path) const {
    std::ofstream file(path);
    file << text_ << "result " << result_ << "\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  static std::string Hex(const void* data, size_t bytes) {
    std::string text;
    char digits[3];
    for (size_t i = 0; i < bytes; ++i) {
      std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(data)[i]);
      text += digits;
    }
    return text;
  }
  std::string text_, result_;
};

std::unique_ptr<Run> Open(const std::string& directory, const std::string& plan_file) {
  tdbg::RunOptions options{.directory = directory, .adaptor = "hand-written"};
  if (!plan_file.empty()) {
    std::stringstream text;
    text << std::ifstream(plan_file).rdbuf();
    options.plan_json = text.str();
  }
  auto run = Run::Open(options);
  if (!run.ok()) throw std::runtime_error(run.status().ToString());
  return std::move(*run);
}

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

struct Arguments {
  std::string out, scenario;
  std::string directory = {}, plan_file = {};
  int steps = 4;
  bool ask = false;
};

Arguments Parse(int argc, char** argv) {
  if (argc < 3)
    throw std::runtime_error("usage: cpp_training OUT SCENARIO [--run DIRECTORY --plan FILE] ...");
  Arguments a{.out = argv[1], .scenario = argv[2]};
  for (int i = 3; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--ask") {
      a.ask = true;
    } else if (i + 1 < argc && flag == "--run") {
      a.directory = argv[++i];
    } else if (i + 1 < argc && flag == "--plan") {
      a.plan_file = argv[++i];
    } else if (i + 1 < argc && flag == "--steps") {
      a.steps = std::stoi(argv[++i]);
    } else {
      throw std::runtime_error("what is " + flag + "?");
    }
  }
  return a;
}

std::unique_ptr<Run> OpenFor(const Arguments& a) {
  const bool launched = a.directory.empty() && std::getenv("TDBG_RUN") != nullptr;
  return launched || !a.directory.empty() ? Open(a.directory, a.plan_file) : nullptr;
}

/// Waits for it to have ended well.
void Join(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("a child process failed");
  }
}

void Ask(int step, std::unique_ptr<Run>* run) {
  std::cout << "after " << step << std::endl;
  std::string word;
  std::cin >> word;
  if (word == "raise") {
    std::string text;
    std::getline(std::cin >> std::ws, text);
    throw Mistake(text);
  }
  if (word == "open") {
    std::string directory, plan_file;
    std::getline(std::cin >> std::ws, directory);
    std::getline(std::cin, plan_file);
    *run = Open(directory, plan_file);
  } else if (word != "go") {
    throw std::runtime_error("asked, and answered \"" + word + "\"");
  }
}

void TrainOnce(const Arguments& a, uint32_t seed, Seen* seen) {
  std::unique_ptr<Run> run = OpenFor(a);
  Training training("mlp", seed);
  training.Train(
      &run, a.steps,
      [&](int step) {
        if (a.ask) Ask(step, &run);
        if (step != 1) return;
        if (a.scenario.starts_with("fork")) {
          const pid_t child = fork();
          if (child != 0) return Join(child);
          if (a.scenario == "fork_train") {
            // With the parent's run, of which it has a copy.
            Seen unseen;
            Training own("mlp", seed);
            own.Train(&run, a.steps, [](int) {}, &unseen);
            own.End(run.get(), &unseen);
          }
          throw Leaves();
        }
        if (a.scenario == "spawn") {
          const std::string out = a.out + ".spawned";
          const std::array<const char*, 4> command = {"/proc/self/exe", out.c_str(), "train", nullptr};
          pid_t child = -1;
          if (posix_spawn(&child, command[0], nullptr, nullptr, const_cast<char**>(command.data()),
                          environ) != 0)
            child = -1;
          Join(child);
        }
      },
      seen);
  training.End(run.get(), seen);
}

void TrainAgain(const Arguments& a, Seen* seen) {
  std::unique_ptr<Run> run = OpenFor(a);
  Training("mlp", 11).Train(&run, a.steps, [](int) {}, seen);
  Training second("second", 12);
  second.Train(&run, a.steps, [](int) {}, seen);
  second.End(run.get(), seen);
}

void TrainTwo(const Arguments& a, Seen* seen) {
  Seen other;
  std::string failed;
  std::thread thread([&] {
    try {
      TrainOnce(a, 12, &other);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  });
  try {
    TrainOnce(a, 11, seen);
  } catch (...) {
    thread.join();
    throw;
  }
  thread.join();
  if (!failed.empty()) throw std::runtime_error(failed);
  other.Write(a.out + ".second");
}

int Main(const Arguments& a) {
  Seen seen;
  try {
    if (a.scenario == "again") {
      TrainAgain(a, &seen);
    } else if (a.scenario == "two") {
      TrainTwo(a, &seen);
    } else {
      TrainOnce(a, 11, &seen);
    }
  } catch (const Leaves&) {
    return 0;
  } catch (const Mistake& mistake) {
    seen.Line(std::string("raised ") + mistake.what());
  }
  seen.Write(a.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("GCC %s\n", __VERSION__);
    return 0;
  }
  try {
    return Main(Parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
