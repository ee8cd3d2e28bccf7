"""Tensors on NVIDIA's GPUs: summaries, exact histograms and derived statistics of every tensor, by kernels of our own.

A batch is launched on the stream that is current where it is put, so its tensors are read as they are there, before the
optimizer's own kernels change them; results are written into mapped host memory by the device itself and polled for
with a load (`_capture.DeviceLane`, src/cuda). No event, no copy, no query, nothing that waits. Tensors of up to 256
bytes travel as they are, and the run takes its statistics from them.

While somebody captures a CUDA graph a batch is launched into the graph, and every replay of it is a step of the run;
where that cannot be, the capture is left alone. Raw values that are due go another way (src/cuda/raw_copies.h): a
snapshot on the device, and from there by a stream of its own into pinned memory that is bounded; what has no room is
counted, and has its statistics all the same.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tdbg import _capture

from ..guard import say
from ..session import NOT_WANTED
from ..steps import ModeSteps
from .late_steps import LateSteps, Step, within_patience
from .params import dtype_name

#: Tensors up to this size travel as they are (kMaxValueBytes of src/cuda/abi.h).
SMALL_BYTES = 256
#: Of copies that are made for us in a step: with more of them than this, those that there are are launched.
MOST_COPIES = 256 << 20
_WHY_REFUSED = {
    "memory": "there is no memory left on the GPU for what we need there",
    "kind": "tensors of a type, or of more than 4,294,967,295 elements, that no kernel is for",
    "full": "the GPU is further behind than results have room",
    "capturing": "tensors in a CUDA graph that was captured before tdbg had seen a step, or without memory to spare",
    "part again": "a CUDA graph with a part of a step was launched twice in it: only the first launch is recorded",
    "raw full": "raw values: those of earlier steps still fill the pinned memory that there is for them",
    "raw memory": "raw values: there is no pinned memory for them, or a tensor is larger than all that there may be",
    "nowhere": "tensors of a class that has no memory of its own",
    "raw capturing": "raw values are not taken of a step that is replayed from a CUDA graph; its statistics are",
}
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
            return int(self._raw_stream(device))
        return int(torch.cuda.current_stream(device).cuda_stream)


#: Device, stream, sub-key, point, and whether each step has what is put there.
_Place = tuple[int, int, int, int, bool]


class _Batch:
    """Tensors of one place on one stream, until they are launched; holds them."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.ids: list[int] = []
        self.statistics: list[tuple[int, str, int, int, int, int]] = []
        self.scalars: list[tuple[int, int, int]] = []    # (position, series, sub)
        self.skips: list[int] = []    # positions; not 0: the update was skipped
        self.raw: list[int] = []    # positions of those whose values are due

    def one_by_one(self) -> Iterator[_Batch]:
        for at, (tensor, ident) in enumerate(zip(self.tensors, self.ids)):
            one = _Batch()
            one.tensors, one.ids = [tensor], [ident]
            one.statistics = [(0, *statistic[1:]) for statistic in self.statistics if statistic[0] == at]
            one.scalars = [(0, *scalar[1:]) for scalar in self.scalars if scalar[0] == at]
            one.skips = [0] * self.skips.count(at)
            one.raw = [0] * self.raw.count(at)
            yield one


class CudaStep(Step):
    def __init__(self, mode: int, begun: bool = False) -> None:
        super().__init__(mode, begun)
        self.captured = 0           # tensors put while their stream was captured
        self.eager = 0
        self.parts: list[Any] = []      # graphs with a part of it that were launched


