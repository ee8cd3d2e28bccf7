"""Losses: what `backward` was called on, and what torch's loss functions returned.

`torch.autograd.backward` sees every loss that is trained on (Tensor.backward calls it); the functions of
torch.nn.functional see validation losses as well, and nn.CrossEntropyLoss looks F.cross_entropy up when it is
called, so that one patch covers both forms. A name imported with `from torch.nn.functional import ...` before
the adaptor was armed is missed; what it returned is still seen by backward.

Values are copied when they appear (`loss /= n` changes them in place) and kept until the step's end: a number in
host memory as such (a tensor of it, cold, takes 20 us to make), all else as a tensor. No `.item()`, so a device is
not waited for.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from tdbg import _capture

from ..numbering import BACKWARD, Numbering, numbered
from ..session import NOT_WANTED
from ..steps import EVAL, TRAIN
from .graph import owners
from .origin.watch import Origins
from .params import READER, dtype_name
from .predictions import BINARY, CLASSIFIES, MEASURES
from .shards import whole_of
from .unseen import hidden, unseen

if TYPE_CHECKING:
    from ..patches import Patches
    from .session import Session

FUNCTIONS = {
    "cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss", "mse_loss": "MSELoss", "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss", "huber_loss": "HuberLoss", "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss", "kl_div": "KLDivLoss",
    "poisson_nll_loss": "PoissonNLLLoss", "gaussian_nll_loss": "GaussianNLLLoss", "ctc_loss": "CTCLoss",
    "hinge_embedding_loss": "HingeEmbeddingLoss", "margin_ranking_loss": "MarginRankingLoss",
    "multi_margin_loss": "MultiMarginLoss", "multilabel_margin_loss": "MultiLabelMarginLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss", "soft_margin_loss": "SoftMarginLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss", "triplet_margin_loss": "TripletMarginLoss",
    "triplet_margin_with_distance_loss": "TripletMarginWithDistanceLoss",
}
LABELS = "_labels"
OUTPUT = "_output"
MAX_PENDING = 4096        # losses without an optimizer step: somebody's training loop is not one we understand
MAX_ELEMENTS = 1 << 20    # reduction="none" over more than this is not copied

in_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class Losses:
    """Losses of the step being trained and of the evaluation in progress."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.train: list[tuple[str, Any, int]] = []     # (name without its number, copy, micro-step)
        self.eval: list[tuple[str, Any, int]] = []
        self.micro = 0                    # backward calls since the last optimizer step
        self.passes = 0                   # and since the last TRAIN step: sub-keys of a step go on counting
        self.numbering = Numbering()
        self.seen = 0                     # losses that were returned
        self._last_sub = 0                # the highest sub-key of a loss in the step
        # by optimizer, its last losses in `_as_usual`: kinds, numbers, which are series, ids
        self._usual: dict[Any, Any] = {}
        self._ids: dict[Any, int] = {}
        # among what its forward returns; None: no training forward was seen
        self._model_gives_loss: bool | None = None
        self._labelled: dict[str, bool] = {}    # name of a loss -> does the plan want its labels?
        self._as_tensor: bool | None = None    # backward_loss: a loss of its own, or a series beside others
        self._last: Callable[[], Any] = lambda: None    # what was copied last,
        self._version = 0                 # at which version
        # (result of GradScaler.scale, copy of its argument, scale, its argument)
        self._scaled: tuple[Any, Any, Any, Any] | None = None
        # by micro-step: the optimizers that its backward reached, where asked
        self._owners: dict[int, set[int] | None] = {}
        self._differentiated: list[weakref.ref[Any]] = []    # by the last backward, until that is asked
        self.left: list[Any] = []    # what led to optimizers that are still to step in this step
        self._left_owners: dict[int, set[int] | None] = {}
        self._left_steps = 0              # micro-steps
        self.origins = Origins(session)
        self.muted = False                # inside a library's own loss function, which reports by itself

    # What the patched functions report ----------------------------------------------------------------------

    def returned(self, name: str, value: Any, factor: Any = None, labels: Any = None) -> None:
        """A loss function returned `value`. `factor()`: a number or tensor by which it is recorded multiplied, or None.
        `labels`: what it was compared with, if those are classes."""
        session = self.session
        self.seen += 1
        evaluating = session.evaluations.evaluating
        # An evaluation with gradients may turn out to be training: it is idle only if both are.
        if session.idle[TRAIN] and (not evaluating or session.idle[EVAL]):
            return
        # Exactly a Tensor: ahead-of-time compilation calls us with its fakes, and a copy of one would end up in
        # the graph.
        if type(value) is not torch.Tensor or in_backward() != -1 or _is_wrapped(value) or session.elsewhere():
            return
        if value.requires_grad:
            # What can be differentiated is not of an evaluation without gradients that ran before it (a teacher,
            # rollouts).
            evaluating = evaluating and session.evaluations.differentiates
            if not evaluating and session.idle[TRAIN]:
                return
        elif not evaluating:    # a metric, or an evaluation whose author forgot model.eval()
            session.context.modes.compared_without_gradients()
            return
        factor = factor and factor()
        pending, micro = self.eval if evaluating else self.train, self.micro
        if labels is not None and type(labels) is torch.Tensor and self._wants_labels(name):
            self._keep(pending, name + LABELS, labels, micro)
        # Behind its labels: backward() looks for it at the end.
        copy = self._keep(pending, name + OUTPUT, value if factor is None else value.detach() * factor, micro)
        if not evaluating and not _is_finite(copy, waits=False):
            self.origins.loss_returned(value)

    def of_training(self, output: Any) -> None:
        """A model returned `output`, in training. Is there a loss in it? Then there is one in what its evaluations
        return."""
        if self._as_tensor is None and not self._model_gives_loss:      # in the first step
            loss = _loss_in(output)
            self._model_gives_loss = loss is not None and loss.requires_grad

    def of_evaluation(self, value: Any, by_model: bool = True) -> None:
        """A loss that an evaluation gave, and no loss function did: one that a compiled model returned, or (`by_model`
        is False) that a trainer computed by itself. It has the name of what is trained on where that has no other."""
        if self._as_tensor is False or self.session.idle[EVAL] or (by_model and self._model_gives_loss is False):
            return
        if self.eval and (by_model or any(name != BACKWARD for name, _, _ in self.eval)):
            return
        loss = _loss_in(value)
        if loss is not None and not loss.requires_grad:
            # the trainer knows better than the model what it trains on (DPO's is none of the model's)
            self.eval.clear()
            self._keep(self.eval, BACKWARD, loss)

    def _wants_labels(self, name: str) -> bool:
        wanted = self._labelled.get(name)
        if wanted is None and self.session.run is not None:
            wanted = self._labelled[name] = self.session.run.wants(numbered(name + LABELS, 0), "label")
        return bool(wanted)

    @unseen
    def scaled(self, argument: torch.Tensor, result: torch.Tensor, scale: torch.Tensor) -> None:
        """GradScaler.scale(argument) gave `result`."""
        if isinstance(argument, torch.Tensor) and argument.numel() == 1:
            # Weakly: a loss that is dropped instead of trained on takes its graph with it.
            self._scaled = (weakref.ref(result), argument.detach().clone(), scale, weakref.ref(argument))

    def backward(self, tensors: Sequence[torch.Tensor]) -> None:
        """backward() is about to run on `tensors`. Counts a micro-step and keeps the value, unscaled."""
        scaled, self._scaled = self._scaled, None
        if self.micro:
            self._find_owners()
        self.micro += 1
        self.passes += 1
        # The edges of a graph that may stand in their place (GradientEdge) have no value.
        given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
        tensors = tuple(t for t in given if isinstance(t, torch.Tensor))
        if self.session.idle[TRAIN]:
            # Of what was scaled nobody says whether it overflowed only by that.
            if READER is not None and scaled is None:
                self._differentiate(tensors, [READER.number(t) for t in tensors])
            return
        # What GradScaler returned is gone by the time anybody asks; its argument leads to the same.
        self._differentiated = [scaled[3] if scaled is not None and t is scaled[0]() else weakref.ref(t)
                                for t in tensors]
        differentiated, copies = tensors, []
        for tensor in tensors:
            if tensor.numel() != 1 or _is_wrapped(tensor):
                continue
            if scaled is not None and tensor is scaled[0]():
                tensor = scaled[1]
            elif scaled is not None and scaled[2] is not None:
                tensor = tensor.detach() / scaled[2]      # divided by the number of micro-steps after scaling
            copies.append(self._keep(self.train, BACKWARD, tensor, self.micro - 1))
        self._differentiate(differentiated, copies)

    def _differentiate(self, tensors: Sequence[torch.Tensor], copies: list[Any]) -> None:
        """`copies` of those that are one number, as `_keep` made them: None where it made none."""
        self.session.black_box.differentiated(copies)
        if self.session.modules.active:
            self.session.modules.uncalled.differentiated(tensors)
        if all(_is_finite(copy, self.origins.waits) for copy in copies):
            self.origins.finite_loss(tensors)
        else:
            self.origins.bad_loss(tensors)
            self.session.context.bad_loss()

    def unscaled(self, tensors: Any) -> Any:
        """`tensors`, about to be differentiated; of what GradScaler.scale gave, its argument."""
        scaled, given = self._scaled, tensors if isinstance(tensors, (tuple, list)) else (tensors,)
        if scaled is None or len(given) != 1 or given[0] is not scaled[0]():
            return tensors
        argument = scaled[3]()
        return tensors if argument is None else argument

    def _keep(self, pending: Any, name: str, value: Any, micro: int = 0) -> Any:
        """The copy."""
        if len(pending) >= MAX_PENDING:
            self.session.lost("unsupported", 1, f"{name}: losses without an optimizer step")
            return None
        if type(value) is not torch.Tensor:
            whole = whole_of(value)
            if whole is None:
                self.session.unread(name, value, "this rank has a share of it")
                return None
            value = whole
        try:
            version = value._version
        except RuntimeError:        # made in inference mode: such a tensor counts no writes
            version = -1
        # backward() is usually called on what a loss function has just returned: one copy serves both.
        if self._last() is value and pending and pending[-1][2] == micro and version == self._version >= 0:
            pending.append((name, pending[-1][1], micro))
            return pending[-1][1]
        copy = None if READER is None or self.session.force_lane else READER.number(value)
        if copy is None:
            if self.session.unread(name, value):
                return None
            if value.numel() > MAX_ELEMENTS:
                self.session.lost("unsupported", 1, f"{name}: too large to copy")
                return None
            copy = value.detach().clone()
        self._last, self._version = weakref.ref(value), version   # weakly: it holds the graph
        pending.append((name, copy, micro))
        return copy

    def take_eval(self) -> Any:
        """Those of the evaluation that ends, for `put_eval` in its step."""
        pending, self.eval = self.eval, []
        return pending

    # Whose they are -----------------------------------------------------------------------------------------

    def _find_owners(self) -> None:
        """Of the last backward, before it is forgotten: which optimizers did it reach? Only where several could be
        meant."""
        tensors, self._differentiated = [t for ref in self._differentiated if (t := ref()) is not None], []
        if tensors and (owner_of := self.session.optimizers.owners_to_be()):
            self._owners[self.micro - 1] = owners(tensors, owner_of)

    def _forget_left(self) -> None:
        self.left, self._left_owners, self._left_steps = [], {}, 0

    def led_to(self, owner: int) -> int:
        """An optimizer is about to step. Losses that led to another one, of several that step after all backwards, are
        put aside for it. Returns the number of micro-steps that led to this one: accumulation, if more than one."""
        if self.left:                      # put aside, and now it may be their turn
            count = self._left_steps
            self.train = [*self.left, *((name, value, step + count) for name, value, step in self.train)]
            self._owners = {**self._left_owners, **{n + count: found for n, found in self._owners.items()}}
            self.micro += count
            self._forget_left()
        if self.micro > 1:
            self._find_owners()
            self._put_aside(owner)
        self._owners = {}
        return self.micro

    def _put_aside(self, owner: int) -> None:
        """A backward leads to the optimizer that, of those that it reaches, the fewest reach: through a critic an actor
        is trained."""
        stepped = self.session.clock.stepped
        reached = {n: found - stepped for n, found in sorted(self._owners.items()) if found}
        often = collections.Counter(o for found in reached.values() for o in found)
        others = [
            n for n, found in reached.items() if found and min(found, key=lambda o: (often[o], o != owner)) != owner
        ]
        if not others:
            return
        place = {n: k for k, n in enumerate(others)}
        mine = {n: k for k, n in enumerate(n for n in range(self.micro) if n not in place)}
        self.left = [(name, value, place[step]) for name, value, step in self.train if step in place]
        self._left_owners, self._left_steps = {k: self._owners[n] for n, k in place.items()}, len(others)
        self.train = [(name, value, mine[step]) for name, value, step in self.train if step in mine]
        self.micro = len(mine)

    # Recording ----------------------------------------------------------------------------------------------

    def put_left(self) -> None:
        """The step is over without the optimizer that they were to lead to."""
        if not self.left:
            return
        train, micro = self.train, self.micro           # of the step that comes: an optimizer is about to step again
        self.train, self.micro = self.left, 1
        self._forget_left()
        ids, pointers, keep = self.flush_train()
        self.train, self.micro = train, micro
        if ids:
            self.session.port.put_many(ids, pointers, 0, 0)
        self.session.context.flush()
        del keep                     # the values lived until here

    def flush_train(self, owner: Any = None, repeated: int = 0) -> tuple[list[int], list[int], list[Any]]:
        """Records the losses that led to this optimizer step, at its place in the step. Those at the step's own
        place are returned as (ids, pointers, values) for the batch of its parameters: a call of its own would
        cost more than they do. The pointers are good as long as the values are kept.

        One micro-step: the losses are the step's. Several: each at its own sub-key, and for the step itself their
        mean; of backward_loss the sum, which is what the gradients are those of.

        :param owner: the optimizer's number
        :param repeated: how often it was recorded in this step before (a closure's evaluations); those are the step's
            own
        """
        pending, micro = self.train, self.micro
        self.train, self.micro = [], 0
        if not pending:
            return [], [], []
        if self._as_tensor is None:
            self._as_tensor = all(name == BACKWARD for name, _, _ in pending)
        if micro <= 1 and not repeated:
            batch = self._as_usual(pending, owner)
            if batch is not None:
                return batch
        # Sub-keys go on counting within the step, as those of outputs do (Session.sub).
        start = self.passes - micro
        if repeated:
            start = max(start, self._last_sub)
        rows: list[Any] = []
        whole: dict[Any, Any] = {}
        pending = [(name, _tensor(value), step) for name, value, step in pending]
        for full, value, step in self.numbering.names(pending, by_micro_step=True, owner=owner):
            sub = start + (step if micro > 1 else 0) + 1
            if micro > 1 or repeated:
                rows.append((full, value, sub))
                self._last_sub = max(self._last_sub, sub)
            else:
                rows.append((full, value, 0))
            if micro > 1 and not repeated:
                whole.setdefault(full, []).append(value)
        for full, values in whole.items():
            if LABELS in full:
                rows.append((full, torch.cat([v.reshape(-1) for v in values]), 0))
            elif all(v.shape == values[0].shape for v in values):
                stacked = torch.stack(values)
                rows.append((full, stacked.sum(0) if full.startswith(BACKWARD) else stacked.mean(0), 0))
        batches = self._put(rows)
        ids, pointers = batches.pop(0, ([], []))
        for sub, batch in batches.items():
            self.session.port.put_many(*batch, sub, 0)
        return ids, pointers, rows

    def step_ended(self) -> None:
        """A TRAIN step: what is numbered within it begins anew."""
        self.numbering.new_step()
        # Not all of them where another optimizer ended the step between two micro-steps.
        self.passes, self._last_sub = self.micro, 0

    def _as_usual(self, pending: Any, owner: Any) -> tuple[list[int], list[int], list[Any]] | None:
        """flush_train of numbers on the host under the names of this optimizer's step before, which is nearly every
        step; None of any other."""
        kinds = []
        for name, value, step in pending:
            if type(value) is not _capture.NumberCopy:
                return None
            kinds.append((name, step, value.dtype))
        usual = self._usual.get(owner)
        if (usual is None or usual[0] != kinds or usual[1] != self.numbering.version
                or not self.numbering.again(usual[2])):
            named = self.numbering.names(pending, by_micro_step=True, owner=owner)
            series = [full.startswith(BACKWARD) and not self._as_tensor for full, _, _ in named]
            ids = [self.session.context.id(full) if alone else self._id(full, _tensor(value))
                   for alone, (full, value, _) in zip(series, named)]
            usual = self._usual[owner] = kinds, self.numbering.version, self.numbering.given(), series, ids
        ids, pointers = [], []
        for alone, ident, (_, value, _) in zip(usual[3], usual[4], pending):
            if alone:
                self.session.context.number(ident, value.value)
            elif ident != NOT_WANTED:
                ids.append(ident)
                pointers.append(value.address)
        return ids, pointers, pending

    def forget(self, owner: Any) -> None:
        """An optimizer is gone."""
        self.numbering.forget(owner)
        self._usual.pop(owner, None)

    def put_eval(self, pending: Any) -> None:
        if self._as_tensor is None and pending and all(name == BACKWARD for name, _, _ in pending):
            self._as_tensor = True        # evaluated before it trains
        rows = [(full, _tensor(value), 0) for full, value, _ in Numbering().names(pending)]
        for sub, (ids, pointers) in self._put(rows).items():
            self.session.port.put_many(ids, pointers, sub, 0)      # `rows` keeps the values alive during the call

    def discard(self) -> None:
        """The step is not due."""
        self.train.clear()
        self._owners = {}
        self._forget_left()
        self.micro = 0

    def _id(self, full: str, value: Any) -> int:
        key = (full, value.dtype, value.dim() == 0)
        ident = self._ids.get(key)
        if ident is None:
            collections = ["losses"] if full.startswith(BACKWARD) else []
            ident = self._ids[key] = self.session.define(
                full,
                full,
                "label" if LABELS in full else "loss",
                "",
                value.dtype,
                value.shape,
                value.dim() > 0,
                -1,
                [],
                collections,
            )
        return ident

    def _put(self, rows: list[Any]) -> Any:
        """Records what needs a call of its own; the rest is returned as {sub: (ids, pointers)}."""
        session = self.session
        batches: dict[int, tuple[list[int], list[int]]] = {}
        for full, value, sub in rows:
            if full.startswith(BACKWARD) and not self._as_tensor:
                session.context.series(full, value, sub)
                continue
            ident = self._id(full, value)
            if ident == NOT_WANTED:
                continue
            if session.on_device(value):
                session.put_device([ident], [value], sub, 0)
            elif value.dim() == 0:
                ids, ptrs = batches.setdefault(sub, ([], []))
                ids.append(ident)
                ptrs.append(value.data_ptr())
            else:
                value = value.contiguous()
                session.port.put_ptr(ident, value.data_ptr(), dtype_name(value.dtype), list(value.shape),
                                     list(value.stride()), sub, 0)
        return batches


