"""Kinds of faults: what each changes in a training, and which detectors name its cause.

A fault takes a `Work` before it runs and replaces one of its steps. Without it the same name draws the exact healthy twin.
Sources: T TrainCheck (OSDI '25) silent errors, D DeepLocalize (ICSE '21), U UMLAUT (CHI '21), A AutoTrainer (ICSE '21),
F the questions of torch's forum.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from workloads import CLASSES, CLASSIFIERS, FAULT_AT, FEATURES, TOKENS, Gan, Mlp, Policy, Work


@dataclasses.dataclass
class Kind:
    name: str
    group: str                 # optimisation, numerics, wiring, data, generalisation, systems
    detectors: set[str]        # any of these names the cause
    source: str
    put: Callable[[Work], None]
    late: bool = False         # it begins at FAULT_AT
    make: Callable[..., Work] = Work
    hidden: str = ""           # why nothing that is recorded shows it; counted apart
    draws: dict[str, Any] = dataclasses.field(default_factory=dict)


KINDS: dict[str, Kind] = {}
PLAIN = ["mlp", "cnn", "rnn", "encoder"]               # classifiers without a norm over the batch
HIGH = {"update_too_large", "gradient_jump", "loss_jump", "weight_jump", "diverging", "nonfinite"}


def kind(group: str, detectors: str | set[str], source: str, **more: Any) -> Callable[[Any], Any]:
    named = detectors if isinstance(detectors, set) else set(detectors.split())

    def add(put: Callable[[Work], None]) -> Callable[[Work], None]:
        draws = {k: more.pop(k) for k in ("families", "optimizers", "schedules", "steps", "libraries", "tasks") if k in more}
        KINDS[put.__name__] = Kind(put.__name__, group, named, source, put, draws=draws, **more)
        return put
    return add


def at_batch(w: Work, change: Callable[[torch.Tensor, torch.Tensor], Any], once: bool = False, late: bool = True) -> None:
    """From the fault's step on the batch is another."""
    own = w.batch

    def batch() -> Any:
        x, y = own()
        now = w.step == FAULT_AT if once else w.step >= FAULT_AT or not late
        return change(x.clone(), y.clone()) if now else (x, y)
    w.batch = batch


def at_end(w: Work, change: Callable[[], None]) -> None:
    """Once, at the end of the fault's step."""
    def after() -> None:
        if w.step == FAULT_AT:
            with torch.no_grad():
                change()
    w.after = after


# Optimisation -----------------------------------------------------------------------------------------------------

@kind("optimisation", HIGH, "U A", schedules=["constant", "warmup"])
def rate_too_high(w: Work) -> None:
    w.rate *= 400


@kind("optimisation", "init_scale", "D A", families=PLAIN)
def wide_init(w: Work) -> None:
    with torch.no_grad():
        for p in w.matrices()[:-1]:
            p.normal_(0, 8 / math.sqrt(p[0].numel()))


@kind("optimisation", "zero_rate", "U")
def rate_zero(w: Work) -> None:
    w.rate = 0.0


@kind("optimisation", "dead_units zero_gradient", "A D", late=True, families=["mlp"], optimizers=["adam", "adamw", "momentum"],
      schedules=["constant"])
def dying_relu(w: Work) -> None:
    w.model.activation = nn.ReLU()

    def die() -> None:
        for layer in w.model.layers:
            layer.bias.sub_(8.0)
    at_end(w, die)


@kind("optimisation", "vanishing_ratio", "A D", families=["mlp"])
def deep_sigmoid(w: Work) -> None:
    width = w.model.head.in_features
    w.model.layers = nn.ModuleList(nn.Linear(FEATURES if i == 0 else width, width) for i in range(10))
    w.model.activation = nn.Sigmoid()


@kind("optimisation", "rate_cut", "F", late=True, schedules=["constant", "cosine", "warmup"])
def rate_cut(w: Work) -> None:
    own = w.factor
    w.factor = lambda step: own(step) * (1e-4 if step >= FAULT_AT else 1)


@kind("optimisation", "constant_weight", "D", families=["mlp"])
def constant_init(w: Work) -> None:
    with torch.no_grad():
        for module in w.model.modules():
            if isinstance(module, nn.Linear):
                module.weight.fill_(0.05)


