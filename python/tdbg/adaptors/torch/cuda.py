"""The device lane: statistics of tensors that are not in host memory. UNTESTED ON A REAL DEVICE.

The same code runs in the tests with host tensors forced through it; streams, events and pinned memory have
not been exercised on a GPU.

Reductions are enqueued on the current stream when a tensor is put, so they see it before the optimizer's own
kernels change it. At the step's end all numbers of the step lie in one buffer per device, which goes to pinned
memory in ONE asynchronous copy followed by an event; nothing waits. Steps are replayed into the run in order, each
when its event has completed, at most `MAX_LAG` steps late: a step whose event has not completed by then is recorded
without its device values, counted as "device_late". Histograms are not taken. At steps where raw values are due the
tensors themselves are copied, and the run takes its statistics from the copy.
"""

import collections
import ctypes

import numpy
import torch

from ..steps import EVAL, GLOBAL, PREDICT, TRAIN
from .params import dtype_name

MAX_LAG = 32               # steps that may be under way; a step is visible at most this late
CHUNK = 1 << 24            # elements widened to float64 at a time: 128 MiB of temporary memory at most
SMALL = 16                 # tensors up to this size travel as values (losses), not as statistics

FIELDS = ("count nan pos_inf neg_inf zero min max mean variance m3 m4 l1 l2 abs_min abs_max").split()


def summarize(tensor: torch.Tensor) -> torch.Tensor:
    """The 15 numbers of one tensor as a vector on its device (include/tdbg/summary.h says what they mean); of a complex one those
    of |x|."""
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
    # Nothing finite: every double says NaN, the counts stay.
    return torch.where((finite == 0) & (torch.arange(15, device=tensor.device) >= 5), float("nan"), row)


