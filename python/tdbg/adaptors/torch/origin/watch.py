"""When the birth of a NaN is looked for, in one training, and how it gets into the run.

While all is well that costs: a comparison of the loss, whose value was copied already; a reference to each tensor that
the model was given; and what `backward.Holder` holds. A loss on a device is not waited for, so there nothing is looked
for, unless TDBG_NAN_ORIGIN=wait asks for it.

* backward is called, and the loss is not finite: the graph is still there (walk.Walk).
* An optimizer is about to step, and the recorder says that among weights and gradients something is not finite,
  although the loss was (backward.find).
* `clip_grad_norm_` is about to spread a norm that is not finite over all gradients: their states are looked at before.

TDBG_NAN_ORIGIN=where has torch keep the line of each operation, as its anomaly detection does (both: wait,where).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..ranks import is_distributed
from ..scaler import scale_of
from ..unseen import hidden
from . import backward as _backward
from . import lines, updates
from .birth import BUFFER, INPUT, LABEL, PARAMETER, UNSEEN, Birth, Outside
from .graph import TooLarge, order_of
from .lines import Line
from .said import inputs_of, record_of, title_of
from .values import Budget, state_of, values_of
from .walk import Walk

if TYPE_CHECKING:
    from ..session import Session

TOPIC = "nan_origin"
MOST_SEARCHES = 64        # of a run: a training that goes on through NaN is not searched at every step
MOST_RECORDED = 16
MOST_LINES = 8            # of losses that were not finite, in a step


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Looks without a trace: no graph, and past whatever mode the script has put around its own operations."""
    with torch.no_grad(), hidden(), torch._C.DisableTorchFunction():
        yield