@kind("optimisation", "clipped_away", "F")
def clip_to_nothing(w: Work) -> None:
    w.max_norm = 1e-6


@kind("optimisation", "decay_too_strong", "U", optimizers=["momentum", "adamw"])
def decay_too_strong(w: Work) -> None:
    w.options = {"weight_decay": 0.2 / w.rate}


@kind("optimisation", "update_too_small weights_unchanged", "U A")
def rate_tiny(w: Work) -> None:
    w.rate *= 1e-9


@kind("optimisation", "zero_gradient zero_weight", "D", families=["mlp"])
def zero_init(w: Work) -> None:
    with torch.no_grad():
        for p in w.model.parameters():
            p.zero_()


@kind("optimisation", "init_scale vanishing_ratio", "D A", families=["mlp", "rnn"])
def narrow_init(w: Work) -> None:
    with torch.no_grad():
        for p in w.matrices()[:-1]:
            p.mul_(1e-3)


@kind("optimisation", HIGH, "F", optimizers=["momentum"], schedules=["constant", "warmup"])
def momentum_above_one(w: Work) -> None:
    w.options = {"momentum": 1.05}


@kind("optimisation", HIGH, "F", schedules=["one_cycle"])
def peak_too_high(w: Work) -> None:
    own = w.factor
    w.factor = lambda step: own(step) * 500


@kind("optimisation", "gradients_kept", "T F", schedules=["constant", "cosine"])
def zero_grad_forgotten(w: Work) -> None:
    w.zero = lambda: None


@kind("optimisation", "odd_setting update_too_small weights_unchanged", "F", optimizers=["adam", "adamw", "rmsprop"])
def epsilon_too_large(w: Work) -> None:
    w.options = {"eps": 1e6}


@kind("optimisation", {"rate_jump", "gradient_jump", "loss_jump", "weight_jump", "weights_replaced", "update_too_large"}, "F", late=True,
      schedules=["constant", "cosine", "warmup"])
def rate_spike(w: Work) -> None:
    own = w.factor
    w.factor = lambda step: own(step) * (3000 if step == FAULT_AT else 1)


@kind("optimisation", "rate_gone rate_cut zero_rate", "F", schedules=["constant"])
def decay_each_batch(w: Work) -> None:
    w.factor = lambda step: 0.8 ** step


# Numerics ---------------------------------------------------------------------------------------------------------

@kind("numerics", "nonfinite", "D A", late=True)
def log_of_zero(w: Work) -> None:
    w.model.between = lambda x: x + 1e-3 * torch.log(torch.relu(x)) if w.late() else x


@kind("numerics", "nonfinite", "F", late=True)
def sqrt_at_zero(w: Work) -> None:
    w.model.between = lambda x: x + torch.sqrt(x - x) if w.late() else x


@kind("numerics", "nonfinite", "D", late=True, families=["tabular", "autoencoder"])
def nan_in_label(w: Work) -> None:
    def change(x: Any, y: Any) -> Any:
        y[0, 0] = math.nan
        return x, y
    at_batch(w, change, once=True)


@kind("numerics", "nonfinite input_nonfinite", "D U", late=True, families=[*CLASSIFIERS, "tabular"])
def standardised_by_zero(w: Work) -> None:
    def change(x: Any, y: Any) -> Any:
        x[:, 3] = 1.0
        return (x - x.mean(0)) / x.std(0), y
    at_batch(w, change)


@kind("numerics", "nonfinite", "D", late=True, families=PLAIN)
def softmax_by_hand(w: Work) -> None:
    own = w.loss

    def loss(out: Any, y: Any) -> Any:
        if not w.late():
            return own(out, y)
        share = torch.exp(40 * out) / torch.exp(40 * out).sum(-1, keepdim=True)
        return F.nll_loss(torch.log(share), y)
    w.loss = loss


@kind("numerics", "nonfinite", "F", late=True)
def float16_overflow(w: Work) -> None:
    w.model.between = lambda x: ((x * 3e4 + 6e4).half().float() - 6e4) / 3e4 if w.late() else x


