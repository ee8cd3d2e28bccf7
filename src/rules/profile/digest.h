// One step as the detectors of the profile need it: gathered once, by the role of each tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rules/loss_values.h"
#include "rules/profile/rounds.h"
#include "rules/step_context.h"

namespace tdbg::rules::profile {

/// What a detector reads of a tensor at one step.
struct Numbers {
  uint64_t count = 0, zeros = 0, nan = 0, infinite = 0;
  double mean = 0, variance = 0, l2 = 0;  ///< of the finite elements

  bool finite() const { return nan == 0 && infinite == 0; }
};

/// An optimizer's parameter group at the current step.
struct Group {
  std::string optimizer;        ///< label: "Adam"
  std::string optimizer_class;  ///< "AdamW"
  size_t number = 0;
  // Its options, as they were recorded last; 0 where it has none of that name.
  double weight_decay = 0, momentum = 0, epsilon = 0, dampening = 0;
  double lr_decay = 0;                             ///< Adagrad's
  std::optional<double> alpha;                     ///< RMSprop's
  std::optional<std::pair<double, double>> betas;  ///< the Adam family's
  bool decoupled = false;    ///< weight decay is no part of the gradient, though the class has it so
  bool maximizes = false;    ///< its updates go up what is differentiated
  std::optional<double> lr;  ///< nothing: the optimizer did not step, or nobody said
};

/// A parameter of the model: its weight, its gradient, and the group that updates it.
struct Parameter {
  std::string name;  ///< of the weight
  std::string module_kind;
  DType dtype = DType::kInvalid;
  TensorIndex weight = 0;
  std::optional<TensorIndex> gradient;
  std::vector<int64_t> shape;
  int unit_axis = -1;  ///< axis of its outputs; -1: not known, then it is the first
  uint32_t order = 0;  ///< position in the model, from the input on
  bool frozen = false;
  int group = -1;  ///< index into Digest::groups; -1: in no optimizer, or not known
  // At the current step, from the lowest rank that has them:
  std::optional<Numbers> weight_now, gradient_now;
  WorkerIndex weight_of = 0, gradient_of = 0;  ///< which

  /// Is it a weight that multiplies (of a linear layer, a convolution, an attention, a recurrent cell)? False
  /// for an embedding, whose rows are used one by one, and for a script's own parameters, which may be
  /// anything.
  bool matrix() const;
  double fan_in() const;  ///< \pre matrix()
  double units() const;
  std::string layer() const { return name.substr(0, name.rfind('.')); }
};

/// A tensor that is not finite at the current step.
struct Nonfinite {
  TensorIndex tensor = 0;
  WorkerIndex worker = 0;
  Numbers numbers;
  enum Kind : uint8_t { kLoss, kWeight, kBuffer, kGradient } kind = kLoss;
  uint32_t order = 0;  ///< the parameter's; a buffer has one of its own
};

/// The running average of a norm over batches.
struct RunningMean {
  std::string name;
  Numbers now;
};

/// What a loss is, by the name that its module or function gave it, or by what its graph says that it is
/// equal to.
enum class LossKind : uint8_t { kOther, kCrossEntropy, kBinaryCrossEntropy, kRegression };

struct Loss {
  TensorIndex tensor = 0;
  std::string name;
  LossKind kind = LossKind::kOther;
  double value = 0;
  bool own = false;  ///< the script computes it by itself: the kind is of a function that is equal to it
};

class Digest {
 public:
  Digest();

  /// \pre steps come in order. Results of an earlier call become invalid.
  void Take(const StepContext& step);

