"""The fourth part: kinds of faults, and trainings that are well, by an author who had read neither the detectors nor their page.

What each kind is, and which names of detectors would tell its cause, was committed before any of its runs was judged. Sources,
beside those of faults.py: H the taxonomy of faults in deep learning (ICSE '20), N the one of faults in deep reinforcement learning
(2021), P a paper on the architecture. A kind is `hidden` where what is recorded would look the same if nothing were wrong; it
says why, and is counted apart. What is trained: architectures.py; more trainings that are well: fourth_healthy.py.
"""

from __future__ import annotations

from typing import Any

import architectures as a
import torch
import torch.nn.functional as F
from faults import HIGH, few, kind
from torch import nn
from workloads import CLASSIFIERS, FAULT_AT, Work

# Codes that are sampled, and noise -----------------------------------------------------------------------------------

@kind("wiring", "no_gradient zero_gradient", "P F", make=a.Vae)
def sampled_without_a_gradient(w: a.Vae) -> None:
    """`sample()` for `rsample()`: what is reconstructed teaches the encoder nothing; the divergence still does."""
    w.sample = lambda mean, spread: torch.distributions.Normal(mean, torch.exp(0.5 * spread)).sample()


@kind("numerics", "nonfinite", "F", make=a.Vae)
def logarithm_of_a_raw_variance(w: a.Vae) -> None:
    """The layer's output is taken for the variance itself, which it may be below zero."""
    w.divergence = lambda mean, spread: 0.5 * (mean * mean + spread - spread.log() - 1).sum(1).mean()


@kind("optimisation", "zero_gradient vanishing_ratio no_improvement", "P", make=a.Vae)
def code_collapsed(w: a.Vae) -> None:
    """The divergence outweighs what is reconstructed, so the code says nothing and the same mean picture is made of all."""
    w.weight = lambda: 300.0


@kind("wiring", "input_constant", "P F", make=a.Diffusion)
def told_the_same_time(w: a.Diffusion) -> None:
    """The model is told time zero, however much noise there is."""
    w.time_of = torch.zeros_like


@kind("data", "no_improvement", "F", make=a.Diffusion)
def compared_with_other_noise(w: a.Diffusion) -> None:
    """Noise is drawn a second time for the loss."""
    w.noise_like = torch.randn_like


@kind("numerics", "nonfinite input_nonfinite", "F", make=a.Diffusion)
def noise_schedule_above_one(w: a.Diffusion) -> None:
    """Rates of noise in another unit: what is left of the signal becomes negative, and has no root."""
    w.betas = w.betas * 20


# Pairs and views -------------------------------------------------------------------------------------------------------

@kind("data", "labels_one_class", "F", make=a.Pairs)
def pairs_all_alike(w: a.Pairs) -> None:
    """Indices are compared for labels, and each with itself: all pairs are said to be of one class."""
    w.alike = lambda one, other: torch.ones_like(one, dtype=torch.bool)


@kind("optimisation", "no_improvement", "P F", make=a.Views)
def multiplied_by_the_temperature(w: a.Views) -> None:
    w.temperature = lambda likeness: likeness * 0.1


@kind("numerics", "nonfinite", "F", late=True, make=a.Views)
def length_of_nothing(w: a.Views) -> None:
    """One sample is empty, the layers are without a bias, and its length is divided by."""
    for module in w.model:
        if isinstance(module, nn.Linear):
            module.bias = None
    own = w.batch

    def batch() -> Any:
        x, y = own()
        if w.late():
            x[:, 3] = 0
        return x, y
    w.batch, w.normalise = batch, lambda x: x / x.norm(dim=1, keepdim=True)


# Sequences -------------------------------------------------------------------------------------------------------------

@kind("generalisation", "validation_rises", "F", make=a.Translate, steps=400)
def given_what_it_is_to_say(w: a.Translate) -> None:
    """The decoder's input is the target itself and not the target one later. Evaluated on its own words it fails."""
    w.said = lambda y: y


@kind("wiring", "nonfinite", "F H", make=a.Texts)
def mask_of_the_other_meaning(w: a.Texts) -> None:
    """One for what is left out, where the layer has one for what is kept: a text without padding has nothing to look at."""
    w.keep = lambda x: (x == a.PAD)[:, None, :]


@kind("wiring", "softmax_over_batch not_logits first_loss", "F H", families=[*CLASSIFIERS])
def softmax_over_the_batch(w: Work) -> None:
    own = w.forward
    w.forward = lambda x: F.log_softmax(own(x), 0)
    w.loss = F.nll_loss


