"""Parameters and gradients of one optimizer, handed over in one batched call per step.

Where they are is gathered by `_capture.ParameterBatch` where torch has DLPack's exchange table (2.10 and later), else
by C-level maps over lists (`.grad`, contiguity, dtype and data_ptr of 1,200 parameters: 0.35 ms, against 0.15). Nothing
of it is cached from step to step but the list of parameters: zero_grad(set_to_none) reallocates every gradient, and
`p.data = ...`, `.to()` move a parameter's memory under the same object. What is not plain host memory in C order goes
one by one (`put_odd`), or to the device lane.

A parameter without a gradient is changed by no optimizer. Whether anybody else has changed it is what `untrained.py`
knows, which says its last row again where nobody has: frozen weights in an optimizer cost no pass over their memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from tdbg import _capture

from ..guard import pass_on
from ..session import NOT_WANTED
from . import deepspeed
from .origin.backward import any_bad
from .origin.values import SPARSE
from .shards import part_of

if TYPE_CHECKING:
    from .names import NamedParameter
    from .session import Session

_Tensor = torch.Tensor
_data_ptr = _Tensor.data_ptr
_is_contiguous = _Tensor.is_contiguous
_grad = attrgetter("grad")
_dtype = attrgetter("dtype")
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

#: Sparse tensors are put as dense ones, if those are no larger than SMALL; where their values are to be kept or they
#: lie on a device, than MAX_DENSE. Of the others the numbers are those of the dense one, and its zeros are not made.
SMALL, MAX_DENSE = 256 << 10, 64 << 20


def _tensor_reader() -> _capture.TensorReader | None:
    try:
        return _capture.TensorReader(_Tensor, torch.nn.Parameter)
    except Exception:       # a torch without the table, or with one of another version
        return None


READER = _tensor_reader()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype)[6:]  # torch.float32 -> float32


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a DTensor, without communication; any other tensor as it is."""
    return getattr(tensor, "_local_tensor", tensor)


def is_plain(tensor: torch.Tensor) -> bool:
    """Host memory in C order, of a type whose bytes mean what they say."""
    return (type(tensor) in (torch.nn.Parameter, _Tensor) and tensor.layout is torch.strided
            and tensor.device.type == "cpu" and not tensor.is_complex() and not tensor.is_quantized
            and tensor.is_contiguous() and not tensor.is_neg())


def unreadable(tensor: torch.Tensor) -> str | None:
    """Why nobody can say where a tensor's values lie; None of any that is somewhere."""
    if _is_wrapped(tensor):
        return "inside a transform of torch.func"
    if tensor.is_nested:
        return "a nested tensor"
    return None


class Unread:
    """Called with (name, tensor): True if the tensor's values cannot be read. Counted once for a name, because it holds
    for every step, and as `unsupported`, because it is no failure of ours.

    :param lost: Run.count_dropped, or what takes the same arguments
    """

    def __init__(self, lost: Callable[[str, int, str], None]) -> None:
        self._lost = lost
        self._names: set[str] = set()

    def __call__(self, name: str, tensor: torch.Tensor, why: str | None = None) -> bool:
        """`why`: the caller knows it already."""
        if why is None and not _is_wrapped(tensor) and tensor.is_meta:
            return True         # it has no values: a model's FLOPs are counted so, or its memory is planned
        why = why or unreadable(tensor)
        if why is not None and name not in self._names:
            self._names.add(name)
            self._lost("unsupported", 1, f"{name}: {why}")
        return why is not None


def put_odd(session: Session, ident: int, tensor: torch.Tensor, sub: int, point: int, name: str) -> None:
    """One tensor that the batched call cannot take. Counts it where it cannot be read at all."""
    tensor = local(tensor)
    if tensor.layout in SPARSE and not tensor.is_meta:
        size = tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu" and size > SMALL and not session.force_lane:
            put_sparse(session, ident, tensor.detach(), sub, point)
            return
        if size <= MAX_DENSE:
            tensor = tensor.detach().to_dense()     # of an index that is there twice the sum, which the update takes
    if tensor.layout is not torch.strided or tensor.is_quantized:
        session.lost("unsupported", 1, f"{name}: layout {tensor.layout}")
        return
    if tensor.is_meta:
        session.unread(name, tensor)
        return
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    if session.on_device(tensor):
        session.put_device([ident], [tensor], sub, point)
        return
    if tensor.numel():
        session.port.put_ptr(ident, tensor.data_ptr(), dtype_name(tensor.dtype), list(tensor.shape),
                             list(tensor.stride()), sub, point)