  const StepContext& step() const { return *step_; }
  int64_t global_step() const { return step_->global_step(); }
  bool train() const { return step_->mode() == ModeKey::kTrain; }
  bool eval() const { return step_->mode() == ModeKey::kEval; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Nonfinite>& nonfinite() const { return nonfinite_; }
  const std::vector<Loss>& losses() const { return losses_; }  ///< of the lowest rank that has any
  /// The one loss that is trained on, whose size is known to fall while a model learns. Null where there are
  /// several (a GAN's), where it is but a part of what is differentiated, and where it may be anything.
  const Loss* the_loss() const { return the_loss_; }
  const std::vector<RunningMean>& running_means() const { return running_means_; }  ///< of the lowest rank
  /// Parameters that the optimizer of that label found without a gradient when it stepped last.
  std::vector<std::string> absent_of(const std::string& label) const;
  /// What the topic says of the step at hand; null: nothing.
  const std::string* topic(std::string_view name) const { return step_->Context(name); }
  /// Of the step's series in the collection context, without that prefix: "loss_scale", "grad_norm", ...
  std::optional<double> series(const std::string& name) const;
  /// Of one series what each rank that has it says, by rank; empty where all of the step's are one rank's.
  struct OfRank {
    WorkerIndex worker = 0;
    double value = 0;
  };
  const std::vector<OfRank>& by_rank(const std::string& name) const;
  WorkerIndex first_with_series() const { return first_with_series_; }  ///< the lowest rank that has any
  /// Every loss of the step, of each rank: by tensor, then by rank.
  const std::vector<LossValue>& losses_of_ranks() const { return loss_values_; }
  /// The first loss of the step, of each rank.
  std::vector<OfRank> loss_by_rank() const;
  /// All of the step's.
  const std::map<std::string, double>& all_series() const { return series_; }
  const std::vector<std::string>& absent() const { return absent_; }  ///< parameters without a gradient
  const std::vector<std::string>& in_no_optimizer() const { return in_no_optimizer_; }
  /// The labels of the optimizers that stepped.
  const std::vector<std::string>& stepped() const { return stepped_; }
  /// Norm of all gradients of the step together; nothing if none was recorded.
  std::optional<double> gradient_norm() const { return gradient_norm_; }
  /// By its name; null: there is none.
  const Parameter* parameter(const std::string& name) const;
  /// How many classes the model has, if that is known from the last layer.
  std::optional<double> classes() const;
  /// How many a loss for classes was given in its latest call that was looked at; nothing: none was.
  std::optional<double> classes_compared() const;
  bool judged_anything() const { return judged_; }
  /// Is it a training of boosted trees, as far as was seen? The adaptor says so; else its losses are metrics
  /// of rounds, and nothing else was recorded that a detector reads.
  bool boosted() const { return rounds_.said() || (metrics_ && !layers_); }
  const Rounds& rounds() const { return rounds_; }  ///< \pre boosted()
  const std::string& first_worker() const;

 private:
  enum class Role : uint8_t { kNone, kWeight, kGradient, kLoss, kBuffer };
  struct Known {
    Role role = Role::kNone;
    size_t parameter = 0;  // of a weight
  };

  void LearnOwnLoss();
  void LearnTensors();
  void LearnContext();
  void TakeRows();
  void TakeSeries();

  const StepContext* step_ = nullptr;
  std::vector<Known> known_;  // by TensorIndex
  std::vector<Parameter> parameters_;
  std::map<std::string, size_t> by_name_;
  std::vector<std::pair<TensorIndex, std::string>> orphans_;  // gradients whose weight was not seen yet
  std::map<std::string, std::string> topics_;                 // as last parsed
  std::vector<std::string> labels_;                           // of the optimizers seen so far
  std::map<TensorIndex, std::string> series_names_;
  std::map<std::string, double> series_;
  WorkerIndex first_with_series_ = 0;
  std::map<std::string, std::vector<OfRank>> series_of_ranks_;
  std::vector<LossValue> loss_values_;  // of all ranks
  std::vector<Group> groups_;
  std::vector<Nonfinite> nonfinite_;
  std::vector<Loss> losses_;
  std::vector<RunningMean> running_means_;
  std::vector<std::string> absent_, in_no_optimizer_, stepped_;
  std::optional<double> gradient_norm_;
  const Loss* the_loss_ = nullptr;
  std::map<std::string, LossKind> own_kinds_;  // of losses of the script's own, as they were looked at last
  std::optional<double> share_;                // what was differentiated over that loss, at first
  LossReader loss_reader_;
  Rounds rounds_;
  bool judged_ = false;
  bool metrics_ = false, layers_ = false;  // what any tensor of the run so far is
};

}  // namespace tdbg::rules::profile