@kind("numerics", "nonfinite", "F", optimizers=["adam", "adamw"], families=["language", "mlp"])
def epsilon_zero(w: Work) -> None:
    w.options = {"eps": 0.0}
    w.model.activation = nn.ReLU()
    with torch.no_grad():
        if isinstance(w.model, Mlp):
            w.model.layers[0].bias[:3] = -100.0      # three units that never fire
        else:
            w.model.place = nn.Embedding(24, w.model.table.embedding_dim)


@kind("numerics", "update_lost weights_unchanged update_too_small", "T F", families=["mlp", "cnn"], optimizers=["adam", "adamw", "sgd"],
      schedules=["constant", "cosine"])
def updates_below_bfloat16(w: Work) -> None:
    w.autocast = False
    w.model.bfloat16()
    w.rate *= 0.005
    own = w.forward
    w.forward = lambda x: own(x.bfloat16()).float()


@kind("numerics", "nonfinite loss_scale", "F", families=["mlp", "cnn"])
def scale_falls_for_ever(w: Work) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    w.model.between = lambda x: x + 0 * torch.sqrt(x.detach() - x)       # its gradient is not finite
    w.backward = lambda loss: scaler.scale(loss).backward()

    def update() -> None:
        scaler.step(w.optimizer)
        scaler.update()
    w.update = update
    w.max_norm = 0


@kind("numerics", "nonfinite", "D", late=True)
def infinite_loss(w: Work) -> None:
    own = w.loss
    w.loss = lambda out, y: own(out, y) - (torch.log(torch.zeros(())) if w.late() else 0)


@kind("numerics", "zero_gradient update_too_small weights_unchanged", "F", families=["mlp", "cnn"])
def float16_underflow(w: Work) -> None:
    own = w.forward
    w.forward = lambda x: own(x).mul(1e-10).half().float().mul(1e10)


# Wiring -----------------------------------------------------------------------------------------------------------

@kind("wiring", "no_gradient", "F U")
def detach(w: Work) -> None:
    w.model.between = torch.Tensor.detach


@kind("wiring", "no_optimizer", "T F")
def left_out_of_optimizer(w: Work) -> None:
    w.parameters = lambda: [p for n, p in w.model.named_parameters() if not n.startswith("head.")]


@kind("wiring", "loss_sign", "F")
def negated_loss(w: Work) -> None:
    w.backward = lambda loss: (-loss).backward()


@kind("wiring", "no_gradient", "F")
def no_grad_block(w: Work) -> None:
    w.model.features = torch.no_grad()(w.model.features)


@kind("wiring", "no_improvement softmax_twice not_logits", "U D", families=[*CLASSIFIERS, "language"])
def softmax_twice(w: Work) -> None:
    own = w.forward
    w.forward = lambda x: torch.softmax(torch.softmax(own(x), -1), -1)


@kind("wiring", "no_optimizer no_gradient", "T F")
def stale_optimizer(w: Work) -> None:
    own = w.make_optimizer

    def make() -> Any:
        optimizer = own()
        w.model = copy.deepcopy(w.model)
        return optimizer
    w.make_optimizer = make


@kind("wiring", "no_gradient", "F")
def loss_wrapped_again(w: Work) -> None:
    own = w.loss
    w.loss = lambda out, y: torch.tensor(own(out, y).item(), requires_grad=True)


@kind("wiring", "no_gradient zero_gradient", "T F")
def zero_grad_after_backward(w: Work) -> None:
    w.clip = w.zero


@kind("wiring", "no_gradient", "F", families=PLAIN)
def argmax_between(w: Work) -> None:
    w.model.between = lambda x: F.one_hot(x.argmax(-1), x.shape[-1]).float()


@kind("wiring", "loss_broadcast", "F", families=["tabular"])
def target_broadcast(w: Work) -> None:
    own = w.loss
    w.loss = lambda out, y: own(out, y.squeeze(1))


@kind("wiring", "norm_frozen left_evaluating", "T F", late=True, families=["resnet"])
def eval_left_on(w: Work) -> None:
    def evaluate() -> None:
        w.model.eval()
        with torch.no_grad():
            w.loss(w.forward(w.held), w.held_targets)
        if w.step < FAULT_AT - 1:
            w.model.train()
    w.evaluate = evaluate


