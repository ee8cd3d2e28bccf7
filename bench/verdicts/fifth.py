"""The fifth part: kinds of faults, and trainings that are well, by an author who had read neither the detectors nor their page.

What each kind is, and which names of detectors would tell its cause, was committed before any of its runs was judged; each was
seen to train worse than its twin, or says what is wrong. Sources: those of faults.py and fourth.py, and G issues of libraries on
GitHub, S papers on silent corruption, Q questions asked elsewhere. What is trained: applications.py and texts.py, and what
the earlier parts train; more trainings that are well: fifth_healthy.py.
"""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import applications as ap
import architectures as a
import texts as t
import torch
import torch.nn.functional as F
from faults import HIGH, PLAIN, at_batch, kind
from torch import nn
from workloads import CLASSES, CLASSIFIERS, TOKENS, Work

SLOW = {"update_too_small", "weights_unchanged", "no_improvement", "stalled"}

# Data ------------------------------------------------------------------------------------------------------------------

@kind("data", "targets_unscaled first_loss", "Q U", make=ap.Prices)
def targets_in_dollars(w: ap.Prices) -> None:
    """Prices are learnt as they are, of some hundred thousand."""
    w.targets, w.held_targets = w.dollars[:-ap.HELD], w.dollars[-ap.HELD:]


@kind("data", "input_shifted input_unscaled validation_rises", "F Q", make=ap.Prices)
def held_out_not_standardised(w: ap.Prices) -> None:
    """What is trained on is standardised; what is held out is fed as it is in the file."""
    w.held = (w.raw[-ap.HELD:], w.district[-ap.HELD:])


@kind("data", "input_unscaled first_loss gradient_jump loss_jump", "Q H", make=ap.Prices, optimizers=["adam", "momentum"])
def missing_as_minus_999(w: ap.Prices) -> None:
    """What is missing was written as a number that no house has, and is taken for one."""
    numbers = w.numbers.masked_fill(w.missing, -999.0)
    w.inputs, w.held = ((n, d) for n, d in ((numbers[:-ap.HELD], w.inputs[1]), (numbers[-ap.HELD:], w.held[1])))


@kind("data", "targets_unscaled predicts_a_constant no_improvement", "Q", make=ap.Prices)
def scaled_by_an_outlier(w: ap.Prices) -> None:
    """Between the least and the most; the most is a price with three zeros too many, so all others are one number."""
    prices = w.dollars.clone()
    prices[7] *= 2000
    scaled = (prices - prices.min()) / (prices.max() - prices.min())
    w.targets, w.held_targets = scaled[:-ap.HELD], scaled[-ap.HELD:]


@kind("data", "input_constant no_improvement", "Q", make=ap.Ratings)
def users_all_the_same(w: ap.Ratings) -> None:
    """The users' numbers were joined by a key that is nowhere found: each is user zero."""
    w.inputs, w.held = (torch.zeros_like(w.inputs[0]), w.inputs[1]), (torch.zeros_like(w.held[0]), w.held[1])


@kind("data", "labels_one_class", "Q F", make=ap.Clicks)
def no_negatives(w: ap.Clicks) -> None:
    """What was taken is in the log, and what was not is not: all that is trained on has label one."""
    taken = w.targets == 1
    w.inputs, w.targets = tuple(x[taken] for x in w.inputs), w.targets[taken]