def put_sparse(session: Session, ident: int, tensor: torch.Tensor, sub: int, point: int) -> None:
    """Statistics of a host tensor from the values that it has, and its bytes where they are to be kept and it is not
    too large."""
    values = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()
    values = values.resolve_conj().resolve_neg().contiguous()
    session.port.put_sparse(ident, values.data_ptr(), dtype_name(values.dtype), values.numel(), tensor.numel(), sub,
                            point)
    if not session.raw_due(ident):
        return
    if tensor.numel() * tensor.element_size() > MAX_DENSE:
        session.lost("unsupported", 1, f"values of a sparse tensor of more than {MAX_DENSE >> 20} MiB")
        return
    dense = tensor.to_dense().contiguous()
    session.run.put_raw(ident, dense.data_ptr(), dtype_name(dense.dtype), list(dense.shape), list(dense.stride()), sub,
                        point)


# of an optimizer's parameters, for its count: all of them have the same, but for those that got no gradient
LOOKED_AT = 16


def own_count(optimizer: Any) -> int | None:
    """How often it has been stepped, as its own state says; None: it keeps no count (SGD), or has no state yet."""
    state = getattr(optimizer, "state", None)
    if not isinstance(state, dict):
        return None
    highest, looks = None, 0
    for of_parameter in list(state.values()):
        step: Any = of_parameter.get("step") if isinstance(of_parameter, dict) else None
        if type(step) is torch.Tensor and step.numel() == 1 and not step.is_meta:
            if step.device.type != "cpu":
                if step.is_cuda and torch.cuda.is_current_stream_capturing():
                    return None
                looks = LOOKED_AT       # a look waits for the device
            step = step.item()
        if not isinstance(step, (int, float)) or not 0 <= step < 2**53:
            continue
        highest, looks = max(highest or 0, int(step)), looks + 1
        if looks >= LOOKED_AT:
            break
    return highest