@kind("wiring", "norm_frozen", "T F", families=["resnet"])
def eval_from_start(w: Work) -> None:
    w.model.eval()      # before train is replaced: eval() is train(False)
    w.model.train = lambda mode=True: w.model


@kind("wiring", "not_in_model no_optimizer", "F", families=["mlp"])
def plain_list(w: Work) -> None:
    layers = list(w.model.layers)
    del w.model.layers
    w.model.__dict__["layers"] = layers


@kind("wiring", "no_gradient", "F", make=Gan)
def generator_detached(w: Gan) -> None:
    w.wait = torch.Tensor.detach


@kind("wiring", "no_optimizer", "F", make=Policy)
def actor_left_out(w: Policy) -> None:
    w.parameters = lambda: [p for n, p in w.model.named_parameters() if not n.startswith("actor.")]


# Data -------------------------------------------------------------------------------------------------------------

@kind("data", "no_improvement", "U", families=[*CLASSIFIERS, "binary"])
def random_labels(w: Work) -> None:
    g = torch.Generator().manual_seed(w.seed)
    at_batch(w, lambda x, y: (x, y[torch.randperm(len(y), generator=g)]), late=False)


@kind("data", "same_batch", "T F", late=True)
def stuck_loader(w: Work) -> None:
    own = w.choose
    w.choose = lambda: torch.arange(w.batch_size) if w.late() else own()


@kind("data", "first_loss input_scale gradient_jump update_too_large input_unscaled", "U D", families=["mlp", "cnn"])
def inputs_not_scaled(w: Work) -> None:
    w.inputs, w.held = w.inputs * 300, w.held * 300


@kind("data", "loss_jump gradient_jump", "F", late=True, families=["mlp", "cnn", "tabular"])
def bad_batch(w: Work) -> None:
    at_batch(w, lambda x, y: (x * 1e4, y), once=True)


@kind("data", "nonfinite input_nonfinite", "D U", late=True, families=[*CLASSIFIERS, "binary", "autoencoder"])
def nan_in_input(w: Work) -> None:
    def change(x: Any, y: Any) -> Any:
        x[0, 0] = math.nan
        return x, y
    at_batch(w, change, once=True)


@kind("data", "nonfinite input_nonfinite", "D", late=True, families=[*CLASSIFIERS])
def infinity_in_input(w: Work) -> None:
    def change(x: Any, y: Any) -> Any:
        x[1, 2] = math.inf
        return x, y
    at_batch(w, change, once=True)


@kind("data", "same_batch", "T F", late=True)
def empty_batches(w: Work) -> None:
    at_batch(w, lambda x, y: (torch.zeros_like(x), y))


@kind("data", "loss_back loss_jump diverging", "T", late=True, families=["mlp", "cnn", "resnet", "rnn"], schedules=["constant"],
      optimizers=["adam", "adamw", "momentum"])
def labels_shuffled_late(w: Work) -> None:
    at_batch(w, lambda x, y: (x, y.roll(1, 0)))


@kind("data", "loss_jump gradient_jump loss_back diverging input_shifted", "F", late=True, families=["mlp", "cnn", "tabular", "autoencoder"])
def inputs_scaled_late(w: Work) -> None:
    at_batch(w, lambda x, y: (x * 100, y))


@kind("data", "loss_jump gradient_jump", "D", late=True, families=["tabular", "autoencoder"])
def outlier_in_label(w: Work) -> None:
    def change(x: Any, y: Any) -> Any:
        y[0, 0] = 1e5
        return x, y
    at_batch(w, change, once=True)


@kind("data", "no_improvement constant_input same_batch input_constant", "U", families=[*CLASSIFIERS])
def constant_inputs(w: Work) -> None:
    w.inputs, w.held = torch.ones_like(w.inputs), torch.ones_like(w.held)


@kind("data", "no_improvement", "F", families=[*CLASSIFIERS])
def labels_of_the_batch_before(w: Work) -> None:
    own, last = w.batch, [None]

    def batch() -> Any:
        x, y = own()
        before, last[0] = last[0], y
        return x, y if before is None else before
    w.batch = batch


# Generalisation ---------------------------------------------------------------------------------------------------