@kind("data", "input_constant all_padding no_improvement", "F", make=a.Texts)
def vocabulary_of_another_model(w: a.Texts) -> None:
    """Nearly every word is unknown, and becomes the same token."""
    def known(x: torch.Tensor) -> torch.Tensor:
        return torch.where((x > 3) & (x % 40 != 5), 2, x)
    w.inputs, w.held = known(w.inputs), known(w.held)


@kind("wiring", "", "F H", make=a.Causal, hidden="a loss that is low is what a training is for; nothing says how low it can be")
def looks_ahead(w: a.Causal) -> None:
    """No causal mask: what is to be predicted can be read."""
    w.keep = lambda size: torch.ones(size, size)


@kind("data", "", "F H", make=a.Translate,
      hidden="to predict padding is right where a sequence's end is to be learnt, and the loss is then as low")
def padding_in_the_mean(w: a.Translate) -> None:
    w.ignored = -100


# Graphs and pictures ---------------------------------------------------------------------------------------------------

@kind("wiring", HIGH | {"first_loss", "init_scale"}, "P F", make=a.Graph, optimizers=["sgd", "momentum"])
def neighbours_summed(w: a.Graph) -> None:
    """The sum over some thirty neighbours, layer upon layer, and no mean."""
    w.weighted = lambda edges: edges + torch.eye(len(edges))


@kind("numerics", "nonfinite", "F P", make=a.Graph)
def node_without_a_neighbour(w: a.Graph) -> None:
    """Some nodes have no edge and none to themselves; their degree is divided by."""
    w.edges[:40] = 0
    w.edges[:, :40] = 0

    def weighted(edges: torch.Tensor) -> torch.Tensor:
        root = edges.sum(1).rsqrt()
        return root[:, None] * edges * root[None, :]
    w.weighted = weighted


@kind("optimisation", "vanishing_ratio no_improvement zero_gradient", "P", make=a.Graph)
def smoothed_until_alike(w: a.Graph) -> None:
    """Twenty rounds of means over neighbours: all nodes end alike."""
    size = w.width
    w.model["layers"].extend(nn.Linear(size, size) for _ in range(18))


@kind("data", "no_improvement validation_rises", "H F", families=[*CLASSIFIERS], optimizers=["adam", "adamw", "momentum"])
def sorted_apart(w: Work) -> None:
    """Inputs are shuffled once and their labels are not."""
    w.inputs = w.inputs[torch.randperm(len(w.inputs), generator=w.data)]


@kind("data", "no_improvement", "F H", make=a.Segmentation)
def mask_not_turned(w: a.Segmentation) -> None:
    """Pictures are turned at random; what is to be found in them is not."""
    own = w.turned
    w.turned = lambda x, turns, is_mask: x if is_mask else own(x, turns, is_mask)


@kind("data", "input_constant input_unscaled", "F H", families=["mlp", "cnn", "resnet"])
def constants_of_bytes(w: Work) -> None:
    """Inputs between zero and one, less a mean and over a deviation of bytes: all become nearly the same number."""
    low, high = w.inputs.min(), w.inputs.max()
    w.inputs, w.held = (((x - low) / (high - low) - 125) / 60 for x in (w.inputs, w.held))


# Adversaries and rewards -----------------------------------------------------------------------------------------------

@kind("optimisation", "zero_gradient vanishing_ratio update_too_small", "P", make=a.Minimax)
def judge_that_is_certain(w: a.Minimax) -> None:
    """The loss of the first paper, log(1 - D): its gradient vanishes where the judge is right."""
    w.of_generator = lambda said: -F.binary_cross_entropy_with_logits(said, torch.zeros_like(said))


@kind("optimisation", HIGH | {"loss_back"}, "N", make=a.Dqn)
def discount_above_one(w: a.Dqn) -> None:
    """Nothing ends, and what is to come counts more than what is: values grow for ever."""
    w.discount = 1.6
    own = w.batch

    def batch() -> Any:
        x, (action, reward, following, ended) = own()
        return x, (action, reward, following, torch.zeros_like(ended))
    w.batch = batch


@kind("wiring", "", "N", make=a.Dqn, hidden="a network that never changes is what a teacher or a frozen encoder looks like")
def second_network_never_follows(w: a.Dqn) -> None:
    w.follow = lambda: None


# Adapters, averages, windows -------------------------------------------------------------------------------------------

@kind("optimisation", "zero_gradient zero_weight", "P F", make=a.Adapted)
def adapters_of_two_zeros(w: a.Adapted) -> None:
    """Both factors begin at zero, so neither ever has a gradient."""
    for adapter in w.adapters():
        nn.init.zeros_(adapter.down.weight)


