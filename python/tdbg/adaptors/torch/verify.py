"""`tdbg run --verify-every N`: forward and backward of every N-th step are executed again, and compared to the bit.

    the forward begins    its arguments, random states and buffers are held; nothing is copied but buffers
    it has ended          its outputs' hashes
    backward runs         hashes of each parameter's gradient as backward gives it, before it is added to `.grad` and
                          before ranks average it; the gradients of the outputs
    backward has ended    the model is called again with all of that restored, and gradients are computed from the
                          same gradients of the outputs

The training's own execution is the one that counts, whatever comes out: `.grad`, buffers, random states and the graph
are never written to. Where the two differ there is a third one, which tells a single wrong result from a computation
that never gives the same twice. With several ranks there are always three, so that all of them do the same.

What cannot be executed again is said once, and not looked at any more: loss that reaches parameters past the model's
outputs (several calls, penalties), forwards that change attributes of their modules, compiled graphs, sharded models.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tdbg.blackbox.random_states import RandomStates, Taker, restore

from ...words import error_text
from ..guard import pass_on, say
from ..steps import TRAIN
from ..structure import every
from .dynamo import has_compiled
from .names import strip, unwrap

if TYPE_CHECKING:
    from .session import Session

TOPIC = "not_repeatable"
MAX_NODES = 10_000      # between the loss and the model's outputs, and behind outputs where there are several
MOST_TOLD = 5           # records of a run
_PLAIN = (bool, int, float, str, bytes, type(None))
#: Wrappers whose module can be called in their place.
_SEEN_THROUGH = {"DistributedDataParallel", "DataParallel"}


class _NotAgain(Exception):
    """This cannot be executed again, and why. `for_good`: nor will any other step of this training."""

    def __init__(self, why: str, for_good: bool = True) -> None:
        super().__init__(why)
        self.for_good = for_good


class _Execution:
    """Hashes of what came out: of outputs in order, and of gradients in the order in which backward gave them."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.gradients: dict[str, str] = {}

    def first_difference(self, other: _Execution) -> tuple[str, str] | None:
        """("output" or "gradient", which)"""
        if len(self.outputs) != len(other.outputs):
            return "output", "their number"
        for n, (a, b) in enumerate(zip(self.outputs, other.outputs)):
            if a != b:
                return "output", str(n)
        for name, a in self.gradients.items():
            if other.gradients.get(name) != a:
                return "gradient", name
        return None


class _Held:
    """What one forward was computed from."""

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any],
                 random: RandomStates) -> None:
        self.module, self.args, self.kwargs, self.random = module, args, kwargs, random
        tensors = [t for t in every(torch.Tensor, (args, kwargs))]
        if any(t.grad_fn is not None for t in tensors):
            raise _NotAgain("what the model is called with was computed by another model in the same step")
        self.versions = [(t, t._version) for t in tensors if not t.is_inference()]
        self.take_buffers()
        self.attributes = [(m, _attributes(m)) for m in module.modules()]
        self.autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
                         for kind in ("cpu", "cuda")]
        self.outputs: list[torch.Tensor] = []
        self.output_versions: list[int] = []
        self.first = _Execution()
        self.seeds: dict[int, torch.Tensor] = {}    # number of the output -> its gradient
        self.handles: list[Any] = []
        self.before_module: Any = None
        self.step = -1

    def take_buffers(self, *_: Any) -> None:
        self.buffers = [
            (owner, name, buffer.detach().clone())
            for owner in self.module.modules() for name, buffer in owner._buffers.items() if buffer is not None
        ]

    def forward_is_over(self) -> None:
        if self.before_module is not None:
            self.before_module.remove()
            self.before_module = None

    def let_go(self) -> None:
        self.forward_is_over()
        for handle in self.handles:
            handle.remove()
        self.handles = []