def few(w: Work, count: int, noise: bool) -> None:
    w.inputs, w.targets = w.inputs[:count], w.targets[:count].clone()
    if noise:
        half = w.targets[: count // 2]
        w.targets[: count // 2] = torch.randint(0, CLASSES, half.shape, generator=w.data)


@kind("generalisation", "validation_rises", "U A", families=["mlp", "cnn", "rnn"], optimizers=["adam", "adamw"],
      schedules=["constant"])
def overfit(w: Work) -> None:
    few(w, 24, True)


@kind("generalisation", "validation_rises", "A", families=["tabular"], optimizers=["adam", "adamw"], schedules=["constant"], steps=400)
def overfit_numbers(w: Work) -> None:
    few(w, 24, False)
    w.targets = w.targets + torch.randn(w.targets.shape, generator=w.data)


@kind("generalisation", "validation_rises", "A F", families=["language"], optimizers=["adam", "adamw"], schedules=["constant"],
      steps=300)
def overfit_tokens(w: Work) -> None:
    few(w, 12, False)
    w.targets = torch.randint(0, TOKENS, w.targets.shape, generator=w.data)


@kind("generalisation", "validation_rises", "U", families=["binary"], optimizers=["adam", "adamw"], schedules=["constant"], steps=400)
def overfit_small_table(w: Work) -> None:
    few(w, 32, False)
    w.targets[:8] = 1 - w.targets[:8]


# Systems ----------------------------------------------------------------------------------------------------------

@kind("systems", "weight_jump", "T", late=True)
def weight_corrupted(w: Work) -> None:
    at_end(w, lambda: w.matrices()[0].mul_(4096))


@kind("systems", "weights_replaced loss_back", "T", late=True, schedules=["constant", "cosine", "step"])
def weights_reset(w: Work) -> None:
    before = copy.deepcopy(w.model.state_dict())
    at_end(w, lambda: w.model.load_state_dict(before))


@kind("systems", "weights_replaced zero_gradient weight_jump", "T", late=True)
def layer_lost(w: Work) -> None:
    at_end(w, lambda: w.matrices()[-1].zero_())


@kind("systems", "weight_jump weights_replaced", "T", late=True)
def bit_flipped_in_weight(w: Work) -> None:
    def flip() -> None:
        row = w.matrices()[0].view(-1)
        row[5] = row[5].view(torch.int32).bitwise_xor(1 << 29).view(torch.float32) if abs(row[5]) < 1 else 1e18
    at_end(w, flip)


@kind("systems", "gradient_jump nonfinite", "T", late=True)
def bit_flipped_in_gradient(w: Work) -> None:
    def clip() -> None:
        if w.step == FAULT_AT:
            w.matrices()[0].grad.view(-1)[3] = 1e12
        if w.max_norm:
            nn.utils.clip_grad_norm_(w.parameters(), w.max_norm)
    w.clip = clip


@kind("systems", "weights_unchanged", "T", late=True)
def updates_lost(w: Work) -> None:
    own, kept = w.update, []

    def update() -> None:
        if w.late():
            kept[:] = [p.detach().clone() for p in w.model.parameters()]
        own()
        if w.late():
            with torch.no_grad():
                for p, before in zip(w.model.parameters(), kept):
                    p.copy_(before)
    w.update = update


@kind("systems", "nonfinite", "T", late=True, families=["resnet"])
def running_mean_lost(w: Work) -> None:
    at_end(w, lambda: w.model.norm.running_mean.fill_(math.nan))


@kind("systems", "nonfinite", "F", late=True, make=Policy)
def reward_not_a_number(w: Policy) -> None:
    w.reward = lambda reward: reward * math.nan if w.late() else reward


@kind("optimisation", HIGH, "F", make=Policy)
def policy_rate_too_high(w: Policy) -> None:
    w.rate *= 300


@kind("numerics", "nonfinite", "F", late=True, make=Gan)
def judge_of_a_log(w: Gan) -> None:
    w.wait = lambda fake: fake + torch.log(torch.relu(fake)) if w.late() else fake


def work_of(name: str, draw: int, faulty: bool) -> Work:
    kind = KINDS[name]
    work = kind.make(f"{name}/{draw}", **kind.draws)
    if faulty:
        kind.put(work)
    return work
