"""Tensors on NVIDIA's GPUs: summaries, exact histograms and derived statistics of every tensor, by kernels of our own.

A batch is launched on the stream that is current where it is put, so its tensors are read as they are there, before the
optimizer's own kernels change them; results are written into mapped host memory by the device itself and polled for with a
load (`_capture.DeviceLane`, src/cuda). No event, no copy, no query, nothing that waits. Tensors of up to 256 bytes travel as they
are, and the run takes its statistics from them.

While somebody captures a CUDA graph a batch is launched into the graph, and every replay of it is a step of the run; where
that cannot be, the capture is left alone. Raw values that are due are copied by torch, into pinned memory.

Not yet run on a GPU since it was written: held by tests on the CPU, against a driver that has no device.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

from tdbg import _capture

from ..guard import say
from ..steps import ModeSteps
from .late_steps import LateSteps, Step
from .params import NOT_WANTED, dtype_name

_data_ptr = torch.Tensor.data_ptr
_NUMBERS: dict[torch.dtype, int] = {}       # torch's element types -> tdbg's


class Devices:
    """Where torch's tensors are; tests have one for host tensors that pose as a GPU's."""

    kind = "cuda"

    def __init__(self) -> None:
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def index(self, tensor: torch.Tensor) -> int:
        return tensor.device.index or 0

    def stream(self, device: int) -> int:
        """The handle of the current one."""
        if self._raw_stream is not None:
            return self._raw_stream(device)
        return torch.cuda.current_stream(device).cuda_stream

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def to_host(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """(where its values will be, what tells that they are there)"""
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(tensor.device))
        return host, event


class _Batch:
    """Tensors of one place on one stream, until they are launched; holds them."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.ids: list[int] = []
        self.statistics: list[tuple[int, str, int, int, int, int]] = []
        self.scalars: list[tuple[int, int, int]] = []       # (position, series, sub)
        self.skips: list[int] = []                          # positions; not 0: the update was skipped


class CudaStep(Step):
    def __init__(self, mode: int, begun: bool = False) -> None:
        super().__init__(mode, begun)
        self.captured = 0           # tensors put while their stream was captured
        self.eager = 0