class OptimizerTensors:
    """What is recorded of one optimizer. Lives as long as it (see session.py), holds its parameters strongly."""

    def __init__(self, session: Session, serial: int, label: str) -> None:
        self.session, self.serial, self.label = session, serial, label
        self.params: list[torch.Tensor] = []
        self.whole: Any = None    # all groups, where it steps with one at a time (a deepspeed.Turn's)
        self.pieces: dict[int, list[Any]] = {}    # id() of a flat partition -> the parameters in it (deepspeed.py)
        self.shape_key: Any = None
        self.ref: Callable[[], torch.optim.Optimizer | None] = lambda: None    # weak reference to the optimizer
        self.steps = 0
        self._times = None, 0             # TRAIN step, how often it was recorded in it
        self.options: Sequence[Any] = ()                 # of the groups, as they were last put down
        self.lr_ids: list[int] = []
        self.step_id = NOT_WANTED     # of the context's series
        self.ignored = self.skipped = False
        self._takes_closure: bool | None = None
        self.nested = 0                   # calls of step() inside its own or another optimizer's
        self.total_bytes = 0
        self.named: list[NamedParameter] = []
        self._resting_at: Any = None    # positions in `fast` and in `odd` of those without a gradient
        self._resting: list[Any] = []     # and these: their places
        self._absent: list[str] = []      # and their names
        self.state_ids: dict[str, int] = {}
        # id()s of parameters with sparse gradients: each call of the batched kind would raise inside of torch, in 1 ms
        self._sparse: set[int] = set()
        self._knows_sparse = 0            # how many of them there were when they were last sorted out

    def count(self, optimizer: Any) -> None:
        """It steps: once more than it did, in earlier attempts too where its state says so."""
        if self.steps == 0:
            self.steps = own_count(optimizer) or 0
        self.steps += 1

    def times(self, step: Any) -> int:
        """How often it was recorded in this step before: closures evaluate several times, loops may update several
        times."""
        known, count = self._times
        count = count + 1 if known == step else 0
        self._times = step, count
        return count

    def takes_closure(self, optimizer: torch.optim.Optimizer) -> bool:
        """Is what `step` is given first a closure?"""
        if self._takes_closure is None:
            try:
                first = [*inspect.signature(type(optimizer).step).parameters.values()][1:2]
            except (TypeError, ValueError):
                first = []
            self._takes_closure = any(p.name == "closure" or p.kind is p.VAR_POSITIONAL for p in first)
        return self._takes_closure

    # Membership ---------------------------------------------------------------------------------------------

    def groups(self, optimizer: torch.optim.Optimizer) -> Any:
        return self.whole or optimizer.param_groups

    def members(self) -> list[torch.Tensor]:
        """Every parameter that it updates, under whatever object."""
        return [*self.params, *(piece.parameter for pieces in self.pieces.values() for piece in pieces)]

    def _key(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        groups = self.groups(optimizer)
        return tuple((len(g["params"]), id(g["params"][0]), id(g["params"][-1])) if g["params"] else ()
                     for g in groups)

    def refresh(self, optimizer: torch.optim.Optimizer) -> None:
        """Resolves names again if the groups changed (first, last or number of members)."""
        key = self._key(optimizer)
        if key != self.shape_key:
            self.shape_key = key
            self._build(optimizer)

    def _build(self, optimizer: torch.optim.Optimizer) -> None:
        session = self.session
        self.params = list({id(p): p for g in self.groups(optimizer) for p in g["params"]}.values())
        self.named = session.names.resolve(self.params)
        self.pieces = deepspeed.pieces_of(self.params, session.names)
        self.total_bytes = sum(local(p).numel() * local(p).element_size() for p in self.params)
        session.entries.follow(session.names)
        self._define()
        session.modules.install(session.names)      # attached late, its modules are known from here on
        members = session_members(session)
        outside = [p for root in session.names.roots for p, _ in root.parameters() if id(p) not in members]
        session.context.membership(self, optimizer, outside)

    def _define(self) -> None:
        define = self.session.define
        self.fast, self.fast_named = [], []
        self.fast_ids, self.grad_ids = [], []
        # (parameter, weight id, gradient id, NamedParameter)
        self.odd: list[tuple[torch.Tensor, int, int, NamedParameter]] = []
        self._resting_at, self._knows_sparse = None, len(self._sparse)
        self.flat: list[tuple[torch.Tensor, list[tuple[Any, int]]]] = []    # (partition, [(piece, gradient id)])
        self.own: list[tuple[torch.Tensor, int, str]] = []    # (parameter of a piece, weight id, name)
        on_device = False
        for parameter, named in zip(self.params, self.named):
            if id(parameter) in self.pieces:
                on_device |= self._define_pieces(parameter)
                continue
            tensor = local(parameter)
            if self.session.unread(named.name, tensor):
                continue
            part = part_of(parameter)
            weight = define(named.name, named.short_name, named.kind, named.module_kind, tensor.dtype, tensor.shape,
                            False, named.unit_axis, named.aliases, **part)
            gradient = define("gradient/" + named.name, "gradient/" + named.short_name, "gradient", named.module_kind,
                              tensor.dtype, tensor.shape, False, named.unit_axis,
                              ["gradient/" + a for a in named.aliases], **part)
            if weight == NOT_WANTED and gradient == NOT_WANTED:
                continue
            if is_plain(parameter) and not self.session.on_device(parameter) and id(parameter) not in self._sparse:
                self.fast.append(parameter)
                self.fast_named.append(named)
                self.fast_ids.append(weight)
                self.grad_ids.append(gradient)
            else:
                self.odd.append((parameter, weight, gradient, named))
                on_device |= self.session.on_device(tensor)
        self.dtypes = list(map(_dtype, self.fast))
        self.ptrs = list(map(_data_ptr, self.fast))
        self.want_weights = any(i != NOT_WANTED for i in self.fast_ids)
        self.want_grads = any(i != NOT_WANTED for i in self.grad_ids)
        self.both_ids = self.fast_ids + self.grad_ids
        self.batch: Any = None
        if READER is not None and self.fast and hasattr(self.session.port, "put_batch"):
            try:
                self.batch = _capture.ParameterBatch(READER, self.fast, self.fast_ids, self.grad_ids)
            except Exception as error:
                pass_on(error)               # the maps take what it does not
        if on_device:
            self.session.needs_device_lane = True

    def _define_pieces(self, partition: torch.Tensor) -> bool:
        """Weights are the model's own; gradients lie in the partition's. True if those are on a device."""
        define, pieces = self.session.define, []
        for piece in self.pieces[id(partition)]:
            parameter, named = piece.parameter, piece.named
            if self.session.unread(named.name, parameter):
                continue
            weight = define(
                named.name,
                named.short_name,
                named.kind,
                named.module_kind,
                parameter.dtype,
                parameter.shape,
                False,
                named.unit_axis,
                named.aliases,
            )
            shape, part = piece.layout()
            gradient = define("gradient/" + named.name, "gradient/" + named.short_name, "gradient", named.module_kind,
                              partition.dtype, shape, False, named.unit_axis if piece.is_whole else -1,
                              ["gradient/" + a for a in named.aliases], **part)
            pieces.append((piece, gradient))
            if weight != NOT_WANTED:
                self.own.append((parameter, weight, named.name))
        self.flat.append((partition, pieces))
        return any(map(self.session.on_device, (partition, *(parameter for parameter, _, _ in self.own))))

    # One step -----------------------------------------------------------------------------------------------

    def capture_own(self, sub: int = 0, taken: Collection[int] = frozenset()) -> None:
        """Weights of what lies in partitions, as the model has them."""
        for parameter, weight, name in self.own:
            if id(parameter) not in taken:
                put_odd(self.session, weight, parameter, sub, 0, name)

    def capture_pieces(self, optimizer: torch.optim.Optimizer, sub: int = 0) -> list[str]:
        """Gradients of the partitions whose turn it is. Returns the names of parameters without one."""
        now = {id(p) for g in optimizer.param_groups for p in g["params"]}
        absent = []
        for partition, pieces in self.flat:
            if id(partition) not in now:
                continue
            if partition.grad is None:
                absent += [piece.named.name for piece, _ in pieces]
                continue
            for piece, ident in pieces:
                if ident != NOT_WANTED:
                    put_odd(self.session, ident, piece.of(partition.grad), sub, 0, "gradient/" + piece.named.name)
        return absent

    def capture(self, sub: int = 0, unscale: torch.Tensor | None = None,
                losses: tuple[list[int], list[int], list[Any]] = ([], [], [])) -> list[str]:
        """Weights and gradients as they are now. Returns the names of parameters without a gradient.

        `unscale`: divide gradients by this first (fused optimizers under GradScaler get scaled ones).
        `losses`: (ids, pointers, values) that go with the same batch.
        """
        port = self.session.port
        if self._knows_sparse < len(self._sparse):
            self._define()
        if self.batch is not None and unscale is None and not self.odd and hasattr(port, "put_batch"):
            absent = self.batch.gather(self.fast)
            if absent >= 0:
                self._judge(port.put_batch(self.batch, losses[0], losses[1], sub, 0))
                return self._put_resting(self.batch.absent(), [], sub) if absent else []
        ptrs = list(map(_data_ptr, self.fast))
        if ptrs != self.ptrs:
            # Somebody moved a parameter's memory: it may have another device, dtype, shape or strides now.
            self._define()
            ptrs = self.ptrs
        grads = list(map(_grad, self.fast))
        resting = [n for n, g in enumerate(grads) if g is None]
        if resting:
            ptrs = ptrs.copy()
            for n in resting:
                ptrs[n] = 0
        grad_ptrs = [0] * len(ptrs)
        if self.want_grads:
            if unscale is not None:
                grads = [None if g is None else g / unscale for g in grads]
            grad_ptrs = self._pointers(grads, sub, 0)
        loss_ids, loss_ptrs, _ = losses
        if self.want_weights:
            self._judge(port.put_many(loss_ids + self.both_ids, loss_ptrs + ptrs + grad_ptrs, sub, 0))
        elif self.want_grads:
            self._judge(port.put_many(loss_ids + self.grad_ids, loss_ptrs + grad_ptrs, sub, 0))
        elif loss_ids:
            port.put_many(loss_ids, loss_ptrs, sub, 0)
        resting_odd = self._capture_odd(sub, unscale) if self.odd else []
        if self.odd and self.session.losses.origins.waits:
            self._judge(any_bad(local(grad) for parameter, *_ in self.odd if (grad := parameter.grad) is not None))
        return self._put_resting(resting, resting_odd, sub) if resting or resting_odd else []

    def _judge(self, nonfinite: bool | None) -> None:
        """What the recorder saw in weights and gradients. None: it has not looked yet (a device)."""
        if nonfinite:
            self.session.losses.origins.bad_batch(self.serial, self.steps, self.params, self.skipped)
        elif nonfinite is not None:
            self.session.losses.origins.fine(self.serial, self.steps, self.params, self.ref())

    def _put_resting(self, fast: list[int], odd: list[int], sub: int) -> list[str]:
        """Weights of the parameters at these positions, which have no gradient. Returns their names."""
        if self._resting_at != (fast, odd):
            self._resting_at = fast, odd
            given = [(self.fast[n], self.fast_named[n], self.fast_ids[n]) for n in fast]
            given += [(parameter, named, weight) for parameter, weight, _, named in (self.odd[n] for n in odd)]
            self._absent = [named.name for _, named, _ in given]
            self._resting = self.session.untrained.slots_of(
                [(p, named) for p, named, ident in given if ident != NOT_WANTED]
            )
        self.session.untrained.put(self._resting, sub)
        return self._absent

    def capture_gradients(self, sub: int, point: int) -> None:
        """The gradients alone, at a point of the step (before clipping)."""
        grads = list(map(_grad, self.fast))
        self.session.port.put_many(self.grad_ids, self._pointers(grads, sub, point), sub, point)
        for parameter, _, gradient, named in self.odd:
            if parameter.grad is not None and gradient != NOT_WANTED:
                put_odd(self.session, gradient, parameter.grad, sub, point, "gradient/" + named.name)

    def _pointers(self, grads: list[Any], sub: int, point: int) -> list[int]:
        """0 where there is none or where it was put one by one."""
        try:
            if all(map(_is_contiguous, grads)) and list(map(_dtype, grads)) == self.dtypes:
                return list(map(_data_ptr, grads))
        except (TypeError, RuntimeError):
            pass  # a None, or a tensor without storage (sparse)
        mask = [g is not None for g in grads]
        try:
            present = list(compress(grads, mask))
            if all(map(_is_contiguous, present)) and list(map(_dtype, present)) == list(compress(self.dtypes, mask)):
                pointers = iter(list(map(_data_ptr, present)))
                return [next(pointers) if m else 0 for m in mask]
        except RuntimeError:
            pass
        self._sparse.update(id(p) for p, g in zip(self.fast, grads) if g is not None and g.layout is not torch.strided)
        return [self._pointer(*row, sub, point) for row in zip(grads, self.fast_named, self.dtypes, self.grad_ids)]

    def _pointer(self, gradient: torch.Tensor | None, named: NamedParameter, dtype: torch.dtype, ident: int, sub: int,
                 point: int) -> int:
        if gradient is None or ident == NOT_WANTED:
            return 0
        if gradient.dtype != dtype:
            self.session.lost("unsupported", 1, f"gradient/{named.name}: {gradient.dtype} for a {dtype} parameter")
        elif is_plain(gradient):
            return int(gradient.data_ptr())
        else:
            put_odd(self.session, ident, gradient, sub, point, "gradient/" + named.name)
        return 0

    def _capture_odd(self, sub: int, unscale: torch.Tensor | None) -> list[int]:
        """Returns the positions of those without a gradient, which are still to be put."""
        resting = []
        for n, (parameter, weight, gradient, named) in enumerate(self.odd):
            grad = parameter.grad
            if grad is None:
                resting.append(n)
                continue
            if weight != NOT_WANTED:
                put_odd(self.session, weight, parameter, sub, 0, named.name)
            if gradient != NOT_WANTED:
                self._put_gradient(gradient, grad, unscale, sub, "gradient/" + named.name)
        return resting

    def _put_gradient(self, ident: int, grad: torch.Tensor, unscale: torch.Tensor | None, sub: int, name: str) -> None:
        if unscale is None:
            put_odd(self.session, ident, grad, sub, 0, name)
            return
        try:
            unscaled = local(grad) / unscale
        except torch.cuda.OutOfMemoryError:
            self.session.lost("device_late", 1, f"{name}: no memory on the GPU to take the loss scale out of it")
            return
        put_odd(self.session, ident, unscaled, sub, 0, name)
        self.session.made_copy(grad.numel() * grad.element_size())

    def capture_weights(self, taken: Collection[int] = frozenset()) -> None:
        """The weights alone: the record at the end of a run. `taken`: id()s of parameters that another optimizer has,
        too, and that were put already."""
        ptrs = list(map(_data_ptr, self.fast))
        if ptrs != self.ptrs:
            self._define()
            ptrs = self.ptrs
        if self.want_weights:
            rest = [n for n, p in enumerate(self.fast) if id(p) not in taken]
            self.session.port.put_many([self.fast_ids[n] for n in rest], [ptrs[n] for n in rest], 0, 0)
        for parameter, weight, _, named in self.odd:
            if weight != NOT_WANTED and id(parameter) not in taken:
                put_odd(self.session, weight, parameter, 0, 0, named.name)
        self.capture_own(taken=taken)

    def capture_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Optimizer state (kind `optimizer`), where the plan wants it: optimizer/<parameter>/<key>."""
        session, state = self.session, optimizer.state
        for parameter, named in zip(self.params, self.named):
            for key, value in (state.get(parameter) or {}).items():
                if not isinstance(value, _Tensor):
                    continue
                for owner, tensor, part in self._parts_of_state(parameter, named, value):
                    name = f"optimizer/{owner.name}/{key}"
                    ident = self.state_ids.get(name)
                    if ident is None:
                        ident = self.state_ids[name] = session.define(
                            name,
                            f"optimizer/{owner.short_name}/{key}",
                            "optimizer",
                            "",
                            tensor.dtype,
                            tensor.shape,
                            **part,
                        )
                    if ident != NOT_WANTED:
                        put_odd(session, ident, tensor, 0, 0, name)

    def _parts_of_state(self, parameter: torch.Tensor, named: NamedParameter,
                        value: Any) -> list[tuple[NamedParameter, torch.Tensor, dict[str, Any]]]:
        """[(whose it is, what is here of it, Run.define's arguments of a part)]"""
        pieces = self.pieces.get(id(parameter))
        if pieces is None:
            return [(named, local(value), part_of(value))]
        if value.numel() != parameter.numel():      # a number, of all of them
            return [(piece.named, value, {}) for piece in pieces]
        return [(piece.named, piece.of(value), piece.layout()[1]) for piece in pieces]


def session_members(session: Session) -> set[int]:
    """id()s of the parameters in any optimizer that there is, also in one that is still to make its first step."""
    members: set[int] = set()
    for entry in list(session.optimizers.entries.values()):
        optimizer = None if entry.params else entry.ref()
        params = entry.members() if optimizer is None else [p for g in optimizer.param_groups for p in g["params"]]
        members.update(map(id, params))
    return members