def _is_finite(copy: Any, waits: bool) -> bool:
    """False only of a number in host memory, unless somebody asked for a device to be waited for."""
    if type(copy) is _capture.NumberCopy:
        value = copy.value
        return value - value == 0.0
    return copy is None or (copy.device.type != "cpu" and not waits) or copy.numel() != 1 or bool(torch.isfinite(copy))


def _loss_in(output: Any) -> torch.Tensor | None:
    """The loss among what a model returned: the only number, or the one called so; None where there is none."""
    if isinstance(output, dict):
        output = output.get("loss")
    found = [v for v in (output if isinstance(output, (tuple, list)) else (output,))
             if type(v) is torch.Tensor and v.dim() == 0 and v.is_floating_point()]
    return found[0] if len(found) == 1 else None


def _tensor(copy: Any) -> torch.Tensor:
    """The tensor that a NumberCopy is of; any other copy is one."""
    if type(copy) is not _capture.NumberCopy:
        return copy
    return torch.frombuffer(bytearray(copy.bytes), dtype=getattr(torch, copy.dtype)).reshape(())


def _differ(given: Any, target: torch.Tensor) -> bool:
    return type(given) is torch.Tensor and given.shape != target.shape


def patch(patches: Patches, session: Session) -> None:
    """Puts the loss functions and backward under watch."""
    guard = session.guard
    is_compiling = torch.compiler.is_compiling

    def watch_function(function: str, name: str) -> Callable[..., Any]:
        binary = function in BINARY
        measures = function in MEASURES
        classifies = binary or function in CLASSIFIES       # what these compare with is passed on as labels
        data, graph = session.context.data, session.context.loss_graph

        def labels_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            labels = args[1] if len(args) > 1 else kwargs.get("target")
            # Probabilities of classes are no classes.
            return labels if isinstance(labels, torch.Tensor) and (binary or not labels.is_floating_point()) else None

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                if is_compiling():
                    return original(*args, **kwargs)   # traced: the graph must not change
                result = original(*args, **kwargs)
                if session.listening and not session.losses.muted and not session.elsewhere():
                    begun = perf_counter()
                    try:
                        with hidden():
                            target: Any = args[1] if len(args) > 1 else kwargs.get("target")
                            if type(target) is torch.Tensor:
                                session.losses.origins.compared_with(target, result)
                                given = args[0] if args else kwargs.get("input")
                                if measures and _differ(given, target):
                                    session.context.broadcast(given, target)
                                session.black_box.compared_with(function, target)
                            labels = labels_of(args, kwargs) if classifies else None
                            session.losses.returned(name, result, labels=labels)
                    except BaseException as error:
                        guard.failed("loss function", error)
                    session.overhead.spent += perf_counter() - begun
                if (data.due or graph.due) and session.listening and in_backward() == -1:
                    session.context.compared(function, args, kwargs, result)
                return result
            return watched
        return make

    for function, name in FUNCTIONS.items():
        patches.replace([torch.nn.functional], function, watch_function(function, name))

    def watch_backward(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                if not isinstance(tensors, (torch.Tensor, list, tuple)):
                    tensors = tuple(tensors)    # an iterator: whoever looks into it first takes it from the other
                begun = perf_counter()
                try:
                    session.before_backward(tensors, bool(kwargs.get("create_graph") or args[2:3] == (True,)))
                except BaseException as error:
                    guard.failed("backward", error)
                session.overhead.spent += perf_counter() - begun
            if session.verify is None or is_compiling():
                return original(tensors, *args, **kwargs)
            result = original(tensors, *args, **kwargs)
            try:
                session.after_backward()
            except BaseException as error:
                guard.failed("verification", error)
            return result
        return backward

    patches.replace([torch.autograd], "backward", watch_backward)
