#include "rules/profile/catalogue.h"

#include <array>

namespace tdbg::rules::profile {
namespace {

using enum Family;
using enum Confidence;

constexpr auto kDetectors = std::to_array<DetectorInfo>({
    {"no_gradient", kWiring, kCertain, "parameters get no gradient",
     "look for detach(), .item(), .data, no_grad() or an unused layer between them and the loss"},
    {"no_optimizer", kWiring, kCertain, "parameters are in no optimizer",
     "pass them to the optimizer, or set requires_grad_(False) where they should not train"},
    {"layer_made_anew", kWiring, kCertain, "a layer is made anew at every step",
     "make it once, in the model's __init__ (self.layer = nn.Linear(...)), and call it in forward"},
    {"loss_sign", kWiring, kCertain, "the loss is maximised",
     "remove the minus sign before the loss that backward() is called on, or the optimizer's maximize=True"},
    {"zero_rate", kWiring, kCertain, "the learning rate is zero",
     "look at the scheduler: what it multiplies by, and how often it is stepped"},
    {"rate_cut", kWiring, kCertain, "the learning rate was cut",
     "look at the scheduler: its milestones count its own steps, epochs or updates"},
    {"rate_jump", kWiring, kCertain, "the learning rate jumped",
     "look at the scheduler at that step: a unit, a restart, a state that was loaded"},
    {"decay_too_strong", kWiring, kCertain, "weight decay outweighs learning",
     "lower weight_decay: each update takes that share of every weight away"},
    {"clipped_away", kWiring, kCertain, "clipping leaves next to nothing of the gradients",
     "raise max_norm to about the usual norm of the gradients, or unscale before you clip"},
    {"same_batch", kWiring, kCertain, "the same batch comes again and again",
     "look at the data loader: an iterator that is not advanced, a cache, a sampler"},
    {"gradients_kept", kWiring, kCertain, "gradients are never reset",
     "call zero_grad() of each optimizer before its backward (once per step where they accumulate)"},
    {"loss_broadcast", kWiring, kCertain, "predictions and targets differ in shape",
     "give both one shape: squeeze(1) the predictions, or unsqueeze(1) the targets"},
    {"left_evaluating", kWiring, kCertain, "the training goes on in evaluation mode",
     "call model.train() after each evaluation"},
    {"norm_frozen", kWiring, kLikely, "a norm over batches is left in evaluation mode",
     "call model.train() after each evaluation; norms that are to stay frozen need no gradient either"},
    {"rate_gone", kWiring, kCertain, "the learning rate has decayed to nothing",
     "look at the scheduler: it may be stepped at each batch where it counts epochs"},
    {"rates_differ", kWiring, kCertain, "ranks update their copies at different learning rates",
     "set and schedule the rate in the same way on every rank: none by its rank, its time or its own loss"},
    {"clipped_elsewhere", kWiring, kCertain, "clipping does not reach the update",
     "call clip_grad_norm_ between backward() and the optimizer's step(), on what the optimizer updates"},
    {"term_without_gradient", kWiring, kLikely, "a term of the loss has no gradient",
     "look for detach(), .item(), .data or no_grad() in that term; what is for the log alone need not be "
     "added"},
    {"odd_setting", kWiring, kLikely, "a setting is out of the ordinary",
     "correct it where it is not meant; where it is, tdbg mute says so once and for all"},
    {"input_nonfinite", kData, kCertain, "the input is not finite",
     "look for missing values, a division by a deviation of 0, a logarithm of 0 in what makes the batch"},
    {"softmax_over_batch", kData, kCertain, "a softmax runs over the batch",
     "give it the axis of the classes: softmax(x, dim=-1), or dim=1 of pictures"},
    {"softmax_of_one", kData, kCertain, "a softmax has one number to choose from",
     "take a sigmoid (binary_cross_entropy_with_logits), or one output for each class"},
    {"reads_across_batch", kData, kLikely, "a sequence is read across the batch",
     "batch_first=False takes [time, batch, features], and batch_first=True [batch, time, features]: set it "
     "to what the layer is given"},
    {"not_logits", kData, kCertain, "a loss is given probabilities where it takes logits",
     "give it what it takes: the last layer's own outputs (no softmax, sigmoid or ReLU behind it), or "
     "logarithms of probabilities"},
    {"targets_out_of_reach", kData, kLikely, "targets lie where the model's last function never comes",
     "leave that function out, or scale the targets into its range"},
    {"labels_out_of_range", kData, kCertain, "labels are outside of what the loss takes",
     "map them to 0 and 1 (from -1 and 1, from 0 to 255)"},
    {"all_padding", kData, kCertain, "batches hold nothing but padding",
     "look at the tokenizer, the side it pads on, the mask, and what is cut off"},
    {"input_constant", kData, kLikely, "all inputs are the same",
     "look at what reads and transforms the data: it may return one sample, or nothing, for all of them"},
    {"input_unscaled", kData, kLikely, "inputs are not scaled",
     "scale them to about -1 to 1 (x / 255, or (x - mean) / std of the training set)"},
    {"input_shifted", kData, kLikely, "the inputs have another scale than before",
     "look for what changed in the data: a file, a unit, a transform that is left out or applied twice"},
    {"same_random_numbers", kData, kCertain, "each step draws the same random numbers",
     "set the seed once, before the loop, and seed an evaluation in torch.random.fork_rng()"},
    {"labels_one_class", kData, kLikely, "all labels are of one class",
     "look at how labels are made; a set that is sorted by class shows the first one only: shuffle it"},
    {"labels_sorted", kData, kLikely, "the data come sorted by class",
     "shuffle them (DataLoader(shuffle=True))"},
    {"targets_unscaled", kData, kLikely, "targets are not scaled",
     "scale them (less their mean, over their deviation) and undo it in what is predicted, or give the last "
     "layer that scale and bias",
     100},
    {"init_scale", kStart, kLikely, "a weight begins at the wrong scale",
     "initialise it with about 1 / sqrt(fan_in) (torch.nn.init.kaiming_uniform_)"},
    {"constant_weight", kStart, kCertain, "all elements of a weight begin equal",
     "initialise it at random: equal units stay equal"},
    {"first_loss", kStart, kLikely, "the first loss is far above guessing",
     "look at the last layer's scale, at the labels, and at what the loss is given (logits)"},
    {"logits_too_large", kStart, kLikely, "logits are too large from the start",
     "look at what they are divided by (a temperature), at the last layer's initial weights, and at what is "
     "tied to it"},
    {"nonfinite", kNumerics, kCertain, "NaN or infinity",
     "lower the learning rate, or guard the operation that made it; where tdbg does not name it (on a GPU), "
     "train once more with TDBG_NAN_ORIGIN=wait"},
    {"replica_differs", kNumerics, kCertain, "a replica is not its fellows' any more",
     "look for what one rank does alone (its own seed, a branch on the rank, an in-place write); or memory"},
    {"not_repeatable", kNumerics, kCertain, "a step that is executed again gives something else",
     "train once more with torch.use_deterministic_algorithms(True); if it stays, test the machine's memory"},
    {"weight_jump", kNumerics, kCertain, "a weight jumped",
     "look at the learning rate and the gradients of the step before; clip gradients"},
    {"weights_replaced", kNumerics, kLikely, "weights were replaced",
     "no update did that: look for a checkpoint that was loaded, a copy, a reset, memory that was damaged"},
    {"weights_put_back", kNumerics, kCertain, "weights are put back to what they were, again and again",
     "look for what loads them: a best state that is never another, a copy between two models that goes the "
     "wrong way"},
    {"weights_rounded", kNumerics, kLikely, "weights are rounded, again and again",
     "look for what writes them beside the optimizer: a save in few bits that is loaded again, a clamp"},
    {"loss_jump", kNumerics, kLikely, "the loss jumped",
     "look at that step's batch, learning rate and gradients; clip gradients"},
    {"gradient_jump", kNumerics, kLikely, "the gradients jumped",
     "look at that step's batch and loss; clip gradients"},
    {"loss_scale", kNumerics, kLikely, "the loss scale keeps falling",
     "gradients overflow at every scale: look for NaN in the model, or train in bfloat16"},
    {"gradient_underflow", kNumerics, kLikely, "gradients underflow in 16 bits",
     "scale the loss (torch.amp.GradScaler with weights in float32), or train in bfloat16", 9},
    {"weights_unchanged", kUpdates, kCertain, "updates change no weight",
     "raise the learning rate, keep weights in 32 bits, and look for what puts old weights back"},
    {"update_lost", kUpdates, kLikely, "updates are rounded away",
     "keep the weights in float32 (autocast computes in 16 bits), or round stochastically"},
    {"update_too_large", kUpdates, kLikely, "updates are larger than the weights allow",
     "lower the learning rate"},
    {"update_too_small", kUpdates, kLikely, "updates are too small to change anything",
     "raise the learning rate, or look at what scales the gradients down"},
    {"zero_gradient", kLearning, kCertain, "a gradient is exactly zero",
     "nothing flows back through the layers behind it: dead units, a saturated function, zero weights", 9},
    {"vanishing_ratio", kLearning, kLikely, "hardly any gradient reaches the first layers",
     "use residual connections, a norm, or another activation or initialisation"},
    {"dead_units", kLearning, kLikely, "units die while it trains",
     "lower the learning rate, or use LeakyReLU or GELU"},
    {"loss_back", kLearning, kLikely, "the loss is back where it began",
     "look for weights that were reset, and for labels or inputs that changed at that step", 4},
    {"diverging", kLearning, kLikely, "the loss diverges", "lower the learning rate; clip gradients"},
    {"outweighed", kLearning, kLikely, "a part of the loss outweighs what is to be learnt",
     "weight the parts so that each has its say: look at a penalty's factor, at sums where means are meant, "
     "at units"},
    {"predicts_a_constant", kLearning, kLikely, "all rows get the same prediction",
     "look for what the rows lose on their way: a code or a layer that says nothing, units that are dead, a "
     "penalty or a decay that outweighs the loss"},
    {"no_improvement", kLearning, kLikely, "nothing is learnt",
     "check that labels belong to their inputs, the learning rate, and that all layers are connected"},
    {"validation_rises", kEvaluation, kLikely, "validation gets worse while training improves",
     "stop at the best validation loss; more data, regularisation or augmentation"},
    {"evaluated_training", kEvaluation, kLikely, "an evaluation runs in training mode",
     "call model.eval() before an evaluation, and model.train() after it"},
    {"one_label", kBoosting, kCertain, "all labels are the same",
     "look at how the label is made or read: a column, a filter, a part of a set that is sorted by class"},
    {"stops_by_training", kBoosting, kCertain, "early stopping looks at the training data",
     "put the held-out set last in evals, or name it: EarlyStopping(rounds=..., data_name=...)"},
    {"no_splits", kBoosting, kCertain, "no tree has a split",
     "look at gamma or min_split_gain, min_child_weight or min_data_in_leaf (of so many rows), and whether "
     "features and labels vary"},
    {"no_progress", kBoosting, kLikely, "rounds change next to nothing",
     "raise the learning rate (0.03 to 0.3 are usual), or look at what keeps leaves at 0 (alpha, lambda, "
     "max_delta_step)"},
    {"training_worsens", kBoosting, kLikely, "the training metric gets worse from round to round",
     "lower the learning rate; of an objective of your own look at the sign of its gradient"},
    {"label_leak", kBoosting, kPossible, "one feature may hold the label",
     "look at how it is made: is it known before the label is? Train once without it and compare"},
    {"constant_evaluation", kBoosting, kCertain, "all held-out rows get the same prediction",
     "look at that set's features: order of the columns, scale, missing values"},
    {"held_out_worsens", kBoosting, kLikely, "held-out rows get worse while the training goes on",
     "stop at the best round (early_stopping_rounds); smaller trees, more rows a leaf, a lower rate"},
    {"rank_died", kJob, kCertain, "a rank died",
     "look at that rank's output and its host's log: out of memory, a signal, an error of its device"},
    {"same_on_all_ranks", kJob, kCertain, "all ranks take the same batches",
     "give each rank its part of the data: a DistributedSampler with set_epoch(), or a seed of the rank's"},
    {"ranks_apart", kJob, kLikely, "each rank trains a model of its own",
     "call the DistributedDataParallel wrapper and not its .module, or all-reduce the gradients; trainings "
     "that are meant to be apart are runs of their own"},
    {"stalled", kJob, kPossible, "the training stands still",
     "see where its processes wait (py-spy dump --pid PID): a collective, a disk, a lock; or it saves"},
    {"slow_steps", kJob, kPossible, "steps take much longer than before",
     "look at the loader, the disk, the clock of the device; a machine that has other work does that, too"},
    {"slowing_down", kJob, kPossible, "steps take longer and longer",
     "look for what grows: a list of losses with their graphs, a history that is read again, a file that is "
     "read from its beginning"},
});

}  // namespace

std::string_view FamilyName(Family family) {
  constexpr std::string_view kNames[] = {"wiring",   "start",      "data", "numerics", "updates",
                                         "learning", "evaluation", "job",  "boosting"};
  return kNames[static_cast<size_t>(family)];
}

std::string_view ConfidenceName(Confidence confidence) {
  constexpr std::string_view kNames[] = {"certain", "likely", "possible"};
  return kNames[static_cast<size_t>(confidence)];
}

std::span<const DetectorInfo> Catalogue() { return kDetectors; }

const DetectorInfo* Find(std::string_view id) {
  for (const DetectorInfo& info : kDetectors) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

bool LeadsTo(const DetectorInfo& first, int64_t first_step, const DetectorInfo& later, int64_t later_step) {
  if (&first == &later) return true;
  switch (first.family) {
    case kWiring:
      // Wiring faults are found some steps after they begin, and their effects may be seen before that.
      return later.family == kUpdates || later.family == kLearning ||
             (later.family == kNumerics && later_step >= first_step - kStateSteps) ||
             (later.family == kEvaluation && (first.id == "norm_frozen" || first.id == "odd_setting")) ||
             ((later.id == "norm_frozen" || later.id == "first_loss") && first.id == "odd_setting") ||
             (first.id == "left_evaluating" && (later.id == "norm_frozen" || later.family == kEvaluation)) ||
             (first.id == "norm_frozen" && later.id == "left_evaluating") ||
             (later.family == kData && first.id == "same_batch") ||
             (later.family == kWiring && first.id == "rate_jump" && later.id == "rate_cut") ||
             (later.family == kWiring && first.id == "zero_rate" && later.id == "rate_cut");
    case kData:
      if (first.id == "input_nonfinite") {
        return later_step >= first_step &&
               (later.family == kNumerics || later.family == kUpdates || later.family == kLearning ||
                later.family == kEvaluation || later.id == "clipped_away");
      }
      return later.family == kUpdates || later.family == kLearning || later.family == kEvaluation ||
             (later.family == kNumerics && later_step >= first_step - kStateSteps) ||
             later.id == "first_loss" || (later.family == kData && later_step >= first_step) ||
             later.id == "same_batch";
    case kStart:
      return later.family == kNumerics || later.family == kUpdates || later.family == kLearning ||
             (later.family == kStart && later.id == "first_loss");
    case kNumerics:
      // What was found before it is no consequence. What is clipped is its consequence, too.
      return later_step >= first_step && (later.family != kWiring || later.id == "clipped_away") &&
             later.family != kStart && later.family != kJob &&
             (later.family != kEvaluation || first.id == "nonfinite" || first.id == "loss_jump" ||
              first.id == "weight_jump");
    case kUpdates:
      return later.family == kUpdates || later.family == kLearning ||
             (later.family == kNumerics && later_step >= first_step);
    case kLearning:
      return later.family == kLearning || later.family == kUpdates ||
             (first.id == "loss_back" && later_step >= first_step && later.family == kNumerics) ||
             (first.id == "diverging" && later_step >= first_step && later.family != kWiring &&
              later.family != kJob);
    case kBoosting:
      return (later.family == kBoosting &&
              (first.id == "one_label" || (first.id == "no_splits" && later.id == "no_progress") ||
               (later.id == "held_out_worsens" &&
                (first.id == "stops_by_training" || first.id == "training_worsens" ||
                 first.id == "constant_evaluation")))) ||
             (first.id == "training_worsens" && later.family == kNumerics && later_step >= first_step);
    case kEvaluation:
    case kJob:
      return false;
  }
  return false;
}

}  // namespace tdbg::rules::profile