def _numbers_of(chunk: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    if not chunk.is_complex():
        return chunk.to(wide)
    # In the wide type: of two finite parts of complex64 |x| may be too large for a float32.
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


def _floor(threshold, dtype):
    """The largest number of a float type that is not above `threshold`: comparing with it is comparing with that."""
    with numpy.errstate(over="ignore"):
        near = dtype(threshold)
    return float(near if float(near) <= threshold else numpy.nextafter(near, dtype("-inf")))


def derive(tensor, statistic):
    """A derived statistic's entries as a vector on the tensor's device (include/tdbg/statistic.h says what they mean)."""
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

    def __init__(self, vectors):
        buffer = torch.cat(vectors)
        device = buffer.device
        self._event = None
        if device.type == "cuda":
            self.host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
            self.host.copy_(buffer, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(device))
        else:
            self.host = buffer.to("cpu")   # no asynchronous copy known for this device

    def ready(self):
        return self._event is None or self._event.query()

    def wait(self):
        if self._event is not None:
            self._event.synchronize()


class _Step:
    def __init__(self, mode):
        self.mode = mode
        self.calls = []                    # (method name, arguments) or ("device", ...), in order
        self.vectors = {}                  # device -> vectors to be packed
        self.lengths = {}                  # device -> numbers packed so far
        self.raws = []                     # events of raw copies
        self.copies = {}
        self.skipped = False

    def pack(self, vector):
        """Queues a vector of numbers; returns where it will lie."""
        device = vector.device
        at = self.lengths.get(device, 0)
        self.vectors.setdefault(device, []).append(vector)
        self.lengths[device] = at + vector.numel()
        return device, at, vector.numel()

    def ready(self):
        return all(c.ready() for c in self.copies.values()) and all(e.query() for e in self.raws)


class Lane:
    """Stands in for a Run while values are on their way: the same calls, replayed in order.

    :param forecast: the session's, which knows of requests for more detail, too
    """

    def __init__(self, run, forecast, sizes, derived=None):
        self._run, self._sizes = run, sizes
        self._derived = derived if derived is not None else {}
        self._forecast = forecast
        self._mode_steps = {mode: run.mode_step(mode) for mode in (TRAIN, EVAL, PREDICT, GLOBAL)}
        self._step = None
        self._queue = collections.deque()
        self._raw_due = False
        self._kept, self._last = set(), {}     # of what may be said again: ids under way or there, id -> its numbers

    # The calls of a Run -------------------------------------------------------------------------------------

    def begin_step(self, mode):
        """Foretells what the run will answer when the step is replayed; where unsure, True."""
        self._mode_steps[mode] = s = self._mode_steps[mode] + 1
        self._step = _Step(mode)
        self._raw_due = self._forecast.raw_due(mode, s)
        return self._forecast.due(mode, s)

    def put_many(self, ids, ptrs, sub=0, point=0, unchanged=None):
        kept, data = [], []
        for ident, ptr in zip(ids, ptrs):
            size = self._sizes.get(ident, 0)
            if ptr and size:
                kept.append(ident)
                data.append(ctypes.string_at(ptr, size))
        self._step.calls.append(("host", kept, data, sub, point))

    def put_ptr(self, ident, ptr, dtype, shape, strides, sub=0, point=0):
        item = torch.empty((), dtype=getattr(torch, dtype)).element_size()
        extent = 1 + sum((d - 1) * s for d, s in zip(shape, strides)) if all(shape) else 0
        self._step.calls.append(("ptr", ident, ctypes.string_at(ptr, extent * item), dtype, shape, strides, sub, point))

    def put_scalars(self, ids, values, sub=0):
        self._step.calls.append(("put_scalars", list(ids), list(values), sub))

    def put_context(self, topic, text):
        if self._step is None:
            self._run.put_context(topic, text)
        else:
            self._step.calls.append(("put_context", topic, text))

    def put_device(self, ids, tensors, sub=0, point=0, unchanged=None):
        """Tensors in a device's memory, as they are at this place of the current stream.

        `unchanged`: True where they are what they were at the last call that said True or False.
        """
        step = self._step
        for ident, tensor in zip(ids, tensors):
            if tensor.numel() <= SMALL:
                where = step.pack(_packed(tensor))
                step.calls.append(("small", ident, where, tensor.dtype, tuple(tensor.shape), sub, point))
            elif self._raw_due:
                host = self._to_host(tensor)
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

    def put_device_scalar(self, ident, tensor, sub=0):
        self._step.calls.append(("scalar", ident, self._step.pack(_packed(tensor.reshape(-1)[:1])), sub))

    def _to_host(self, tensor):
        tensor = tensor.detach()
        if tensor.device.type != "cuda":
            return tensor.to("cpu", copy=True).contiguous()
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(tensor.device))
        self._step.raws.append(event)
        return host

    def end_step(self, skipped=False):
        step, self._step = self._step, None
        step.skipped = skipped
        step.copies = {device: _Copy(vectors) for device, vectors in step.vectors.items()}
        step.vectors = {}
        self._queue.append(step)
        self.drain()
        return -1

    # Replay -------------------------------------------------------------------------------------------------

    def drain(self, wait=False):
        """Commits the steps whose values have arrived; those too late go without. `wait`: training is over."""
        while self._queue:
            step = self._queue[0]
            late = False
            if wait:
                for copy in step.copies.values():
                    copy.wait()
                for event in step.raws:
                    event.synchronize()
            elif not step.ready():
                if len(self._queue) <= MAX_LAG:
                    return
                late = True
            self._queue.popleft()
            self._replay(step, late)

    def _replay(self, step, late):
        run = self._run
        run.begin_step(step.mode)
        lost = 0
        for call in step.calls:
            kind = call[0]
            if kind == "host":
                _, ids, data, sub, point = call
                buffers = [numpy.frombuffer(d, numpy.uint8) for d in data]
                run.put_many(ids, [b.ctypes.data for b in buffers], sub, point)
            elif kind == "ptr":
                _, ident, data, dtype, shape, strides, sub, point = call
                buffer = numpy.frombuffer(data, numpy.uint8)
                run.put_ptr(ident, buffer.ctypes.data if len(data) else 0, dtype, shape, strides, sub, point)
            elif kind in ("put_scalars", "put_context"):
                getattr(run, kind)(*call[1:])
            elif kind == "repeat" and call[1] in self._last:
                run.put_summaries([call[1]], self._last[call[1]], *call[2:])
            elif late or kind == "repeat":
                lost += 1
                self._kept.discard(call[1])
                self._last.pop(call[1], None)
            elif kind == "small":
                _, ident, where, dtype, shape, sub, point = call
                value = _unpacked(self._numbers(step, where), dtype, shape)
                run.put_ptr(ident, value.data_ptr(), dtype_name(dtype), list(shape), list(value.stride()), sub, point)
            elif kind == "raw":
                _, ident, host, sub, point = call
                run.put_ptr(ident, host.data_ptr(), dtype_name(host.dtype), list(host.shape), list(host.stride()),
                            sub, point)
            elif kind == "summary":
                _, ident, where, sub, point = call
                row = self._numbers(step, where).double().reshape(1, 15).numpy()
                if ident in self._kept:
                    self._last[ident] = row.copy()
                run.put_summaries([ident], row, sub, point)
            elif kind == "statistic":
                _, ident, where, name, elements, samples, sub, point = call
                run.put_statistic(ident, name, elements, samples, self._numbers(step, where).double().tolist(), sub,
                                  point)
            elif kind == "scalar":
                _, ident, where, sub = call
                run.put_scalars([ident], [float(self._numbers(step, where)[0])], sub)
        if lost:
            run.count_loss("device_late", lost, f"a step's values were not on the host {MAX_LAG} steps later")
        run.end_step(step.skipped)

    @staticmethod
    def _numbers(step, where):
        device, at, length = where
        return step.copies[device].host[at:at + length]


class Final:
    """The run's port when training is over: waiting for the device costs nobody anything any more."""

    def __init__(self, run):
        self.put_many, self.put_ptr, self.put_scalars = run.put_many, run.put_ptr, run.put_scalars

    def put_device_scalar(self, ident, tensor, sub=0):
        self.put_scalars([ident], [tensor.item()], sub)

    def put_device(self, ids, tensors, sub=0, point=0, unchanged=None):
        for ident, tensor in zip(ids, tensors):
            host = tensor.detach().to("cpu").contiguous()
            self.put_ptr(ident, host.data_ptr(), dtype_name(host.dtype), list(host.shape), list(host.stride()), sub,
                         point)
