"""Steps whose values are still on their way from a device: what stands between the adaptor and its run.

The calls of a Run are kept, step by step, host memory as copies. A step is replayed into the run when all of it has
arrived: in order, and at most MAX_LAG steps late. What has not come by then is left out and counted as "device_late".
Nothing waits while the training runs; when it is over, the end waits for what is under way, for a bounded time.
"""
from __future__ import annotations

import collections
import ctypes
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from ..steps import GLOBAL, ModeSteps

MAX_LAG = 32        # steps that may be under way; a step is visible at most this late
#: Seconds without any arrival after which the end of a training waits no longer.
PATIENCE = 5.0


def within_patience(done: Callable[[], bool]) -> bool:
    """Polls until it is so; False if it is not after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


class Step:
    """One step, as it is put."""

    def __init__(self, mode: int, begun: bool = False) -> None:
        self.mode = mode
        self.begun = begun                          # the run has it open already
        self.calls: list[tuple[Any, ...]] = []    # (kind, ...), in order
        self.skipped = False
        self.left = False                           # it is none after all


class LateSteps:
    """Stands in for a Run while values are on their way. What a device's own lane knows it says in `ready`, `wait`,
    `arrived` and `lost`.

    :param forecast: the session's, which knows of requests for more detail, too
    :param mode_steps: the session's, which counts a step before it is begun here

    Threads: one at a time.
    """

    def __init__(self, run: Any, forecast: Any, mode_steps: ModeSteps, sizes: dict[int, int]) -> None:
        self._run, self._sizes = run, sizes
        self._forecast, self._mode_steps = forecast, mode_steps
        self._step: Any = None
        self._over = False
        self._queue: collections.deque[Any] = collections.deque()

    # The calls of a Run -------------------------------------------------------------------------------------

    def begin_step(self, mode: int) -> bool:
        """Foretells what the run will answer when the step is replayed; where unsure, True."""
        step = self._mode_steps[mode]
        self._step = self.new_step(mode)
        self.begun(mode, step)
        return bool(self._forecast.due(mode, step))

    def adopt(self, mode: int) -> None:
        """The run has a step of this mode open, and a tensor on a device turns up in it: what comes is kept from here
        on."""
        self._step = self.new_step(mode, begun=True)
        self.begun(mode, self._mode_steps[mode])

    def put_many(self, ids: list[int], ptrs: list[int], sub: int = 0, point: int = 0,
                 unchanged: list[bool] | None = None) -> None:
        kept, data = [], []
        for ident, ptr in zip(ids, ptrs):
            size = self._sizes.get(ident, 0)
            if ptr and size:
                kept.append(ident)
                data.append(ctypes.string_at(ptr, size))
        self._step.calls.append(("host", kept, data, sub, point))

    def put_ptr(self, ident: int, ptr: int, dtype: torch.dtype, shape: Iterable[int], strides: list[int],
                sub: int = 0, point: int = 0) -> None:
        item = torch.empty((), dtype=getattr(torch, dtype)).element_size()
        extent = 1 + sum((d - 1) * s for d, s in zip(shape, strides)) if all(shape) else 0
        self._step.calls.append(("ptr", ident, ctypes.string_at(ptr, extent * item), dtype, shape, strides, sub, point))

    def put_sparse(self, ident: int, ptr: int, dtype: str, values: int, elements: int, sub: int = 0,
                   point: int = 0) -> None:
        item = torch.empty((), dtype=getattr(torch, dtype)).element_size()
        data = ctypes.string_at(ptr, values * item) if values else b""
        self._step.calls.append(("sparse", ident, data, dtype, values, elements, sub, point))

    def put_scalars(self, ids: list[int], values: Any, sub: int = 0) -> None:
        self._step.calls.append(("put_scalars", list(ids), list(values), sub))

    def put_context(self, topic: str, text: str) -> None:
        if self._step is None:
            self._run.put_context(topic, text)
        else:
            self._step.calls.append(("put_context", topic, text))

    def end_step(self, skipped: bool = False) -> int:
        step, self._step = self._step, None
        step.skipped |= skipped
        if self.ended(step):
            self._queue.append(step)
        self.drain()
        return -1

    def cancel_step(self) -> None:
        """As the run's: the open step is taken back, unless something is in it."""
        if self._step is not None:
            if self._step.begun or self._step.calls:
                self.end_step()
            else:
                self._step = None

    def leave_step(self) -> None:
        """As the run's: the open step is none. It comes after those that are under way."""
        if self._step is not None:
            self._step.left = True
            self.end_step()

    def mode_step(self, mode: int) -> int:
        """As the run's, of the steps that it will have: the last one of this mode."""
        steps = [*self._queue, *([] if self._step is None else [self._step])]
        begun: int = self._run.mode_step(mode)
        return begun + sum(int(not step.begun) - int(step.left) for step in steps if mode in (step.mode, GLOBAL))

    def gather(self) -> None:
        """What is put until `launch` may go together."""

    def launch(self) -> None:
        """Nothing is gathered any more."""

    def skipped_if(self, found: torch.Tensor) -> None:
        """The open step's update was skipped if this number on a device is not 0."""

    def was_captured(self) -> bool:
        """Is the open step in a CUDA graph, to happen when that is replayed?"""
        return False

    def keep_part(self) -> None:
        """What was captured of the open step is a part of a step."""

    def holds_part(self, graph: Any) -> bool:
        """Has it a part of a step of ours in it?"""
        return False

    def holds(self, graph: Any) -> bool:
        """Has it steps of ours in it?"""
        return False

    def made_copy(self, size: int) -> None:
        """What was put last is a copy of this many bytes, made for us."""

    def lags(self) -> bool:
        """Is the device so far behind that what the host does meanwhile costs the training nothing?"""
        return len(self._queue) > 1

    def answers(self) -> bool:
        """Does the device carry out anything any more?"""
        return True

    def leave(self) -> None:
        """The process ends."""

    # What a lane says ---------------------------------------------------------------------------------------

    def new_step(self, mode: int, begun: bool = False) -> Any:
        return Step(mode, begun)

    def begun(self, mode: int, step: int) -> None:
        """A step begins: the `step`-th of its mode."""

    def ended(self, step: Any) -> bool:
        """No more comes of it. False: it is no step of the training's."""
        return True

    def ready(self, step: Any) -> bool:
        """Has all of it arrived?"""
        raise NotImplementedError

    def wait(self, step: Any) -> None:
        """The training is over: waits until it has."""
        within_patience(lambda: self.ready(step))

    def arrived(self, step: Any, call: tuple[Any, ...], late: bool) -> int:
        """Replays a call of a kind of its own. Returns how many tensors are missing of it."""
        raise NotImplementedError

    def why_lost(self, late: bool) -> str:
        if self._over:
            return "the training ended before the device had delivered all of its last steps"
        return f"a step's values were not on the host {MAX_LAG} steps later"

    # Replay -------------------------------------------------------------------------------------------------

    def drain(self, wait: bool = False) -> None:
        """Commits the steps whose values have arrived; those too late go without. `wait`: training is over."""
        self._over |= wait
        while self._queue:
            step = self._queue[0]
            late = False
            if wait:
                self.wait(step)
                late = not self.ready(step)
                wait = not late         # of the later ones, what has arrived is put
            elif self._over:
                late = not self.ready(step)
            elif not self.ready(step):
                if len(self._queue) <= MAX_LAG:
                    return
                late = True
            try:
                self._replay(step, late)
            finally:            # an exception of the training's may land in it: what came in so far is the step
                self._queue.popleft()
                if step.left:
                    self._run.leave_step()
                else:
                    self._run.end_step(step.skipped)

    def _replay(self, step: Any, late: bool) -> None:
        run = self._run
        if not step.begun:
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
            elif kind == "sparse":
                _, ident, data, *rest = call
                buffer = numpy.frombuffer(data, numpy.uint8)
                run.put_sparse(ident, buffer.ctypes.data, *rest)
            elif kind in ("put_scalars", "put_context"):
                getattr(run, kind)(*call[1:])
            else:
                lost += self.arrived(step, call, late)
        if lost:
            run.count_dropped("device_late", lost, self.why_lost(late))
