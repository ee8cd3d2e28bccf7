"""The black box of a training: what is held of the open step, and how it is written when something in it is not finite.

Held from the beginning of each training forward until the optimizer has stepped: references to what the model was
called with, and random states; of loss functions the labels. Nothing is copied. When an origin of NaN or infinity was
found (origin/watch.py), the step is written before the optimizer changes the weights: once for each cause, and no more
than the plan's `black_box_bytes` in all.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import sys
import time
from collections import UserDict
from typing import TYPE_CHECKING, Any

import torch

from tdbg.blackbox import file as _file
from tdbg.blackbox.random_states import RandomStates, Taker
from tdbg.blackbox.structure import Encoder

from ..guard import say
from ..mapped import GONE
from .flight import FlightRecorder
from .losses import in_backward
from .names import strip, unwrap
from .origin.values import is_there
from .params import local

if TYPE_CHECKING:
    from .session import Session

TOPIC = "black_box"
MAX_FORWARDS = 256          # of one step; one with more micro-steps is not kept
MAX_TARGETS = 256
MAX_SOURCE = 64 << 10


class _Forward:
    __slots__ = "args", "bytes", "kwargs", "module", "random", "versions"

    def __init__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], random: RandomStates
    ) -> None:
        self.module, self.args, self.kwargs, self.random = module, args, kwargs, random
        # What is written in place between now and then could not be brought back.
        self.versions = [(t, t._version) for t in args if type(t) is torch.Tensor and not t.is_inference()]
        self.bytes = _bytes_of(args) + _bytes_of(kwargs)

    def let_go(self) -> None:
        self.args, self.kwargs, self.versions, self.bytes = (), {}, [], 0


class BlackBox:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = 0                      # bytes that may still be written; 0: nothing is held
        self._taker = Taker()
        self._forwards: list[_Forward] = []
        self._targets: list[tuple[str, torch.Tensor]] = []
        self._losses: list[list[Any]] = []
        self._done = 0, 0, 0                # how many of these three led to a step that an optimizer has made
        self._wanted: str | None = None     # why the open step is to be written
        self._asked: str | None = None      # and why the next one that begins is
        self._flight: FlightRecorder | None = None
        self._held = 0                      # bytes that forwards and labels keep alive
        self._too_much = ""                 # why nothing of the open step is held any more

    def opened(self, budget: int, flight_steps: int = 0) -> None:
        self._left = budget
        if flight_steps > 0 and budget > 0:
            self._flight = FlightRecorder(flight_steps, budget)
        elif flight_steps > 0:
            say("--flight keeps nothing: it is written into black boxes, and --black-box is off")

    def asked(self, because: str) -> None:
        """The next step that begins is to be written."""
        if self._left <= 0:
            say("a black box was asked for, and none can be written: --black-box is off, or its room is used up")
        else:
            self._asked = because

    # What is held -------------------------------------------------------------------------------------------------

    def forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A training forward of a root begins."""
        session = self._session
        if session.port is not session.run and not session.losses.origins.waits and self._asked is None:
            return          # on a device nobody looks for what would be a reason
        if self._asked is not None and not self._forwards and self._left > 0:
            self._wanted, self._asked = self._asked, None
        if self._left > 0 and not self._too_much:
            forward = _Forward(module, args, kwargs, self._taker.take())
            self._forwards.append(forward)
            self._held += forward.bytes
            if len(self._forwards) > MAX_FORWARDS:
                self._let_go(f"it has more than {MAX_FORWARDS} forwards")
            else:
                self._keep_to_the_room()

    def _keep_to_the_room(self) -> None:
        """A step that could not be written is let go: what it holds may be what the training has no room for."""
        if self._held > self._left:
            self._let_go(f"its batches are more than the {_size(self._left)} that are left (--black-box)")

    def _let_go(self, why: str) -> None:
        self._too_much = why
        for forward in self._forwards:
            forward.let_go()
        self._targets.clear()
        self._held, self._done = 0, (self._done[0], 0, self._done[2])

    def compared_with(self, function: str, target: torch.Tensor) -> None:
        """A loss function was given these labels. Kept are those that a replay will ask for: not those of an evaluation
        between two micro-steps, nor what checkpointing computes again inside of backward."""
        if not self._forwards or self._too_much or target.requires_grad or len(self._targets) >= MAX_TARGETS:
            return
        if torch.is_grad_enabled() and in_backward() == -1:
            self._targets.append((function, target))
            self._held += _bytes_of(target)
            self._keep_to_the_room()

    def differentiated(self, copies: list[Any]) -> None:
        """backward is about to run on losses with these values (`Losses._keep`'s copies)."""
        if self._forwards:
            self._losses.append(copies)

    def wanted(self, sentence: str) -> None:
        """The open step is to be written, because of this."""
        if self._forwards and self._wanted is None:
            self._wanted = sentence

    def stepped(self, alone: bool) -> None:
        """An optimizer has stepped; `alone`: there is no other."""
        self._wanted = None
        self._done = len(self._forwards), len(self._targets), len(self._losses)
        if alone:
            self.step_ended()

    def step_ended(self) -> None:
        """What led to steps of optimizers is held no more. The next step's forwards may be there: where there are
        several optimizers, a step ends when one of them is about to step again."""
        forwards, targets, losses = self._done
        if forwards:
            self._held -= sum(forward.bytes for forward in self._forwards[:forwards])
            self._held -= sum(_bytes_of(target) for _, target in self._targets[:targets])
            del self._forwards[:forwards], self._targets[:targets], self._losses[:losses]
            self._done = 0, 0, 0
            self._too_much = ""

    def forget(self) -> None:
        """The watch is over, perhaps in the middle of a step: nothing of it is held any more."""
        self._forwards, self._targets, self._losses = [], [], []
        self._flight, self._left, self._held, self._done = None, 0, 0, (0, 0, 0)

    # What is written ----------------------------------------------------------------------------------------------

    def before_update(self, stepping: list[torch.Tensor] | None = None) -> None:
        """An optimizer is about to change these, or (None) nobody will change anything any more."""
        if self._flight is not None and stepping:
            self._flight.take(self._session.run.global_step + (self._session.open_mode is None), stepping)
        if self._wanted is None:
            return
        sentence, self._wanted = self._wanted, None
        session, began = self._session, time.perf_counter()
        if self._too_much:
            session.say_once(f"no black box of this step: {self._too_much}")
            return
        step = session.run.global_step + (session.open_mode is None)
        rank, _ = session.rank()
        place = os.path.join("black_box", str(session.run.attempt), f"worker_{rank}", str(step))
        with torch.no_grad():
            document, tensors, left_out = self._contents(sentence, step, stepping or [])
        if document is None:
            say(f"no black box of step {step}: {left_out[0]}")
            self._left = 0
            return
        try:
            written = _file.write(session.run.directory, place, document, tensors)
        except OSError as error:        # a full disk: the next step finds it so, too, and holds nothing for it
            self._left = 0
            say(f"no black box of step {step}, nor of later ones: {error.strerror or error}: {place}")
            return
        self._left -= written
        session.context.origin(TOPIC, json.dumps({
            "step": step, "directory": place, "because": sentence, "bytes": written,
            "left_out": left_out, "millis": round((time.perf_counter() - began) * 1e3, 1)}))

    def _contents(
        self, sentence: str, step: int, stepping: list[torch.Tensor]
    ) -> tuple[dict[str, Any] | None, dict[str, torch.Tensor], list[str]]:
        """(document, tensors, what was left out); no document: what cannot be done without is beyond the budget."""
        kept = Kept(self._left)
        models = self._models()
        described = [self._model(kept, number, label, module) for number, (label, module) in enumerate(models)]
        place = {id(module): number for number, (_, module) in enumerate(models)}
        forwards = [self._forward(kept, n, f, place) for n, f in enumerate(self._forwards)]
        targets = [{"function": function, "target": Encoder(kept.namer(f"target/{n}")).encode(target)}
                   for n, (function, target) in enumerate(self._targets)]
        if kept.gone:
            return None, {}, [f"{kept.gone}: {GONE}"]
        if kept.left_out:
            return (
                None,
                {},
                [
                    f"its parameters and its batch are {_size(kept.bytes_left_out)} more than the budget allows "
                    "(--black-box)"
                ],
            )
        gradients, optimizers = [], []
        for number, (_, module) in enumerate(models):
            for name, parameter in _parameters(module):
                key = f"gradient/{number}/{name}"
                if parameter.grad is not None and kept.add(key, local(parameter.grad), "gradients"):
                    gradients.append({"model": number, "parameter": name, "tensor": key})
        for number, entry in enumerate(list(self._session.optimizers.entries.values())):
            optimizer = entry.ref()
            if isinstance(optimizer, torch.optim.Optimizer) and not entry.ignored:
                optimizers.append(self._optimizer(kept, number, entry.label, optimizer, models))
        flight = self._flight.written(kept, models) if self._flight is not None else []
        left_out = [f"{what} ({_size(size)})" for what, size in kept.left_out.items()]
        ids = set(map(id, stepping))
        run, (rank, world_size) = self._session.run, self._session.rank()
        return (
            {
                "step": step,
                "because": sentence,
                "rank": rank,
                "world_size": world_size,
                "written_wall_nanos": time.time_ns(),
                "attempt": run.attempt,
                "adaptor": self._session.adaptor(),
                "environment": _environment(),
                "models": described,
                "forwards": forwards,
                "targets": targets,
                "losses": [_losses(copies) for copies in self._losses],
                "losses_before": sum(map(len, self._losses[: self._done[2]])),
                "about_to_step": [
                    [n, name] for n, (_, module) in enumerate(models) for name, p in _parameters(module) if id(p) in ids
                ],
                "gradients": gradients,
                "flight": flight,
                "optimizers": optimizers,
                "left_out": left_out,
            },
            kept.tensors,
            left_out,
        )

    def _models(self) -> list[tuple[str, torch.nn.Module]]:
        """The roots that ran in this step, in the order in which they first did."""
        found: list[tuple[str, torch.nn.Module]] = []
        for forward in self._forwards:
            module = unwrap(forward.module)
            if all(known is not module for _, known in found):
                labels = [root.label for root in self._session.names.roots if root.module is module]
                found.append((labels[0] if labels else type(module).__name__, module))
        return found

    def _model(self, kept: Kept, number: int, label: str, module: torch.nn.Module) -> dict[str, Any]:
        described: dict[str, Any] = {"label": label, "class": f"{type(module).__module__}.{type(module).__qualname__}",
                                     "source": _source_of(type(module)), "training": module.training}
        for what, tensors in (("parameters", _parameters(module)), ("buffers", list(module.named_buffers()))):
            described[what] = [{"name": name, "tensor": f"{what[:-1]}/{number}/{name}"} for name, tensor in tensors
                               if kept.add(f"{what[:-1]}/{number}/{name}", local(tensor.detach()), what)]
        return described

    def _forward(self, kept: Kept, number: int, forward: _Forward, place: dict[int, int]) -> dict[str, Any]:
        encoder = Encoder(kept.namer(f"input/{number}"))
        random, states = forward.random, f"random/{number}"
        kept.add(f"{states}/torch", random.torch, "random states")
        for device, state in random.cuda.items():
            kept.add(f"{states}/cuda/{device}", state, "random states")
        numpy = None
        if random.numpy is not None:
            kept.add(f"{states}/numpy", torch.as_tensor(random.numpy[1].astype("int64")), "random states")
            numpy = {"kind": str(random.numpy[0]), "rest": list(random.numpy[2:])}
        version, words, gauss = random.python
        kept.add(f"{states}/python", torch.tensor(words, dtype=torch.int64), "random states")
        return {
            "model": place[id(unwrap(forward.module))],
            "args": encoder.encode(forward.args),
            "kwargs": encoder.encode(forward.kwargs),
            "absent": encoder.absent,
            "changed_since": sum(t._version != version for t, version in forward.versions),
            "random": {
                "prefix": states,
                "cuda": list(random.cuda),
                "numpy": numpy,
                "python": {"version": version, "gauss": gauss},
            },
        }

    @staticmethod
    def _optimizer(kept: Kept, number: int, label: str, optimizer: torch.optim.Optimizer,
                   models: list[tuple[str, torch.nn.Module]]) -> dict[str, Any]:
        names = {id(p): [n, name] for n, (_, module) in enumerate(models) for name, p in _parameters(module)}
        states = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state, whose = optimizer.state.get(parameter), names.get(id(parameter))
                if state and whose is not None:
                    encoder = Encoder(kept.namer(f"optimizer/{number}/{whose[0]}/{whose[1]}", "the optimizer's state"))
                    states.append({"model": whose[0], "parameter": whose[1], "state": encoder.encode(
                        {k: local(v) if isinstance(v, torch.Tensor) else v for k, v in state.items()})})
        plain = Encoder(lambda tensor: None)
        groups = [plain.encode({k: v for k, v in group.items() if k != "params"}) for group in optimizer.param_groups]
        return {
            "label": label,
            "class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
            "states": states,
            "groups": groups,
        }