class Verify:
    """Of one session. :param interval: of TRAIN steps"""

    def __init__(self, session: Session, interval: int) -> None:
        self._session, self._interval = session, interval
        self._taker = Taker()
        self._held: _Held | None = None
        self._last = -1             # the step whose forward was held last
        self._off = ""
        self._said: set[str] = set()
        self._checked = 0           # steps
        self._different = 0
        self._told = 0
        self._running = False

    # The training's own execution --------------------------------------------------------------------------------

    def forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A training forward of a root begins. Held of a step is its first one."""
        if self._off or self._running:
            return
        if self._held is not None and self._held.handles:
            self._drop()        # backward began and raised, and the script goes on
        session = self._session
        step = session.next_step(TRAIN) - (session.open_mode == TRAIN)
        if step % self._interval or step == self._last:
            return
        self._last = step
        self._drop()
        try:
            self._held = self._hold(module, args, kwargs)
            self._held.step = session.run.global_step + (session.open_mode is None)
        except _NotAgain as why:
            self._not_again(why)

    def _hold(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Held:
        inner = module
        while type(inner).__name__ in _SEEN_THROUGH:
            inner = inner.module
        if has_compiled() or unwrap(inner) is not inner or isinstance(inner, torch.jit.ScriptModule):
            raise _NotAgain("a graph that was compiled, or a wrapper that is not DistributedDataParallel")
        kinds = {type(m).__name__ for m in inner.modules()}
        if "SyncBatchNorm" in kinds or any(hasattr(p, "_local_tensor") for p in inner.parameters()):
            raise _NotAgain("its forward needs the other ranks (SyncBatchNorm, shards)")
        if any(p.device.type != "cpu" for p in inner.parameters()) and torch.cuda.is_initialized():
            if torch.cuda.is_current_stream_capturing():
                raise _NotAgain("a CUDA graph is captured")
        held = _Held(inner, args, kwargs, self._taker.take())
        if inner is not module:
            # DistributedDataParallel gives every rank the first one's buffers, and then calls the module.
            held.before_module = inner.register_forward_pre_hook(held.take_buffers, prepend=True)
        return held

    def forward_ended(self, output: Any) -> None:
        """The root's forward gave this."""
        held = self._held
        if held is None or held.outputs or self._running:
            return
        held.forward_is_over()
        changed = [m for m, before in held.attributes if _attributes(m) != before]
        if changed:
            self._drop()
            self._not_again(_NotAgain(f"the forward of {type(changed[0]).__name__} changes the module's own "
                                      "attributes"))
            return
        held.attributes = []
        held.outputs = [t for t in every(torch.Tensor, output)]
        held.output_versions = [t._version for t in held.outputs]
        held.first.outputs = [_hash(t) for t in held.outputs]

    def backward_begins(self, tensors: Sequence[torch.Tensor], creates_graph: bool) -> None:
        """backward is about to run on these."""
        held = self._held
        if held is None or self._running:
            return
        try:
            if not held.outputs:
                raise _NotAgain("its forward gave no tensor")
            if creates_graph:
                raise _NotAgain("backward makes a graph of its own (create_graph=True)")
            if any(t._version != version for t, version in held.versions):
                raise _NotAgain("the batch was written to after the forward", for_good=False)
            if any(t._version != v for t, v in zip(held.outputs, held.output_versions)):
                raise _NotAgain("the model's output was written to after the forward")
            self._watch(held, tensors)
        except _NotAgain as why:
            self._drop()
            self._not_again(why)

    def _watch(self, held: _Held, tensors: Sequence[torch.Tensor]) -> None:
        nodes = {t.grad_fn: n for n, t in enumerate(held.outputs) if t.grad_fn is not None}
        reached = _reached(tensors, nodes)
        if not reached:
            raise _NotAgain("the loss was not computed from what the model's forward gave", for_good=False)
        if len(reached) > 1:
            for n in reached:
                behind = held.outputs[n].grad_fn
                if behind is not None and _reached_behind(behind, nodes) - {n}:
                    raise _NotAgain("one of the model's outputs was computed from another one, and the loss from both")

        def seed(n: int) -> Any:
            def keep(gradient: torch.Tensor) -> None:
                held.seeds[n] = gradient.detach().clone()
            return keep

        def result(name: str) -> Any:
            def keep(gradient: torch.Tensor) -> None:
                # Of a parameter whose gradient comes in several pieces there would be several.
                held.first.gradients[name] = _hash(gradient)
            return keep

        held.handles = [held.outputs[n].register_hook(seed(n)) for n in reached]
        held.handles += [p.register_hook(result(name)) for name, p in held.module.named_parameters()
                         if p.requires_grad]

    # The others --------------------------------------------------------------------------------------------------

    def backward_ended(self) -> None:
        """backward has run to its end."""
        held = self._held
        if held is None or self._running or not held.handles:
            return
        held.let_go()
        self._held = None
        self._running = True
        try:
            self._compare(held)
        except _NotAgain as why:
            self._not_again(why)
        finally:
            self._running = False

    def _compare(self, held: _Held) -> None:
        rank, world_size = self._session.rank()
        second = self._again(held)
        difference = held.first.first_difference(second)
        third = self._again(held) if difference is not None or world_size > 1 else None
        self._checked += 1
        self._session.context.add("context/verified_steps", self._checked)
        if difference is None and third is not None:
            difference = held.first.first_difference(third)
            if difference is not None:      # the second execution was right, and the third is not
                second, third = third, second
        if difference is None or third is None:
            return
        self._different += 1
        if self._told >= MOST_TOLD:
            return
        self._told += 1
        if held.first.first_difference(third) is None:
            odd, verdict = "the second", "corruption"
        elif second.first_difference(third) is None:
            odd, verdict = "the training's own", "corruption"
        else:
            odd, verdict = "", "nondeterminism"
        if verdict == "corruption" and self._different > 1:
            # A bit that flips does not come back at the next step that is looked at.
            verdict = "nondeterminism"
        self._tell(held, difference, odd, verdict, rank)

    def _tell(self, held: _Held, difference: tuple[str, str], odd: str, verdict: str, rank: int) -> None:
        what, which = difference
        tensor, name = "", f"output {which}"
        if what == "gradient":
            tensor = self._gradient_name(held, which)
            name = f"the gradient of {strip(which)}"
        how_many = (f"two of three executions agree, and {odd} differs" if odd else
                    "three executions gave three results")
        again = f"; it is the {self._different}. of {self._checked} steps looked at" if self._different > 1 else ""
        likelier = ("a silent corruption is likelier than nondeterminism (memory, processor)"
                    if verdict == "corruption" else
                    "nondeterminism is likelier than a silent corruption (an operation without a fixed order, a state "
                    "outside of parameters and buffers)")
        sentence = (f"forward and backward of step {held.step}, executed again on rank {rank} from the same weights, "
                    f"batch and random numbers, differ first in {name}: {how_many}{again}: {likelier}; the training "
                    "goes on with its own")
        say(f"verify: {sentence}")
        self._session.context.put_topic(TOPIC, json.dumps({
            "sentence": sentence, "step": held.step, "rank": rank, "worker": f"worker_{rank}", "what": what,
            "which": strip(which), "tensor": tensor, "odd": odd, "likelier": verdict, "executions": 3}))

    def _gradient_name(self, held: _Held, which: str) -> str:
        """As the run has it."""
        parameter = dict(held.module.named_parameters()).get(which)
        for root in self._session.names.roots:
            for p, named in root.parameters():
                if p is parameter:
                    return f"gradient/{named.name}"
        return ""

    def _again(self, held: _Held) -> _Execution:
        """Calls the model once more, and computes gradients; leaves everything as it was."""
        session, module, found = self._session, held.module, _Execution()
        now = self._taker.take()
        muted, session.losses.muted = session.losses.muted, True
        own = [(owner, name, owner._buffers[name]) for owner, name, _ in held.buffers]
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(session.out_of_sight(list(module.modules())))
                stack.enter_context(torch.enable_grad())
                for owner, name, buffer in held.buffers:
                    owner._buffers[name] = buffer.clone()
                restore(held.random)
                for kind, enabled, dtype in held.autocast:
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
                output = module(*held.args, **held.kwargs)
                outputs = [t for t in every(torch.Tensor, output)]
                found.outputs = [_hash(t) for t in outputs]
                if len(outputs) == len(held.outputs):
                    found.gradients = _gradients(module, outputs, held.seeds)
        except Exception as error:
            pass_on(error)
            raise _NotAgain(f"its forward raised when it was called again: {error_text(error)}") from None
        finally:
            for owner, name, mine in own:
                owner._buffers[name] = mine
            restore(now)
            session.losses.muted = muted
        return found

    # What is said ------------------------------------------------------------------------------------------------

    def _drop(self) -> None:
        if self._held is not None:
            self._held.let_go()
            self._held = None

    def _not_again(self, why: _NotAgain) -> None:
        if why.for_good:
            self._off = str(why)
        if str(why) not in self._said:
            self._said.add(str(why))
            say(f"verify: a step cannot be executed again: {why}"
                + ("; no step of this training is verified from here on" if why.for_good else ""))

    def step_over(self) -> None:
        """Nothing of a step is executed again once it is over: a forward without a backward would keep its graph, and a
        backward that raised its hooks, until the next step that is verified."""
        if not self._running:
            self._drop()

    def ended(self) -> None:
        self._drop()
        if self._checked:
            same = self._checked - self._different
            say(f"verify: {same} of {self._checked} steps that were executed again gave the same bits")
        elif not self._off:
            say("verify: no step was executed again")


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """What can be compared of a module's own attributes: numbers and texts; of containers how much is in them."""
    return {name: value if type(value) in _PLAIN else len(value)
            for name, value in vars(module).items()
            if type(value) in _PLAIN or (type(value) in (list, dict, set) and not name.startswith("_"))}