class CudaLane(LateSteps):
    """:param derived: id -> derived statistics that are wanted of it (Run.statistics)

    Threads: autograd has one for each device, and gradients of outputs are put by these, while the training's own waits
    for them. `_lock` is held while anything is put.
    """

    def __init__(self, run: Any, forecast: Any, mode_steps: ModeSteps, sizes: dict[int, int],
                 derived: dict[int, Any] | None = None,
                 devices: Devices | None = None) -> None:
        super().__init__(run, forecast, mode_steps, sizes)
        self._derived = derived if derived is not None else {}
        self._devices = devices or Devices()
        self._lane = _capture.DeviceLane()
        self._waiting: dict[_Place, _Batch] = {}
        self._gathering = 0
        self._streams: dict[int, int] = {}    # while gathering: nobody changes them in between
        self._copies = 0    # bytes of copies that wait to be launched
        self._used: set[int] = set()    # devices
        self._raw_step: tuple[int, int] | None = None    # (mode, step) in which raw values of something are due
        self._refused: dict[str, int] = {}
        self._lock = threading.RLock()
        self._said = False
        self._graph: Any = None    # that is being captured
        self._graphs: weakref.WeakKeyDictionary[Any, list[CudaStep]] = weakref.WeakKeyDictionary()
        self._parts: weakref.WeakKeyDictionary[Any, list[tuple[Any, ...]]] = weakref.WeakKeyDictionary()
        self._unlaunched: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()    # graph -> its device

    @property
    def device_bytes(self) -> int:
        return self._lane.device_bytes

    @property
    def raw_pinned_bytes(self) -> int:
        return self._lane.raw_pinned_bytes

    # Putting ------------------------------------------------------------------------------------------------

    def new_step(self, mode: int, begun: bool = False) -> CudaStep:
        return CudaStep(mode, begun)

    def begun(self, mode: int, step: int) -> None:
        self._raw_step = (mode, step) if self._forecast.raw_due(mode, step) else None

    def gather(self) -> None:
        """What is put until `launch` goes in as few launches as it can: nothing changes the tensors in between."""
        self._gathering += 1

    def launch(self) -> None:
        with self._lock:
            self._gathering = max(0, self._gathering - 1)
            if not self._gathering:
                self._streams.clear()
                self._flush()

    def put_device(self, ids: list[int], tensors: Sequence[torch.Tensor], sub: int = 0, point: int = 0,
                   unchanged: bool | None = None) -> None:
        """Tensors on GPUs, as they are at this place of the current stream. `unchanged` is of no use here: to look
        again costs nothing worth saving."""
        with self._lock:
            for ident, tensor in zip(ids, tensors):
                if not tensor.numel():
                    continue
                try:
                    batch, at = self._add(ident, tensor, sub, point)
                except torch.cuda.OutOfMemoryError:     # of a copy
                    self._step.calls.append(("refused", "memory", 1))
                    continue
                if (self._raw_step is not None and tensor.nbytes > SMALL_BYTES
                        and self._run.raw_due(ident, *self._raw_step)):
                    batch.raw.append(at)
                for statistic in self._derived.get(ident, ()):
                    outer, units, inner = _seen_along(tensor.shape, statistic["axis"])
                    batch.statistics.append(
                        (at, statistic["id"], outer, units, inner, tensor.shape[0] if tensor.dim() else 1)
                    )
            if not self._gathering or self._copies > MOST_COPIES:
                self._flush()

    def made_copy(self, size: int) -> None:
        """The training has planned its memory without a second set of its gradients: of copies few are held until the
        step's launch. What is launched is free for the next one."""
        with self._lock:
            self._copies += size
            if self._copies > MOST_COPIES:
                self._flush()

    def put_device_scalar(self, ident: int, tensor: torch.Tensor, sub: int = 0, every_step: bool = True) -> None:
        """`every_step`: whether each step has it. What only some have goes by itself: with the parameters it would make
        a batch of another kind, for which all of their memory would be taken once more."""
        with self._lock:
            batch, at = self._add(NOT_WANTED, tensor.detach().reshape(-1)[:1], sub, 0, every_step)
            batch.scalars.append((at, ident, sub))
            if not self._gathering:
                self._flush()

    def skipped_if(self, found: torch.Tensor) -> None:
        """The step's update was skipped if this is not 0, which the device knows."""
        with self._lock:
            batch, at = self._add(NOT_WANTED, found.detach().reshape(-1)[:1], 0, 0)
            batch.skips.append(at)
            if not self._gathering:
                self._flush()

    def _add(self, ident: int, tensor: torch.Tensor, sub: int, point: int,
             every_step: bool = True) -> tuple[_Batch, int]:
        device = self._devices.index(tensor)
        stream = self._streams.get(device)
        if stream is None:
            stream = self._devices.stream(device)
            if self._gathering:
                self._streams[device] = stream
        if not tensor.is_contiguous():
            # Any dense order will do for statistics alone; a unit's elements, and the bytes of a small one, lie in C
            # order.
            if tensor.nbytes <= SMALL_BYTES or ident in self._derived or not _is_dense(tensor):
                tensor = tensor.detach().contiguous()
                self._copies += tensor.nbytes
        place = device, stream, sub, point, every_step
        batch = self._waiting.get(place)
        if batch is None:
            batch = self._waiting[place] = _Batch()
        batch.tensors.append(tensor)
        batch.ids.append(ident)
        return batch, len(batch.ids) - 1

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._copies = 0
        for place, batch in waiting.items():
            self._launch(self._step, place, batch)
        # The tensors are free from here on: whoever gets their memory next comes later on the same stream.

    def _launch(self, step: CudaStep, place: _Place, batch: _Batch) -> None:
        device, stream, sub, point, _ = place
        self._used.add(device)
        refused, ticket, graph = self._lane.put(
            device,
            stream,
            batch.ids,
            list(map(_data_ptr, batch.tensors)),
            [_number(t.dtype) for t in batch.tensors],
            [tuple(t.shape) for t in batch.tensors],
            batch.statistics,
            sub,
            point,
        )
        if refused == "kind" and len(batch.ids) > 1:
            # A type or size that the kernels do not take keeps nothing from the others.
            for alone in batch.one_by_one():
                self._launch(step, place, alone)
            return
        count = sum(1 for ident in batch.ids if ident != NOT_WANTED) + len(batch.scalars)
        if refused == "capturing":
            step.captured += count
            step.calls.append(("refused", refused, count))
        elif refused:
            step.calls.append(("refused", refused, count))
        elif graph:
            step.captured += count
            large = [i for i, t in zip(batch.ids, batch.tensors) if i != NOT_WANTED and t.nbytes > SMALL_BYTES]
            step.calls.append(("graph", graph, count, batch.scalars, batch.skips, large))
        else:
            step.eager += count
            step.calls.append(("rows", ticket, count, batch.scalars, batch.skips))
        if batch.raw and not graph and refused != "capturing":
            self._put_raw(step, device, stream, batch, sub, point)

    def _put_raw(self, step: CudaStep, device: int, stream: int, batch: _Batch, sub: int, point: int) -> None:
        tensors = [batch.tensors[at] for at in batch.raw]
        answers = self._lane.put_raw(device, stream, list(map(_data_ptr, tensors)), [t.nbytes for t in tensors])
        for at, tensor, (refused, ticket) in zip(batch.raw, tensors, answers):
            if refused:
                step.calls.append(("refused", "raw " + refused, 1))
            else:
                step.calls.append(("raw", batch.ids[at], ticket, dtype_name(tensor.dtype), list(tensor.shape),
                                   list(tensor.stride()), sub, point))

    # Captures -----------------------------------------------------------------------------------------------

    def capture_begins(self, graph: Any, device: int) -> None:
        """The script is about to capture a stream of this device."""
        # An object may be captured into again, after `reset()` or a capture that failed: what it held is gone.
        self._graphs.pop(graph, None)
        self._parts.pop(graph, None)
        self._graph = graph
        self._unlaunched[graph] = device
        self._lane.prepare_capture(device)

    def capture_ended(self) -> None:
        self._graph = None

    def replay_begins(self, graph: Any) -> None:
        """Its first launch comes after what our part of it needs."""
        device = self._unlaunched.pop(graph, None)
        if device is not None and (self.holds(graph) or self.holds_part(graph)):
            with self._lock:
                self._lane.before_replay(device, self._devices.stream(device))

    def ended(self, step: CudaStep) -> bool:
        if not step.captured or step.eager:
            return True
        # All of it was captured: nothing has happened yet. Each replay is such a step.
        if self._graph is not None and any(call[0] == "graph" for call in step.calls):
            self._graphs.setdefault(self._graph, []).append(step)
        else:
            self._say_unseen()
        return False

    def _say_unseen(self) -> None:
        if not self._said:
            self._said = True
            say(
                "a step was captured in a CUDA graph, and there was no memory for what tdbg does in it: what its "
                "replays do is not recorded"
                if self._graph is not None else
                "a step was captured in a CUDA graph before any of its tensors was seen: what its replays do is not "
                "recorded; a step or two run before the capture, as torch's documentation has it, is all that is needed"
            )

    def keep_part(self) -> None:
        """What was captured of the open step is a part of a step, which each replay of the graph puts into whatever
        step is open then: forward and backward, say, before an update that is not captured."""
        step = self._step
        if step is None or not step.captured:
            return
        captured = [call for call in step.calls if call[0] == "graph" or call[:2] == ("refused", "capturing")]
        step.calls = [call for call in step.calls if call not in captured]
        step.captured = 0
        if self._graph is not None and any(call[0] == "graph" for call in captured):
            self._parts.setdefault(self._graph, []).extend(captured)
        else:
            self._say_unseen()

    def holds_part(self, graph: Any) -> bool:
        return graph in self._parts

    def part_replayed(self, graph: Any, due: bool) -> None:
        """A graph with a part of the open step in it was launched."""
        step = self._step
        again = graph in step.parts
        step.parts.append(graph)
        for call in self._parts[graph]:
            if call[0] == "graph":
                self._replay_call(step, call, due and not again)
            elif due and not again:
                step.calls.append(call)
            if due and again:
                step.calls.append(("refused", "part again", call[2]))

    def replayed_elsewhere(self, graph: Any) -> None:
        """A thread that is not recorded launched a graph with something of ours in it. The device counts each launch:
        one that nobody asks for would leave all later steps with the values of the one before."""
        with self._lock:
            whole = [call for template in self._graphs.get(graph, ()) for call in template.calls]
            for call in (*whole, *self._parts.get(graph, ())):
                if call[0] == "graph":
                    self._lane.drop(self._lane.replayed(call[1]))

    def _replay_call(self, step: CudaStep, call: tuple[Any, ...], due: bool) -> None:
        _, graph, count, scalars, skips, large = call
        ticket = self._lane.replayed(graph)
        if not due:
            self._lane.drop(ticket)
            return
        step.calls.append(("rows", ticket, count, scalars, skips))
        step.eager += 1
        # A captured copy would be made with every replay, due or not.
        raw = [i for i in large if self._raw_step is not None and self._run.raw_due(i, *self._raw_step)]
        if raw:
            step.calls.append(("refused", "raw capturing", len(raw)))

    def was_captured(self) -> bool:
        """Is what was put into the open step in a graph, and nothing else of it on a device?"""
        return self._step is not None and bool(self._step.captured) and not self._step.eager

    def holds(self, graph: Any) -> bool:
        return graph in self._graphs

    def replayed(self, graph: Any) -> list[int]:
        """A graph was launched once more: the steps that were captured in it, which are put once more. Returns their
        modes."""
        modes = []
        for template in self._graphs.get(graph, ()):
            self._mode_steps.add(template.mode)
            due = self.begin_step(template.mode)
            step = self._step
            for call in template.calls:
                if call[0] == "graph":
                    self._replay_call(step, call, due)
                elif due:
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
            if call[0] == "raw" and lane.look_raw(call[2]) == under_way:
                return False
        return True

    def wait(self, step: CudaStep) -> None:
        if not self._lane.trouble:      # else what has not come by now will not
            super().wait(step)

    def answers(self) -> bool:
        """A device on which a kernel never ends (a collective whose other ranks are gone) is asked and not waited for:
        a wait that nothing interrupts would be the process's last. One that is far behind is waited for while steps
        arrive."""
        arrived = sum(map(self.ready, self._queue))
        try:
            streams = [torch.cuda.current_stream(device) for device in self._used]
            while not within_patience(lambda: all(stream.query() for stream in streams)):
                before, arrived = arrived, sum(map(self.ready, self._queue))
                if arrived <= before:
                    return False
        except RuntimeError:        # a context that died: whoever asks for anything is told so, at once
            pass
        return True

    def leave(self) -> None:
        self._lane.leave()

    def arrived(self, step: CudaStep, call: tuple[Any, ...], late: bool) -> int:
        run = self._run
        if call[0] == "refused":
            self._refused[call[1]] = self._refused.get(call[1], 0) + call[2]
            return int(call[2])
        if call[0] == "raw":
            _, ident, ticket, *described = call
            address = self._lane.raw_address(ticket)
            if address:
                run.put_raw(ident, address, *described)
            self._lane.release_raw(ticket)
            return 0 if address else 1
        if call[0] != "rows":
            return 0
        _, ticket, count, scalars, skips = call
        rows = self._lane.take(ticket)
        if rows is None:
            self._lane.drop(ticket)
            return int(count)
        run.put_rows(rows)
        missing = 0
        for at, ident, sub in scalars:
            number = rows.value(at)
            if number is None:
                missing += 1
            else:
                run.put_scalars([ident], [number], sub)
        if missing:
            self._refused["nowhere"] = self._refused.get("nowhere", 0) + missing
        for at in skips:
            step.skipped |= bool(rows.value(at))
        return missing

    def why_lost(self, late: bool) -> str:
        if self._lane.trouble:
            return self._lane.trouble
        refused, self._refused = self._refused, {}
        return next((why for key, why in _WHY_REFUSED.items() if key in refused), super().why_lost(late))


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