@kind("systems", "weights_replaced loss_back loss_jump", "F", late=True, make=a.Averaged)
def averages_left_in(w: a.Averaged) -> None:
    """The averaged weights are put in for the evaluation, and the training's own are not put back."""
    w.put_back = lambda own: None


@kind("optimisation", HIGH, "F", make=a.Windows)
def window_not_divided(w: a.Windows) -> None:
    """The sum of sixteen batches' gradients, with the rate for their mean."""
    w.backward = lambda loss: (loss * w.accumulate).backward()


@kind("wiring", "gradients_kept", "F", make=a.Windows)
def windows_run_together(w: a.Windows) -> None:
    """Zeroed where an epoch begins, and not where a window does."""
    own = w.zero
    w.zero = lambda: own() if w.step % 25 == 0 else None


@kind("wiring", "gradients_kept", "F", make=a.Halves)
def one_of_two_zeroed(w: a.Halves) -> None:
    w.zero = lambda: w.optimizer.zero_grad()


@kind("optimisation", "zero_rate", "F", schedules=["constant"], optimizers=["adam", "adamw", "momentum"])
def warmup_in_whole_numbers(w: Work) -> None:
    """`step // warmup` for `step / warmup`: no rate at all until the warm-up ends."""
    w.factor = lambda step: min(1, step // 150)


@kind("optimisation", HIGH | {"odd_setting", "loss_back"}, "U H", families=["mlp", "cnn", "rnn", "encoder"],
      optimizers=["momentum"], schedules=["constant", "warmup"])
def momentum_near_one(w: Work) -> None:
    w.options = {"momentum": 0.999}


@kind("optimisation", HIGH | {"first_loss"}, "H F", families=["mlp", "cnn", "rnn", "encoder"], optimizers=["sgd", "momentum"],
      schedules=["constant", "cosine"])
def sum_for_a_mean(w: Work) -> None:
    w.max_norm = 0
    w.loss = lambda out, y: F.cross_entropy(out, y, reduction="sum")


@kind("optimisation", "odd_setting no_improvement dead_units", "F H", families=["mlp", "cnn"])
def share_kept_for_share_dropped(w: Work) -> None:
    """0.95 was meant to be kept. It is dropped, before the head and behind each layer."""
    w.model.dropout = nn.Dropout(0.95)
    w.model.activation = nn.Sequential(w.model.activation, nn.Dropout(0.95))


@kind("wiring", "not_logits", "F", make=a.Taught)
def divergence_of_probabilities(w: a.Taught) -> None:
    """`kl_div` wants logarithms, and is given probabilities."""
    w.logarithms = lambda out: F.softmax(out, -1)


@kind("generalisation", "", "H F", families=[*CLASSIFIERS], optimizers=["adam", "adamw"], schedules=["constant"],
      hidden="a validation that is as good as the training is what one hopes for")
def held_out_of_what_is_trained_on(w: Work) -> None:
    few(w, 64, False)
    w.held, w.held_targets = w.inputs, w.targets


@kind("optimisation", "", "F H", families=["mlp", "cnn", "rnn"], optimizers=["adam", "adamw"], schedules=["constant"],
      hidden="optimizers that are made anew are meant where layers are thawed; what is lost is speed, of which a run has no measure")
def optimizer_of_each_epoch(w: Work) -> None:
    own = w.update

    def update() -> None:
        if w.step % 10 == 0:
            w.optimizer = w.make_optimizer()
        own()
    w.update = update


@kind("systems", "loss_back weights_replaced loss_jump", "F T", late=True, families=["mlp", "cnn", "rnn"], optimizers=["momentum"],
      schedules=["constant"])
def resumed_with_the_first_checkpoint(w: Work) -> None:
    """What was saved early is loaded back into the middle of the training, optimizer and all."""
    kept: dict[str, Any] = {}

    def after() -> None:
        if w.step == 3:
            kept.update({n: v.clone() for n, v in w.model.state_dict().items()})
        if w.step == FAULT_AT:
            w.model.load_state_dict(kept)
            w.optimizer.state.clear()
    w.after = after


@kind("numerics", "nonfinite", "F", late=True, families=["mlp", "rnn", "encoder"], optimizers=["adam", "adamw"])
def angle_of_an_arc(w: Work) -> None:
    """A margin in the angle: the arc cosine has no finite derivative at one."""
    own = w.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = own(x)
        return out + 0.1 * torch.acos(out / out.abs().amax(1, keepdim=True)) if w.late() else out
    w.forward = forward