class CudaLane(LateSteps):
    """:param derived: id -> derived statistics that are wanted of it (Run.statistics)
    """

    def __init__(self, run: Any, forecast: Any, mode_steps: ModeSteps, sizes: dict[int, int], derived: dict[int, Any] | None = None,
                 devices: Devices | None = None) -> None:
        super().__init__(run, forecast, mode_steps, sizes)
        self._derived = derived if derived is not None else {}
        self._devices = devices or Devices()
        self._lane = _capture.DeviceLane()
        self._waiting: dict[tuple[int, int, int, int], _Batch] = {}
        self._gathering = 0
        self._streams: dict[int, int] = {}                   # while gathering: nobody changes them in between
        self._raw_step: tuple[int, int] | None = None        # (mode, step) in which raw values of something are due
        self._refused: dict[str, int] = {}
        self._said = False
        self._graph: Any = None                              # that is being captured
        self._graphs: weakref.WeakKeyDictionary[Any, list[CudaStep]] = weakref.WeakKeyDictionary()

    @property
    def device_bytes(self) -> int:
        return self._lane.device_bytes

    # Putting ------------------------------------------------------------------------------------------------

    def new_step(self, mode: int, begun: bool = False) -> CudaStep:
        return CudaStep(mode, begun)

    def begun(self, mode: int, step: int) -> None:
        self._raw_step = (mode, step) if self._forecast.raw_due(mode, step) else None

    def gather(self) -> None:
        """What is put until `launch` goes in as few launches as it can: nothing changes the tensors in between."""
        self._gathering += 1

    def launch(self) -> None:
        self._gathering = max(0, self._gathering - 1)
        if not self._gathering:
            self._streams.clear()
            self._flush()

    def put_device(self, ids, tensors, sub=0, point=0, unchanged=None):
        """Tensors on GPUs, as they are at this place of the current stream. `unchanged` is of no use here: to look again costs
        nothing worth saving."""
        for ident, tensor in zip(ids, tensors):
            tensor = tensor.detach()
            if not tensor.numel():
                continue
            if self._raw_step is not None and self._run.raw_due(ident, *self._raw_step) and tensor.nbytes > 256:
                self._put_raw(ident, tensor, sub, point)
                continue
            batch, at = self._add(ident, tensor, sub, point)
            for statistic in self._derived.get(ident, ()):
                outer, units, inner = _seen_along(tensor.shape, statistic["axis"])
                batch.statistics.append((at, statistic["id"], outer, units, inner, tensor.shape[0] if tensor.dim() else 1))
        if not self._gathering:
            self._flush()

    def put_device_scalar(self, ident, tensor, sub=0):
        batch, at = self._add(NOT_WANTED, tensor.detach().reshape(-1)[:1], sub, 0)
        batch.scalars.append((at, ident, sub))
        if not self._gathering:
            self._flush()

    def skipped_if(self, found: torch.Tensor) -> None:
        """The step's update was skipped if this is not 0, which the device knows."""
        batch, at = self._add(NOT_WANTED, found.detach().reshape(-1)[:1], 0, 0)
        batch.skips.append(at)
        if not self._gathering:
            self._flush()

    def _add(self, ident: int, tensor: torch.Tensor, sub: int, point: int) -> tuple[_Batch, int]:
        device = self._devices.index(tensor)
        stream = self._streams.get(device)
        if stream is None:
            stream = self._devices.stream(device)
            if self._gathering:
                self._streams[device] = stream
        if not tensor.is_contiguous():
            # Any dense order will do for statistics alone; a unit's elements, and the bytes of a small one, lie in C order.
            if tensor.nbytes <= 256 or ident in self._derived or not _is_dense(tensor):
                tensor = tensor.contiguous()
        batch = self._waiting.setdefault((device, stream, sub, point), _Batch())
        batch.tensors.append(tensor)
        batch.ids.append(ident)
        return batch, len(batch.ids) - 1

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        step = self._step
        for (device, stream, sub, point), batch in waiting.items():
            refused, ticket, graph = self._lane.put(
                device, stream, batch.ids, list(map(_data_ptr, batch.tensors)), [_number(t.dtype) for t in batch.tensors],
                [tuple(t.shape) for t in batch.tensors], batch.statistics, sub, point)
            count = sum(1 for ident in batch.ids if ident != NOT_WANTED) + len(batch.scalars)
            if refused == "kind":
                self._one_by_one(step, device, stream, batch, sub, point)
            elif refused == "capturing":
                step.captured += count
            elif refused:
                step.calls.append(("refused", refused, count))
            elif graph:
                step.captured += count
                step.calls.append(("graph", graph, count, batch.scalars, batch.skips))
            else:
                step.eager += count
                step.calls.append(("rows", ticket, count, batch.scalars, batch.skips))
        # The tensors are free from here on: whoever gets their memory next comes later on the same stream.

    def _one_by_one(self, step: CudaStep, device: int, stream: int, batch: _Batch, sub: int, point: int) -> None:
        """A type or size that the kernels do not take keeps nothing from the others."""
        for ident, tensor in zip(batch.ids, batch.tensors):
            refused, ticket, _ = self._lane.put(device, stream, [ident], [tensor.data_ptr()], [_number(tensor.dtype)],
                                                [tuple(tensor.shape)], [], sub, point)
            if refused:
                step.calls.append(("refused", refused, 1))
            else:
                step.eager += 1
                step.calls.append(("rows", ticket, 1, [], []))

    def _put_raw(self, ident: int, tensor: torch.Tensor, sub: int, point: int) -> None:
        if self._devices.is_capturing():
            self._step.captured += 1
            return
        host, event = self._devices.to_host(tensor)
        self._step.eager += 1
        self._step.calls.append(("raw", ident, host, event, sub, point))

    # Captures -----------------------------------------------------------------------------------------------

    def capture_begins(self, graph: Any, device: int, stream: int) -> None:
        """The script is about to capture the current stream: memory is made now, as none can be made later."""
        self._graph = graph
        self._lane.prepare_capture(device, stream)

    def capture_ended(self) -> None:
        self._graph = None

    def ended(self, step: CudaStep) -> bool:
        if not step.captured or step.eager:
            return True
        # All of it was captured: nothing has happened yet. Each replay is such a step.
        if self._graph is not None and any(call[0] == "graph" for call in step.calls):
            self._graphs.setdefault(self._graph, []).append(step)
        elif not self._said:
            self._said = True
            say("a step was captured in a CUDA graph before any of its tensors was seen: what its replays do is not recorded; "
                "a step or two run before the capture, as torch's documentation has it, is all that is needed")
        return False

    def was_captured(self) -> bool:
        """Is what was put into the open step in a graph, and nothing else of it on a device?"""
        return self._step is not None and bool(self._step.captured) and not self._step.eager

    def holds(self, graph: Any) -> bool:
        return graph in self._graphs

    def replayed(self, graph: Any) -> list[int]:
        """A graph was launched once more: the steps that were captured in it, which are put once more. Returns their modes."""
        modes = []
        for template in self._graphs.get(graph, ()):
            self._mode_steps.add(template.mode)
            due = self.begin_step(template.mode)
            step = self._step
            for call in template.calls:
                if call[0] == "graph":
                    ticket = self._lane.replayed(call[1])
                    if not due:
                        self._lane.drop(ticket)
                        continue
                    call = ("rows", ticket, *call[2:])
                    step.eager += 1
                if due:
                    step.calls.append(call)
            self.end_step(template.skipped)
            modes.append(template.mode)
        return modes

    # Arriving -----------------------------------------------------------------------------------------------

    def ready(self, step: CudaStep) -> bool:
        lane, under_way = self._lane, _capture.DeviceLane.UNDER_WAY
        for call in step.calls:
            if call[0] == "rows" and lane.look(call[1]) == under_way:
                return False
            # An event that is asked for while somebody captures would break the capture.
            if call[0] == "raw" and (self._graph is not None or not call[3].query()):
                return False
        return True

    def wait(self, step: CudaStep) -> None:
        if not self._lane.trouble:      # else what has not come by now will not
            super().wait(step)

    def arrived(self, step: CudaStep, call: tuple[Any, ...], late: bool) -> int:
        run = self._run
        if call[0] == "refused":
            self._refused[call[1]] = self._refused.get(call[1], 0) + call[2]
            return call[2]
        if call[0] == "raw":
            _, ident, host, event, sub, point = call
            if self._graph is not None or not event.query():
                return 1
            run.put_ptr(ident, host.data_ptr(), dtype_name(host.dtype), list(host.shape), list(host.stride()), sub, point)
            return 0
        if call[0] != "rows":
            return 0
        _, ticket, count, scalars, skips = call
        rows = self._lane.take(ticket)
        if rows is None:
            self._lane.drop(ticket)
            return count
        run.put_rows(rows)
        for at, ident, sub in scalars:
            run.put_scalars([ident], [rows.value(at)], sub)
        for at in skips:
            step.skipped |= bool(rows.value(at))
        return 0

    def why_lost(self, late: bool) -> str:
        if self._lane.trouble:
            return self._lane.trouble
        refused, self._refused = self._refused, {}
        if "memory" in refused:
            return "there is no memory left on the GPU for what we need there"
        if "kind" in refused:
            return "tensors of a type, or of more than 4,294,967,295 elements, that no kernel is for"
        if "full" in refused:
            return "the GPU is further behind than results have room"
        return super().why_lost(late)