class Origins:
    """What is known of where NaN and infinity began."""

    def __init__(self, session: Session) -> None:
        self._session = session
        asked = os.environ.get("TDBG_NAN_ORIGIN", "").replace(" ", "").split(",")
        #: A device is waited for: at each backward and at each step of an optimizer.
        self.waits = "wait" in asked
        self._keeps_lines = "where" in asked
        self._switched_on = False       # torch's anomaly detection, which keeps them, by us
        # Of losses that were not finite: of the node that made each, its number and name; the line that called it.
        self._lines: list[tuple[int, str, Line]] = []
        self._holder = _backward.Holder(self._layer_of, self.waits)
        self._given: list[tuple[str, weakref.ref[torch.Tensor], int]] = []      # with its version then
        self._target: weakref.ref[torch.Tensor] | None = None
        self._held_target: torch.Tensor | None = None     # until the optimizer steps, where a NaN may be left out of it
        self._losses: list[weakref.ref[torch.Tensor]] = []
        self._layers: dict[int, tuple[str, str]] = {}      # id() of a parameter -> its name, its layer's
        self._in_episode = False        # a loss or a gradient was not finite, and none has been finite since
        self._searches = 0
        self._recorded: set[tuple[str, ...]] = set()
        # By optimizer: which of its steps was looked at last, and were weights and gradients finite? None: the
        # gradients were, or the update was left out.
        self._looks: dict[int, tuple[int, bool | None]] = {}
        self._rates: dict[int, list[float]] = {}    # by optimizer: its learning rates at the last step that was fine
        self._bad_at_first: dict[str, int] = {}     # parameters that were not finite before the first update: how much
        self._waits: dict[int, list[int]] = {}      # by optimizer: looks that found nothing; steps until the next
        self._before_clip: dict[int, str | None] | None = None

    def opened(self) -> None:
        """The run is open, and the first forward has not begun."""
        if self._keeps_lines and not torch.is_anomaly_enabled():
            torch.autograd.set_detect_anomaly(True, check_nan=False)
            self._switched_on = True

    def closed(self) -> None:
        if self._switched_on:
            self._switched_on = False
            torch.autograd.set_detect_anomaly(False)

    # What is remembered while all is well -----------------------------------------------------------------------------

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A training forward was given these. Weakly: a batch is not kept alive."""
        self._given = [(name, weakref.ref(tensor), _version_of(tensor)) for name, tensor in inputs_of(args, kwargs)]

    def first_input(self) -> torch.Tensor | None:
        """The first tensor that a training forward was given last, if it still lives."""
        return self._given[0][1]() if self._given else None

    def compared_with(self, target: torch.Tensor, result: Any) -> None:
        """A loss function was given this to compare with, and returned `result`: of many losses the script may leave
        some out, and then nobody else may hold the target any more when gradients are looked at."""
        self._target = weakref.ref(target)
        many = isinstance(result, torch.Tensor) and result.dim() > 0 and result.requires_grad
        small = target.numel() * target.element_size() <= _backward.MOST_BYTES
        self._held_target = target if many and small and target.is_floating_point() else None

    def finite_loss(self, tensors: Sequence[torch.Tensor]) -> None:
        """backward is about to run on these, which are finite, or of which nobody can say without waiting for a
        device."""
        self._in_episode = False
        self._lines.clear()
        first = tensors[0] if tensors else None
        if first is not None and (self.waits or first.device.type == "cpu"):
            self._losses = [weakref.ref(t) for t in tensors]
            self._holder.before_backward(first)

    def fine(self, serial: int, step: int, parameters: list[torch.Tensor],
             optimizer: torch.optim.Optimizer | None) -> None:
        """Weights and gradients of this optimizer are, in its step of this number, which is open."""
        self._looks[serial] = step, True
        self._rates[serial] = updates.rates_of(optimizer) if optimizer is not None else []
        if self._waits:
            self._waits.pop(serial, None)
        self._held_target = None
        self._holder.forget_of(parameters, len(self._session.optimizers.entries) - 1)
        self._before_clip = None

    # What is looked at once something is not ----------------------------------------------------------------------

    def loss_returned(self, value: torch.Tensor) -> None:
        """A loss function returned this to the script, and it is not finite."""
        node = value.grad_fn
        if self._in_episode or node is None or len(self._lines) == MOST_LINES:
            return
        line = lines.of_caller(lines.LOSS)
        if line is not None:
            self._lines.append((order_of(node), node.name(), line))

    def bad_loss(self, tensors: Sequence[torch.Tensor]) -> None:
        """backward is about to run on these, of which one is not finite."""
        self._holder.forget()
        called, self._lines = self._lines, []
        if self._in_episode or self._searches >= MOST_SEARCHES:
            return
        self._in_episode = True
        self._searches += 1
        began = time.perf_counter()
        line: Line | None = None
        with _quietly():
            budget = Budget()
            noun = "NaN" if any(state_of(t, budget) == "nan" for t in tensors) else "infinite"
            try:
                walk = Walk(tensors, self._name_of, self._layer_of, self._outside(), budget,
                            bool(self._session.steps_closed and self._session.has_trained))
                birth = walk.find()
                made = {(order_of(node), node.name()) for node in walk.graph.nodes} if called else set()
                line = next((where for number, name, where in called if (number, name) in made), None)
            except TooLarge:
                birth = Birth(UNSEEN, because="the graph of the loss is too large to be looked at")
        self._record(birth, "forward", noun, time.perf_counter() - began, line or lines.of_caller(lines.BACKWARD))

    def before_clipping(self, parameters: Any) -> None:
        """Their norm is not finite, and clipping by it makes all of them so."""
        if self._in_episode or not isinstance(parameters, (list, tuple)):
            return
        with _quietly():
            budget = Budget()
            self._before_clip = {
                id(p): state_of(p.grad, budget)
                for p in parameters
                if isinstance(p, torch.Tensor) and p.grad is not None
            }

    def bad_batch(self, serial: int, step: int, parameters: list[torch.Tensor], skipped: bool) -> None:
        """An optimizer is about to step with these. Among them and their gradients something is not finite."""
        try:
            self._look_at(serial, step, parameters, skipped)
        finally:
            self._held_target = None

    def _look_at(self, serial: int, step: int, parameters: list[torch.Tensor], skipped: bool) -> None:
        before = self._looks.get(serial)
        self._looks[serial] = step, None if skipped else False
        wait = self._waits.setdefault(serial, [0, 0])
        clipped, self._before_clip = self._before_clip, None
        skipped = skipped and not self._scale_is_down()
        if self._in_episode or skipped or self._searches >= MOST_SEARCHES:
            self._holder.forget()
            return
        if wait[1]:                # weights that hold an infinity for good
            self._looks[serial] = step, None
            wait[1] -= 1
            self._holder.forget()
            return
        began = time.perf_counter()
        with _quietly():
            found = _backward.states_of(parameters, lambda p: p.grad, Budget())
            if found.bad and clipped is not None:
                found = _backward.Gradients({i: s for i, s in clipped.items() if s not in (None, "finite")},
                                            {i: 0.0 for i, s in clipped.items() if s == "finite"})
            if not found.bad:
                if before is None:
                    self._remember_first(parameters)
                self._looks[serial] = step, None
                wait[0] += 1
                wait[1] = 1 << min(wait[0], 14)
                self._holder.forget()
                return
            self._in_episode = True
            if before == (step - 1, False) and _backward.any_bad(parameters):
                self._holder.forget()        # what it was given is NaN since the update before, of which it was told
                return
            self._searches += 1
            losses = [t for ref in self._losses if (t := ref()) is not None]
            birth = _backward.find(found, self._holder.held, losses, self._layer_of, _ranks())
            if birth.what == UNSEEN and not birth.candidates:
                birth = _backward.came_in(found, parameters, self._outside(), self._layer_of) or birth
        self._holder.forget()
        birth.numbers = {
            **birth.numbers,
            "gradients": len(found.bad),
            "of_gradients": len(found.bad) + len(found.finite),
        }
        self._record(
            birth, "backward", "NaN" if "nan" in found.bad.values() else "infinite", time.perf_counter() - began
        )

    def _scale_is_down(self) -> bool:
        """Of a step that GradScaler left out: has its scale come down to 1, so that no overflow is the scale's?"""
        scale = scale_of(self._session.optimizers.scaler) if self._session.optimizers.scaler is not None else None
        if isinstance(scale, torch.Tensor) and scale.device.type != "cpu" and not self.waits:
            return False
        return scale is not None and float(scale) <= 1.0

    def _remember_first(self, parameters: list[torch.Tensor]) -> None:
        """No gradient has been bad yet, and something is: weights, from the start."""
        budget = Budget()
        for parameter in parameters:
            values = values_of(parameter, budget)
            if values is not None and (bad := values.nan + values.inf) and (name := self._name_of(parameter)):
                self._bad_at_first[name] = bad

    # Names -----------------------------------------------------------------------------------------------------------

    def _named(self, leaf: torch.Tensor) -> tuple[str, str]:
        """(a parameter's name, its layer's)"""
        known = self._layers.get(id(leaf))
        if known is None:
            for parameter, named in ((p, n) for root in self._session.names.roots for p, n in root.parameters()):
                layer = named.short_name.rpartition(".")[0] or named.short_name
                self._layers[id(parameter)] = named.name, layer
            for entry in list(self._session.optimizers.entries.values()):
                for parameter, named in zip(entry.params, entry.named):
                    self._layers.setdefault(
                        id(parameter), (named.name, named.short_name.rpartition(".")[0] or named.short_name)
                    )
            known = self._layers.setdefault(id(leaf), ("", ""))
        return known

    def _name_of(self, leaf: torch.Tensor) -> str | None:
        return self._named(leaf)[0] or None

    def _layer_of(self, leaf: torch.Tensor) -> str:
        return self._named(leaf)[1]

    def _outside(self) -> list[Outside]:
        found = [Outside(INPUT, name, t, _version_of(t) != version) for name, ref, version in self._given
                 if (t := ref()) is not None]
        target = self._target() if self._target is not None else None
        if target is not None:
            found.append(Outside(LABEL, "the labels", target))
        for root in self._session.names.roots:
            found += [Outside(BUFFER, named.name, buffer) for buffer, named in root.buffers()]
            found += [Outside(PARAMETER, named.name, p) for p, named in root.parameters() if not p.requires_grad]
        self._layers.clear()            # id()s of parameters are those of now
        return found

    # What is written ----------------------------------------------------------------------------------------------

    def _record(self, birth: Birth, direction: str, noun: str, seconds: float, loss: Line | None = None) -> None:
        session = self._session
        cause = direction, birth.what, birth.node, birth.name, *birth.place
        if cause in self._recorded or len(self._recorded) >= MOST_RECORDED:
            return
        history = self._history(birth.name, birth.numbers) if birth.what == PARAMETER else {}
        if history.get("by") == "gradient":
            return                  # of which it was said where it began
        self._recorded.add(cause)
        record = record_of(birth, direction, noun, loss, history)
        record["looked_at"] = {
            "nodes": birth.nodes,
            "tensors": birth.tensors,
            "bytes": birth.bytes,
            "millis": round(seconds * 1e3, 3),
        }
        session.context.origin(TOPIC, json.dumps(record))
        session.black_box.wanted(title_of(birth, direction, noun))

    def _history(self, name: str, numbers: dict[str, Any]) -> dict[str, Any]:
        """Of a parameter that is not finite (`numbers`: how much of it): who made it so, as far as the steps before
        say."""
        session = self._session
        bad = numbers.get("nan", 0) + numbers.get("inf", 0)
        if not session.steps_closed or not session.has_trained or 0 < bad <= self._bad_at_first.get(name, 0):
            return {
                "by": "initial",
                "text": "it was so before the first update: by its initialisation, or in what was loaded",
            }
        owners = [entry for entry in list(session.optimizers.entries.values())
                  if any(named.name == name for named in entry.named)]
        if not owners:
            return {"by": "unknown", "text": "no optimizer updates it, so what made it so could not be seen"}
        looks = [fine if step == entry.steps else None
                 for entry in owners for step, fine in [self._looks.get(entry.serial, (-1, None))]]
        if False in looks:
            return {"by": "gradient", "text": "in the step before its gradient was not finite"}
        if None in looks:
            return {
                "by": "unknown",
                "text": "the step before was not looked at, so whether its gradient or its update made it so could "
                        "not be seen",
            }
        leaf = next((p for entry in owners for p, named in zip(entry.params, entry.named) if named.name == name), None)
        last = [updates.Update(o, self._rates.get(entry.serial, [])) for entry in owners
                if (o := entry.ref()) is not None]
        return updates.made_by(leaf, last, bool(numbers.get("nan")))


def _version_of(tensor: torch.Tensor) -> int:
    """How often it was written to; of what inference mode made nobody counts."""
    return -1 if tensor.is_inference() else tensor._version


def _ranks() -> int:
    return torch.distributed.get_world_size() if is_distributed() else 1