@kind("data", "no_improvement input_constant", "F H", families=[*CLASSIFIERS])
def erased_nearly_all(w: Work) -> None:
    """To be erased at random: a share of 0.03 was meant, and is what is left."""
    def change(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * (torch.rand(x.shape, generator=w.data) < 0.03), y
    at_batch(w, change, late=False)


@kind("data", "no_improvement targets_unscaled", "Q F", make=ap.Forecast)
def only_inputs_made_relative(w: ap.Forecast) -> None:
    """A window is given less its last value, and what follows is not: the model cannot know at which level it is."""
    w.relative = lambda x, y: (x - x[:, -1:], y)
    w.cut()


@kind("data", "input_constant no_improvement", "Q F", families=["mlp", "cnn", "rnn", "encoder"])
def divided_in_whole_numbers(w: Work) -> None:
    """Bytes over 255 without a remainder: nearly all become zero."""
    def divided(x: torch.Tensor) -> torch.Tensor:
        return ((40 * x + 120).clamp(0, 255).round() // 255).float()
    w.inputs, w.held = divided(w.inputs), divided(w.held)


@kind("data", "validation_rises", "F G", make=t.Masked)
def words_left_unmasked(w: t.Masked) -> None:
    """Words are chosen to be found, and not hidden; those of the evaluation are hidden."""
    w.hide = lambda x, hidden: x


@kind("data", "validation_rises", "F Q", families=["mlp", "cnn", "encoder"], optimizers=["sgd", "momentum", "adagrad"])
def classes_numbered_anew(w: Work) -> None:
    """The held-out folder numbers the classes that it has in an order of its own."""
    w.held_targets = (w.held_targets * 3 + 1) % CLASSES


@kind("data", "input_constant same_batch", "N", make=a.Dqn)
def memory_not_filled_yet(w: a.Dqn) -> None:
    """Drawn from all of a memory of 4,000 batches of which some have been lived: the rest are zeros that were never seen."""
    def batch() -> Any:
        w.live()
        chosen = torch.randint(0, 4000, (4,), generator=w.order)
        empty = tuple(torch.zeros_like(part) for part in w.kept[0])
        parts = [torch.cat(part) for part in zip(*(w.kept[i] if i < len(w.kept) else empty for i in chosen))]
        return parts[0], parts[1:]
    w.batch = batch


@kind("data", "predicts_a_constant no_improvement", "F Q", make=ap.Claims)
def weighted_by_their_counts(w: ap.Claims) -> None:
    """What is seldom is weighted by how seldom it is, and not by one over it."""
    w.weight = 1 / 19


@kind("data", "nonfinite all_padding labels_out_of_range labels_one_class", "G", make=t.Answers)
def answers_cut_off(w: t.Answers) -> None:
    """Texts are cut at a length that has room for what is asked and none for the answer: no label is left to be learnt."""
    own = w.batch

    def batch() -> Any:
        (x,), y = own()
        return (x[:, :10],), y[:, :10]
    w.batch = batch


@kind("data", "same_random_numbers same_batch validation_rises predicts_a_constant", "F T", make=a.Diffusion)
def seeded_at_each_step(w: a.Diffusion) -> None:
    """The seed is set within the loop: the same noise and the same times at each step."""
    own = w.forward

    def forward(x: torch.Tensor) -> Any:
        if w.model.training:
            torch.manual_seed(0)
        return own(x)
    w.forward = forward


@kind("data", "targets_unscaled first_loss", "F G", make=ap.Boxes)
def boxes_in_pixels(w: ap.Boxes) -> None:
    """Places are in pixels of the large picture, and outweigh what the thing is."""
    w.scale = 1280.0


# Wiring ----------------------------------------------------------------------------------------------------------------

@kind("wiring", "no_gradient zero_gradient", "P F", make=ap.Codes)
def code_looked_up(w: ap.Codes) -> None:
    """The code is the table's row, and what led to it has no gradient: the encoder is not told anything."""
    w.passed_on, w.held_to_it = (lambda seen, code: code), 0.0


@kind("wiring", "", "F P", make=ap.Equation, steps=400,
      hidden="the loss falls, and whether a derivative is meant to be held still is not to be seen in what is recorded")
def derivative_without_a_graph(w: ap.Equation) -> None:
    """`create_graph` is forgotten: the derivative counts as a number that the weights cannot change."""
    w.graph = False


@kind("wiring", "reads_across_batch softmax_over_batch no_improvement", "F G", make=t.Masked)
def attends_over_the_batch(w: t.Masked) -> None:
    """`batch_first` is forgotten: a word looks at the words of other texts in its place."""
    for block in w.model.blocks:
        block.look.batch_first = False


@kind("wiring", "reads_across_batch no_improvement", "F Q", make=ap.Forecast)
def reads_across_the_batch(w: ap.Forecast) -> None:
    """`batch_first` is forgotten: what a recurrence has seen before is the other rows, and not the series."""
    w.model.cell.batch_first = False


@kind("wiring", "no_improvement", "F", families=["language"])
def flattened_in_another_order(w: Work) -> None:
    """Words of the output are counted by place and then by text, their targets the other way round."""
    w.loss = lambda out, y: F.cross_entropy(out.transpose(0, 1).reshape(-1, TOKENS), y.reshape(-1))


@kind("wiring", "no_improvement predicts_a_constant all_padding", "F Q", make=t.Reviews)
def last_state_is_of_padding(w: t.Reviews) -> None:
    w.model.last = lambda states, lengths: states[:, -1]


@kind("wiring", "dead_units zero_gradient predicts_a_constant no_improvement", "F Q U", make=ap.Prices)
def relu_on_the_output(w: ap.Prices) -> None:
    """Half of what is to be predicted is below zero."""
    w.model.net.append(nn.ReLU())


@kind("wiring", "not_logits predicts_a_constant zero_gradient no_gradient no_improvement", "Q F", families=["binary"],
      optimizers=["sgd", "momentum", "adagrad"])
def softmax_of_one_unit(w: Work) -> None:
    """Which is one, whatever the unit says."""
    own = w.forward
    w.forward = lambda x: torch.softmax(own(x), 1)
    w.loss = F.binary_cross_entropy


@kind("wiring", "layer_made_anew no_optimizer no_improvement", "Q F", families=["mlp", "cnn", "rnn"])
def layer_made_in_forward(w: Work) -> None:
    """A layer is made where it is used: another one each time, and none of them learns."""
    w.model.between = lambda x: F.relu(nn.Linear(x.shape[-1], x.shape[-1])(x))


@kind("wiring", "no_gradient", "F", make=ap.Boxes)
def second_term_for_the_first(w: ap.Boxes) -> None:
    """`loss =` where `loss +=` was meant: what places the thing is never learnt."""
    w.together = lambda of_kind, of_box: of_kind


@kind("wiring", "zero_gradient no_gradient weights_unchanged vanishing_ratio update_too_small", "N G", make=ap.Proximal)
def ratio_to_itself(w: ap.Proximal) -> None:
    """What the actor did then is read from what it does now, without a detach: a ratio of one, whose gradient is zero."""
    w.ratio, w.doubt = (lambda new, old: torch.exp(new - new)), 0.0


@kind("wiring", "no_gradient", "P F", make=ap.Experts)
def gate_without_a_gradient(w: ap.Experts) -> None:
    """The best expert's output is taken and not multiplied by its share, so the gate stays as it was."""
    w.model.share = lambda gate: F.one_hot(gate.argmax(1), gate.shape[1]).float()


@kind("wiring", "predicts_a_constant", "P", make=ap.Siam, steps=400)
def nothing_held_still(w: ap.Siam) -> None:
    """The code that is guessed may come to meet its guess: soon all samples have the same one."""
    w.still = lambda code: code
    w.model["net"] = nn.Sequential(*w.model["net"][:-1])


@kind("wiring", "weights_replaced loss_back", "N", make=a.Dqn)
def copied_the_other_way(w: a.Dqn) -> None:
    """It is the learning network that becomes a copy of the other, time and again."""
    w.follow = lambda: w.model.load_state_dict(w.target.state_dict())


@kind("wiring", "loss_broadcast predicts_a_constant", "F Q", make=ap.Ratings)
def summed_over_the_batch(w: ap.Ratings) -> None:
    """`sum()` for `sum(1)`: one number for all pairs of a batch, which is compared with each rating."""
    w.model.score = lambda user, item: (user * item).sum()


@kind("wiring", "zero_gradient no_gradient weights_unchanged update_too_small", "Q F", make=ap.Prices)
def rounded_before_the_loss(w: ap.Prices) -> None:
    """Nothing flows back through `round`."""
    own = w.forward
    w.forward = lambda x: own(x).round()


@kind("wiring", "loss_sign odd_setting", "F", families=["mlp", "cnn", "rnn", "tabular"], schedules=["constant", "cosine"])
def maximises(w: Work) -> None:
    """The optimizer of a reward is used for a loss."""
    w.options = {"maximize": True}


@kind("wiring", "", "F Q", make=ap.Experts,
      hidden="weights that are shared are meant in many models; a run does not say how many there were to be")
def experts_all_one(w: ap.Experts) -> None:
    """`[expert] * 8` is eight times the same."""
    w.model.experts = nn.ModuleList([w.model.experts[0]] * 8)


# Optimisation ----------------------------------------------------------------------------------------------------------

@kind("optimisation", "decay_too_strong predicts_a_constant no_improvement", "F Q", families=["mlp", "cnn", "tabular"],
      optimizers=["adam", "sgd", "momentum"])
def penalty_outweighs(w: Work) -> None:
    """The sum of the weights' sizes is added to the loss, without a factor."""
    own = w.loss

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return own(out, y) + (sum(p.abs().sum() for p in w.parameters()) if w.model.training else 0)
    w.loss = loss


@kind("optimisation", {"odd_setting", "update_too_large", "diverging"}, "F", families=["mlp", "cnn", "rnn"],
      optimizers=["adam", "adamw"], schedules=["constant"])
def betas_swapped(w: Work) -> None:
    w.options = {"betas": (0.999, 0.9)}


@kind("optimisation", SLOW, "F Q", families=["mlp", "cnn", "tabular", "binary"], optimizers=["sgd"],
      schedules=["constant", "cosine"])
def rate_of_a_fine_tuning(w: Work) -> None:
    """Copied from a script that tunes a large model by Adam: plain descent, from nothing, gets nowhere."""
    w.rate = 2e-5


@kind("optimisation", SLOW | {"zero_rate"}, "F G", families=["mlp", "cnn", "rnn", "encoder", "language"], optimizers=["adam", "adamw", "momentum"],
      schedules=["constant"])
def warmup_never_goes_on(w: Work) -> None:
    """The schedule begins at a thousandth and is never stepped."""
    w.factor = lambda step: 1e-3


def bright(name: str, **draws: Any) -> Work:
    """Pictures that are only made standard by the network's first norm."""
    w = Work(name, families=["resnet"], **draws)
    w.inputs, w.held = 2 * w.inputs + 3, 2 * w.held + 3
    return w


@kind("optimisation", "odd_setting norm_frozen validation_rises", "F G", make=bright, schedules=["constant", "cosine"])
def averages_that_never_arrive(w: Work) -> None:
    """A norm's momentum as another library counts it, from one: the averages stay as they began."""
    for module in w.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1e-4


@kind("optimisation", "odd_setting no_improvement stalled", "F H", families=[*CLASSIFIERS])
def smoothed_to_nothing(w: Work) -> None:
    """Labels are smoothed by the share that was to be left."""
    w.loss = nn.CrossEntropyLoss(label_smoothing=0.95)


@kind("optimisation", HIGH | {"first_loss"}, "P F", make=ap.Captions)
def temperature_of_a_thousandth(w: ap.Captions) -> None:
    """Likenesses are over 0.001 and not 0.07."""
    w.model.scale.data.fill_(math.log(1000))


@kind("optimisation", "first_loss init_scale", "F G", make=t.Tied)
def tied_to_a_wide_table(w: t.Tied) -> None:
    """The table's own initial values, which are of one: what is said begins far too sure of itself."""
    nn.init.normal_(w.model.table.weight)


@kind("optimisation", SLOW | {"odd_setting"}, "Q F", families=["mlp", "cnn", "rnn", "encoder", "language"])
def adadelta_of_a_thousandth(w: Work) -> None:
    """Another library's default rate, where this one's is a thousand times as large."""
    w.make_optimizer = lambda: torch.optim.Adadelta(w.parameters(), lr=1e-3)


@kind("optimisation", HIGH | {"rate_jump", "loss_back"}, "F", schedules=["constant"], optimizers=["adam", "adamw", "momentum"])
def rate_compounds(w: Work) -> None:
    """Each epoch's rate is the one before times the factor that was meant of the first."""
    w.factor = lambda step: 1.5 ** (step // 10)


@kind("optimisation", "predicts_a_constant no_improvement", "N", make=ap.Proximal)
def entropy_above_all(w: ap.Proximal) -> None:
    """To be undecided pays more than what is to be won."""
    w.doubt = 5.0


@kind("optimisation", "predicts_a_constant no_improvement init_scale", "P G", make=ap.Codes)
def one_code_for_all(w: ap.Codes) -> None:
    """The table begins far from where anything is encoded: all is nearest to the same code."""
    w.model["table"].weight.data.mul_(0.02).add_(8.0)


@kind("optimisation", "rate_cut rate_gone zero_rate update_too_small stalled", "F Q", schedules=["constant"],
      families=["mlp", "cnn", "rnn", "encoder", "language"], optimizers=["adam", "adamw", "momentum"])
def plateau_of_the_wrong_sign(w: Work) -> None:
    """A rate that is cut when a score no longer rises is given a loss."""
    best, cuts = [-math.inf], [0]
    own = w.loss

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        w.last = own(out, y)
        return w.last

    def after() -> None:
        if w.step % 10 == 9:
            better = float(w.last) > best[0]
            best[0], cuts[0] = max(best[0], float(w.last)), cuts[0] + (not better)
    w.loss, w.after, w.factor = loss, after, lambda step: 0.1 ** cuts[0]


# Numerics --------------------------------------------------------------------------------------------------------------

@kind("numerics", "nonfinite", "N F", make=ap.Proximal)
def episode_without_a_reward(w: ap.Proximal) -> None:
    """Gains are standardised within each episode: where none was paid, by a deviation of zero."""
    own = w.live

    def live() -> Any:
        seen, actions, logs, gain, alive = own()
        return seen, actions, logs, (gain - gain.mean(0)) / gain.std(0), alive
    w.live = live


@kind("numerics", "nonfinite input_unscaled first_loss", "Q F", make=ap.Counts)
def rate_of_counts_overflows(w: ap.Counts) -> None:
    """A year and an income as they are, behind an exponential."""
    w.inputs, w.held = (w.raw[:-ap.HELD],), (w.raw[-ap.HELD:],)


@kind("numerics", "update_lost no_improvement weights_unchanged validation_rises", "G F", make=a.Averaged, steps=500)
def average_in_bfloat16(w: a.Averaged) -> None:
    """A moving average with three digits, of which a step of 0.005 changes none; it is what is evaluated."""
    w.mean.bfloat16()

    def after() -> None:
        with torch.no_grad():
            for old, new in zip(w.mean.parameters(), w.model.parameters()):
                old.lerp_(new.bfloat16(), 0.005)
    w.after = after


@kind("numerics", "nonfinite", "F G", make=t.Answers)
def padding_that_sees_nothing(w: t.Answers) -> None:
    """Padded at the beginning and masked by both masks, the first word may look at nothing at all."""
    def mask(x: torch.Tensor) -> torch.Tensor:
        return (x == a.PAD)[:, None, :] | torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    w.mask = mask


@kind("numerics", HIGH | {"loss_scale"}, "F G", families=["mlp", "cnn", "rnn", "tabular"], optimizers=["sgd", "momentum"],
      schedules=["constant", "cosine"])
def scaled_and_never_unscaled(w: Work) -> None:
    """`scaler.scale(loss)`, and then the optimizer's own `step`."""
    scaler, w.max_norm = torch.amp.GradScaler("cpu", init_scale=65536.0), 0
    w.backward = lambda loss: scaler.scale(loss).backward()


@kind("numerics", "no_improvement input_constant", "Q", make=ap.Signal)
def seconds_in_single_precision(w: ap.Signal) -> None:
    """Seconds since 1970 in float32, which knows them to two minutes; the beginning is taken off after."""
    since = w.sines((w.seconds.float() - 1.7e9).double())
    w.inputs, w.held = (since[:-ap.HELD],), (since[-ap.HELD:],)


@kind("numerics", "nonfinite gradient_underflow", "F G", families=["mlp", "cnn"], optimizers=["adam", "adamw"],
      schedules=["constant", "cosine"])
def all_in_halves(w: Work) -> None:
    """`model.half()`, and Adam with the usual epsilon, which is zero in float16."""
    w.autocast, w.max_norm = False, 0
    w.model.activation = nn.ReLU()
    w.model.half()
    own = w.forward
    w.forward = lambda x: own(x.half()).float()


# Generalisation --------------------------------------------------------------------------------------------------------

@kind("generalisation", "validation_rises input_shifted", "Q P", make=ap.Forecast)
def grows_beyond_what_was_seen(w: ap.Forecast) -> None:
    """Series that grow are learnt as they are: all that is held out lies above what was ever seen."""
    w.relative = lambda x, y: (x, y)
    w.cut()


@kind("generalisation", "validation_rises", "Q", make=ap.Prices, optimizers=["adam"], schedules=["constant"], steps=400)
def row_number_as_a_column(w: ap.Prices) -> None:
    """A number that each row has alone is taken for a column of kinds, and each row is learnt by heart."""
    w.inputs, w.targets = tuple(x[:256] for x in w.inputs), w.targets[:256]
    w.model = ap.House(w.width, 6, 1280)
    w.inputs, w.held = (w.inputs[0], torch.arange(256)), (w.held[0], 1024 + torch.arange(256))


def slowly(name: str, **draws: Any) -> Work:
    """It knows half of what there is to know when others know nearly all."""
    w = Work(name, **draws)
    w.rate /= 6
    return w


@kind("generalisation", "validation_rises", "P Q", late=True, make=slowly, families=["mlp", "cnn", "rnn", "encoder"],
      optimizers=["adam", "adamw"], schedules=["constant"], steps=400)
def taught_by_itself(w: Work) -> None:
    """From a step on it is taught what it says already, with all its mistakes."""
    own = w.loss
    w.loss = lambda out, y: own(out, out.argmax(1) if w.late() and w.model.training else y)


# Systems ---------------------------------------------------------------------------------------------------------------

@kind("systems", "slow_steps", "F G", families=["mlp", "tabular", "cnn"])
def read_from_the_start_each_time(w: Work) -> None:
    """To find a row all rows before it are read, so that each step takes longer than the one before."""
    own = w.batch

    def batch() -> Any:
        time.sleep(0.00015 * w.step)
        return own()
    w.batch = batch


@kind("systems", "", "F G", make=ap.FineTuned, hidden="a frozen trunk of random numbers is like any other frozen trunk")
def nothing_was_loaded(w: ap.FineTuned) -> None:
    """No name of the file is one of the model, and `strict=False` says nothing of it."""
    for module in w.trunk:
        if isinstance(module, nn.Linear):
            module.reset_parameters()


@kind("systems", "weights_replaced loss_back loss_jump", "F", families=["mlp", "cnn", "rnn", "encoder", "tabular"])
def best_is_always_the_first(w: Work) -> None:
    """The best weights are put back after each evaluation; a comparison is the wrong way round, and the best are those of the start."""
    first, own = copy.deepcopy(w.model.state_dict()), w.evaluate

    def evaluate() -> None:
        own()
        w.model.load_state_dict(first)
    w.evaluate = evaluate


@kind("systems", "weights_replaced weight_jump loss_jump loss_back", "G S", families=PLAIN)
def rounded_at_each_save(w: Work) -> None:
    """Each save writes the weights in few bits, and what was written is what is trained on."""
    def after() -> None:
        if w.step % 20 == 19:
            with torch.no_grad():
                for p in w.model.parameters():
                    p.copy_((p * 8).round() / 8)
    w.after = after


@kind("systems", "loss_jump gradient_jump weight_jump update_too_large nonfinite", "S", late=True, families=PLAIN)
def core_that_computes_wrong(w: Work) -> None:
    """One unit's value is now and then a thousand times what it should be."""
    def between(x: torch.Tensor) -> torch.Tensor:
        if not w.late() or not w.model.training or torch.rand((), generator=w.data) > 0.1:
            return x
        wrong = torch.ones(x.shape[-1])
        wrong[1] = 1000.0
        return x * wrong
    w.model.between = between
