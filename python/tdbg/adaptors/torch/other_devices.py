"""Tensors on devices that have no kernels of ours (MPS, XPU): statistics by torch's own operations.

The same code runs in the tests with host tensors forced through it; on such a device it has not been run.

Reductions are enqueued when a tensor is put, so they see it before the optimizer's own kernels change it: 77 operations
a small tensor, about 1 ms of the host's time. At the step's end all numbers of the step lie in one buffer per device,
which goes to the host in one copy. Histograms are not taken. At steps where raw values are due the tensors themselves
are copied, and the run takes its statistics from the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch

from .late_steps import LateSteps, Step
from .params import dtype_name

if TYPE_CHECKING:
    from ..steps import ModeSteps

CHUNK = 1 << 24            # elements widened to float64 at a time: 128 MiB of temporary memory at most
SMALL = 16                 # tensors up to this size travel as values (losses), not as statistics


def summarize(tensor: torch.Tensor) -> torch.Tensor:
    """The 15 numbers of one tensor as a vector on its device (include/tdbg/summary.h says what they mean); of a complex
    one those of |x|."""
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    flat = tensor.detach().reshape(-1)
    chunks = flat.split(CHUNK) if flat.numel() else ()
    zero = torch.zeros((), dtype=wide, device=tensor.device)
    inf = torch.full((), float("inf"), dtype=wide, device=tensor.device)
    nan_count = pos_inf = neg_inf = zeros = finite = total = l1 = squares = zero
    low, high, abs_low, abs_high = inf, -inf, inf, zero

    for chunk in chunks:
        x = _numbers_of(chunk, wide)
        ok = torch.isfinite(x)
        nan_count = nan_count + torch.isnan(x).sum()
        pos_inf = pos_inf + (x == float("inf")).sum()
        neg_inf = neg_inf + (x == -float("inf")).sum()
        zeros = zeros + (x == 0).sum()
        finite = finite + ok.sum()
        y = torch.where(ok, x, zero)
        a = y.abs()
        total, l1, squares = total + y.sum(), l1 + a.sum(), squares + (y * y).sum()
        low = torch.minimum(low, torch.where(ok, x, inf).min())
        high = torch.maximum(high, torch.where(ok, x, -inf).max())
        abs_low = torch.minimum(abs_low, torch.where(ok, a, inf).min())
        abs_high = torch.maximum(abs_high, a.max())
    mean = total / finite
    m2 = m3 = m4 = zero
    for chunk in chunks:
        x = _numbers_of(chunk, wide)
        d = torch.where(torch.isfinite(x), x - mean, zero)
        s = d * d
        m2, m3, m4 = m2 + s.sum(), m3 + (s * d).sum(), m4 + (s * s).sum()
    row = torch.stack([torch.full_like(zero, flat.numel()), nan_count.to(wide), pos_inf.to(wide), neg_inf.to(wide),
                       zeros.to(wide), low, high, mean, m2 / finite, m3 / finite, m4 / finite, l1, squares.sqrt(),
                       abs_low, abs_high])
    # Without a finite element all numbers but the counts are NaN.
    return torch.where((finite == 0) & (torch.arange(15, device=tensor.device) >= 5), float("nan"), row)


def _numbers_of(chunk: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    if not chunk.is_complex():
        return chunk.to(wide)
    # Widened first: |x| of a complex64 with finite parts may be too large for a float32.
    return chunk.to(torch.complex128).abs() if wide is torch.float64 else chunk.abs()


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """All values as a vector of numbers, which `_unpacked` makes a host tensor of again."""
    tensor = tensor.detach()
    flat = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    # A copy in any case: the step's numbers go to the host when the optimizer has changed the tensor already.
    return flat.reshape(-1).to(torch.float32 if tensor.device.type == "mps" else torch.float64, copy=True)


def _unpacked(numbers: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if dtype.is_complex:
        numbers = torch.view_as_complex(numbers.clone().reshape(-1, 2))     # pairs that lie anywhere
    return numbers.to(dtype).reshape(shape)


def _floor(threshold: float, dtype: torch.dtype) -> float:
    """The largest number of a float type that is not above `threshold`: comparing with it is comparing with that."""
    with numpy.errstate(over="ignore"):
        near = dtype(threshold)
    return float(near if float(near) <= threshold else numpy.nextafter(near, dtype("-inf")))


def derive(tensor: torch.Tensor, statistic: Any) -> torch.Tensor:
    """A derived statistic's entries as a vector on the tensor's device (include/tdbg/statistic.h says what they
    mean)."""
    x, kind, p = tensor.detach(), statistic["kind"], statistic["parameters"]
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    if kind == "value_counts":
        x = x.to(wide)
        return torch.stack([(x == value).sum() for value in p]).to(wide)
    others = [d for d in range(x.dim()) if d != statistic["axis"]]
    if kind == "sums":
        return x.sum(dim=others, dtype=wide) if others else x.to(wide)
    if x.dtype not in (torch.float32, torch.float64):
        x = x.to(torch.float32 if x.dtype in (torch.float16, torch.bfloat16, torch.bool) else wide)
    dtype = numpy.float32 if x.dtype == torch.float32 else numpy.float64
    counted = x > _floor(p[0], dtype)
    if kind == "count_within":
        counted &= x <= _floor(float(numpy.nextafter(p[1], -numpy.inf)), dtype)
    return (counted.sum(dim=others) if others else counted).to(wide)


class _Copy:
    """One buffer on its way to the host."""

    def __init__(self, vectors: Any) -> None:
        self.host = torch.cat(vectors).to("cpu")   # no asynchronous copy known for these devices

    def ready(self) -> bool:
        return True


class _Step(Step):
    def __init__(self, mode: int, begun: bool = False) -> None:
        super().__init__(mode, begun)
        # device -> vectors to be packed, each with where it ends: one entry, put by one call, so that an exception of
        # the training's that lands here moves no later one
        self.vectors: dict[Any, list[tuple[Any, int]]] = {}
        self.copies: dict[Any, Any] = {}

    def pack(self, vector: Any) -> tuple[Any, int, int]:
        """Queues a vector of numbers; returns where it will lie."""
        device = vector.device
        packed = self.vectors.setdefault(device, [])
        at = packed[-1][1] if packed else 0
        packed.append((vector, at + vector.numel()))
        return device, at, vector.numel()


class Lane(LateSteps):
    """:param derived: id -> derived statistics that are wanted of it (Run.statistics)"""

    def __init__(self, run: Any, forecast: Any, mode_steps: ModeSteps, sizes: dict[int, int],
                 derived: dict[int, Any] | None = None) -> None:
        super().__init__(run, forecast, mode_steps, sizes)
        self._derived = derived if derived is not None else {}
        self._raw_due = False
        # Of what may be said again.
        self._kept: set[int] = set()        # ids under way or there
        self._last: dict[int, Any] = {}     # id -> its numbers

    def new_step(self, mode: int, begun: bool = False) -> _Step:
        return _Step(mode, begun)

    def begun(self, mode: int, step: Any) -> None:
        self._raw_due = self._forecast.raw_due(mode, step)

    def put_device(self, ids: list[int], tensors: Sequence[torch.Tensor], sub: int = 0, point: int = 0,
                   unchanged: bool | None = None) -> None:
        """Tensors in a device's memory, as they are at this place of the current stream.

        `unchanged`: True where they are what they were at the last call that said True or False.
        """
        step = self._step
        for ident, tensor in zip(ids, tensors):
            if tensor.numel() <= SMALL:
                where = step.pack(_packed(tensor))
                step.calls.append(("small", ident, where, tensor.dtype, tuple(tensor.shape), sub, point))
            elif self._raw_due:
                host = tensor.detach().to("cpu", copy=True).contiguous()
                self._kept.discard(ident)
                step.calls.append(("raw", ident, host, sub, point))
            elif unchanged and ident in self._kept and ident not in self._derived:
                step.calls.append(("repeat", ident, sub, point))
            else:
                if unchanged is not None:
                    self._kept.add(ident)
                step.calls.append(("summary", ident, step.pack(summarize(tensor)), sub, point))
                for statistic in self._derived.get(ident, ()):
                    axis = statistic["axis"]
                    step.calls.append(("statistic", ident, step.pack(derive(tensor, statistic)), statistic["id"],
                                       tensor.numel() // (1 if axis < 0 else tensor.shape[axis]), tensor.shape[0],
                                       sub, point))

    def put_device_scalar(self, ident: int, tensor: torch.Tensor, sub: int = 0, every_step: bool = True) -> None:
        self._step.calls.append(("scalar", ident, self._step.pack(_packed(tensor.reshape(-1)[:1])), sub))

    def ended(self, step: Any) -> bool:
        step.copies = {device: _Copy([vector for vector, _ in packed])
                       for device, packed in step.vectors.items() if packed}
        step.vectors = {}
        return True

    def ready(self, step: Any) -> bool:
        return all(copy.ready() for copy in step.copies.values())

    def arrived(self, step: Any, call: Any, late: Any) -> int:
        run, kind = self._run, call[0]
        if kind == "repeat" and call[1] in self._last:
            run.put_summaries([call[1]], self._last[call[1]], *call[2:])
        elif late or kind == "repeat":
            self._kept.discard(call[1])
            self._last.pop(call[1], None)
            return 1
        elif kind == "small":
            _, ident, where, dtype, shape, sub, point = call
            value = _unpacked(self._numbers(step, where), dtype, shape)
            run.put_ptr(ident, value.data_ptr(), dtype_name(dtype), list(shape), list(value.stride()), sub, point)
        elif kind == "raw":
            _, ident, host, sub, point = call
            run.put_ptr(
                ident, host.data_ptr(), dtype_name(host.dtype), list(host.shape), list(host.stride()), sub, point
            )
        elif kind == "summary":
            _, ident, where, sub, point = call
            row = self._numbers(step, where).double().reshape(1, 15).numpy()
            if ident in self._kept:
                self._last[ident] = row.copy()
            run.put_summaries([ident], row, sub, point)
        elif kind == "statistic":
            _, ident, where, name, elements, samples, sub, point = call
            run.put_statistic(ident, name, elements, samples, self._numbers(step, where).double().tolist(), sub, point)
        elif kind == "scalar":
            _, ident, where, sub = call
            run.put_scalars([ident], [float(self._numbers(step, where)[0])], sub)
        return 0

    @staticmethod
    def _numbers(step: Any, where: Any) -> Any:
        device, at, length = where
        return step.copies[device].host[at:at + length]


class Final:
    """The run's port when training is over: waiting for the device costs nobody anything any more."""

    def __init__(self, run: Any) -> None:
        self.put_many, self.put_ptr, self.put_scalars = run.put_many, run.put_ptr, run.put_scalars
        self.put_sparse = run.put_sparse

    def put_device_scalar(self, ident: int, tensor: torch.Tensor, sub: int = 0, every_step: bool = True) -> None:
        self.put_scalars([ident], [tensor.item()], sub)

    def put_device(self, ids: list[int], tensors: Sequence[torch.Tensor], sub: int = 0, point: int = 0,
                   unchanged: bool | None = None) -> None:
        for ident, tensor in zip(ids, tensors):
            host = tensor.detach().to("cpu").contiguous()
            self.put_ptr(ident, host.data_ptr(), dtype_name(host.dtype), list(host.shape), list(host.stride()), sub,
                         point)

    def gather(self) -> None:
        """At once, here."""

    def launch(self) -> None:
        """At once, here."""