def _number(dtype: torch.dtype) -> int:
    number = _NUMBERS.get(dtype)
    if number is None:
        number = _NUMBERS[dtype] = _capture.dtype_number(dtype_name(dtype))
    return number


def _is_dense(tensor: torch.Tensor) -> bool:
    """Are its elements next to each other, in whatever order of axes?"""
    expected = 1
    for stride, extent in sorted((s, d) for s, d in zip(tensor.stride(), tensor.shape) if d != 1):
        if stride != expected:
            return False
        expected *= extent
    return True


def _seen_along(shape: torch.Size, axis: int) -> tuple[int, int, int]:
    """A tensor in C order as [outer, units, inner]; without an axis (-1) all of it is one unit."""
    if axis < 0:
        return 1, 1, shape.numel()
    return shape[:axis].numel(), shape[axis], shape[axis + 1:].numel()


def patch(patches: Any, session: Any) -> None:
    """Watches captures and replays of CUDA graphs."""
    guard = session.guard

    def lane() -> CudaLane | None:
        return session.port if isinstance(session.port, CudaLane) else None

    def watch_begin(original):
        def capture_begin(graph, *args, **kwargs):
            try:
                if session.listening and (port := lane()) is not None and not session.elsewhere():
                    device = torch.cuda.current_device()
                    port.capture_begins(graph, device, torch.cuda.current_stream(device).cuda_stream)
            except Exception as error:
                guard.failed("CUDAGraph.capture_begin", error)
            return original(graph, *args, **kwargs)
        return capture_begin

    def watch_end(original):
        def capture_end(graph, *args, **kwargs):
            try:
                return original(graph, *args, **kwargs)
            finally:
                try:
                    if (port := lane()) is not None:
                        session.capture_ended()
                        port.capture_ended()
                except Exception as error:
                    guard.failed("CUDAGraph.capture_end", error)
        return capture_end

    def watch_replay(original):
        def replay(graph, *args, **kwargs):
            result = original(graph, *args, **kwargs)
            try:
                if session.listening and lane() is not None:
                    session.graph_replayed(graph)
            except Exception as error:
                guard.failed("CUDAGraph.replay", error)
            return result
        return replay

    classes = [torch.cuda.CUDAGraph]
    patches.replace(classes, "capture_begin", watch_begin)
    patches.replace(classes, "capture_end", watch_end)
    patches.replace(classes, "replay", watch_replay)

    def watch_graphed(original):
        def make_graphed_callables(callables, *args, **kwargs):
            # It refuses modules that have hooks, and calls what it is given, which is no step of the training.
            given = callables if isinstance(callables, (tuple, list)) else (callables,)
            with session.out_of_sight([m for m in given if isinstance(m, torch.nn.Module)]):
                return original(callables, *args, **kwargs)
        return make_graphed_callables

    patches.replace([torch.cuda, torch.cuda.graphs], "make_graphed_callables", watch_graphed)


class _Unhooked:
    """Modules without our hooks, while it is entered; they come back where they were, in their order."""

    def __init__(self, modules: list[torch.nn.Module], is_ours: Any) -> None:
        self._modules, self._is_ours, self._taken = modules, is_ours, []

    _HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

    def __enter__(self) -> None:
        for module in itertools.chain.from_iterable(m.modules() for m in self._modules):
            for name in self._HOOKS:
                hooks = getattr(module, name)
                if any(map(self._is_ours, hooks.values())):
                    self._taken.append((hooks, dict(hooks)))
                    for key in [k for k, hook in hooks.items() if self._is_ours(hook)]:
                        del hooks[key]

    def __exit__(self, *error: object) -> None:
        for hooks, before in reversed(self._taken):
            now = dict(hooks)
            hooks.clear()
            hooks.update({key: hook for key, hook in before.items() if key in now or self._is_ours(hook)})
            hooks.update({key: hook for key, hook in now.items() if key not in before})


def unhooked(modules: list[torch.nn.Module], is_ours: Any) -> _Unhooked:
    return _Unhooked(modules, is_ours)