def _gradients(module: torch.nn.Module, outputs: list[torch.Tensor], seeds: dict[int, torch.Tensor]) -> dict[str, str]:
    """Of every parameter, as backward would hand it to the parameter; `.grad` is not touched."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    ways = [(outputs[n], seed) for n, seed in seeds.items() if outputs[n].requires_grad]
    if not ways or not named:
        return {}
    gradients = torch.autograd.grad([o for o, _ in ways], [p for _, p in named], [s for _, s in ways],
                                    allow_unused=True)
    return {name: _hash(g) for (name, _), g in zip(named, gradients) if g is not None}


def _walk(start: Iterator[Any] | list[Any], stop: dict[Any, int]) -> Iterator[Any]:
    todo = list(start)
    seen = set(todo)
    while todo:
        node = todo.pop()
        yield node
        if node in stop:
            continue
        for behind, _ in node.next_functions:
            if behind is not None and behind not in seen:
                seen.add(behind)
                todo.append(behind)
        if len(seen) > MAX_NODES:
            raise _NotAgain("the graph between the loss and the model's outputs is too large to be looked at")


def _reached(tensors: Sequence[torch.Tensor], outputs: dict[Any, int]) -> set[int]:
    """Numbers of the outputs that a backward of `tensors` comes to first.

    :raises _NotAgain: it also comes to a leaf past all outputs
    """
    found = set()
    for node in _walk([t.grad_fn for t in tensors if isinstance(t, torch.Tensor) and t.grad_fn is not None], outputs):
        if node in outputs:
            found.add(outputs[node])
        elif hasattr(node, "variable"):
            raise _NotAgain("the loss reaches parameters past what the model's forward gave: it is called several "
                            "times in a step, or a penalty is added")
    return found


def _reached_behind(node: Any, outputs: dict[Any, int]) -> set[int]:
    return {outputs[n] for n in _walk([behind for behind, _ in node.next_functions if behind is not None], {})
            if n in outputs}


def _hash(tensor: torch.Tensor) -> str:
    """Of the bits, with type and shape. A tensor on a device is waited for."""
    plain = tensor.detach()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
    found = hashlib.blake2b(f"{plain.dtype}{tuple(plain.shape)}".encode(), digest_size=16)
    if plain.numel():
        found.update(memoryview(plain.reshape(-1).view(torch.uint8).numpy()))
    return found.hexdigest()