class Kept:
    """Tensors for the file, while there is room."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self.tensors: dict[str, torch.Tensor] = {}
        self.left_out: dict[str, int] = {}      # what -> bytes
        self.gone = ""                          # the last that could not be read

    @property
    def bytes_left_out(self) -> int:
        return sum(self.left_out.values())

    def add(self, key: str, tensor: torch.Tensor, what: str) -> bool:
        size = tensor.numel() * tensor.element_size()
        kept = _file.can_keep(tensor) and size <= self._left
        if kept and not is_there(tensor):
            kept, self.gone = False, key
        if not kept:
            self.left_out[what] = self.left_out.get(what, 0) + size
            return False
        self._left -= size
        self.tensors[key] = tensor
        return True

    def namer(self, prefix: str, what: str = "the batch") -> Any:
        """What an Encoder calls for each tensor."""
        count = iter(range(1 << 30))

        def name(tensor: torch.Tensor) -> str | None:
            key = f"{prefix}/{next(count)}"
            return key if self.add(key, local(tensor.detach()), what) else None
        return name


def _parameters(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    return [(strip(name), p) for name, p in module.named_parameters()]


def _bytes_of(value: Any, depth: int = 0) -> int:
    """Of the tensors in what a model was called with; not looked for without end, nor by any code of the script's."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() if value.layout is torch.strided else 0
    if isinstance(value, UserDict):     # as Hugging Face's batches are
        value = value.data
    if depth < 3 and isinstance(value, (dict, list, tuple)) and len(value) <= 256:
        parts = dict.values(value) if isinstance(value, dict) else value
        return sum(_bytes_of(part, depth + 1) for part in parts)
    return 0


def _losses(copies: list[Any]) -> list[dict[str, Any] | None]:
    """A number in host memory, exactly; nothing of others."""
    return [
        {"value": repr(copy.value), "dtype": copy.dtype, "bits": bytes(copy.bytes).hex()}
        if hasattr(copy, "bytes")
        else None
        for copy in copies
    ]


def _source_of(kind: type) -> str | None:
    try:
        return inspect.getsource(kind)[:MAX_SOURCE]
    except (OSError, TypeError):
        return None


def _environment() -> dict[str, Any]:
    """What decides whether the same numbers come out again."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype())[6:],
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
        "processor": platform.processor() or platform.machine(),
        "numpy": getattr(sys.modules.get("numpy"), "__version__", None),
    }


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count} GiB"

