"""Do random numbers go on from step to step, or does something set them back, so that dropout, noise and samples are
the same each time?

    context/random/<generator>      1 at a step at which that generator of torch's was set back, 0 at a later one at
                                    which it was not

It was set back if, when the first forward of an optimizer's step begins, it is in the state in which it was then in
that optimizer's step before, and was in another one in between: numbers were drawn. <generator> is `cpu`, or `cuda` for
the current device's where CUDA is in use: torch's default ones. Their states lie in host memory, 5 kB and 16 bytes.

States are read, in the first LOOKS steps, when the first forward begins, before a backward and before an update, and
where the script sets them: what is drawn between a seed and the forward shows nowhere else. What is set inside of a
`fork_rng` counts for nothing behind it. Nor do several seeds of one step: samples that are each augmented by a seed of
their own.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .dynamo import run_uncompiled
from .unseen import hidden

if TYPE_CHECKING:
    from ..patches import Patches
    from .session import Session

LOOKS = 20

_is_compiling = torch.compiler.is_compiling
Marks = dict[str, int]      # by generator


def _mark(state: torch.Tensor) -> int:
    """All of it counts: a number that is drawn may change no more than where the next one is."""
    return zlib.crc32(ctypes.string_at(state.data_ptr(), state.numel()))


def _marks() -> Marks:
    marks = {"cpu": _mark(torch.default_generator.get_state())}
    # While a graph is captured the state of a device is the graph's, and is not to be asked for.
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        generators = torch.cuda.default_generators
        device = torch.cuda.current_device()
        if device < len(generators):
            marks["cuda"] = _mark(generators[device].get_state())
    return marks


class _Past:
    """Of one optimizer."""

    __slots__ = ("first", "since")

    def __init__(self, first: Marks, since: set[tuple[str, int]]) -> None:
        self.first = first      # at the first forward of its last step
        self.since = since      # and what was seen from then on


class RandomNumbers:
    """Of one session. `due`: this step is looked at."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._steps = 0
        self._first: Marks = {}         # at the first forward since an optimizer has stepped
        self._before: set[tuple[str, int]] = set()      # what was seen before that forward,
        self._behind: set[tuple[str, int]] = set()      # and from then on
        self._set: set[tuple[str, int]] = set()         # by the script, since the last such forward
        self._seeds = 0
        self._past: dict[int, _Past] = {}       # by an optimizer's serial
        self._told: set[str] = set()

    def give_up(self) -> None:
        self.due = False
        self._past.clear()

    def forward_begins(self) -> None:
        """Of a training."""
        if self._first:
            return
        self._first = _marks()
        if self._seeds <= 1:
            self._before |= self._set
        self._set, self._seeds = set(), 0
        self._behind = set(self._first.items())

    def look(self) -> None:
        """Backward is about to run, or an optimizer to step."""
        self._behind.update(_marks().items())

    def was_set(self, seeded: bool) -> None:
        """The script has seeded torch, or else brought back a state that it had taken."""
        if not seeded:      # a `fork_rng` ends so
            self._set, self._seeds = set(), 0
        self._seeds += seeded
        self._set.update(_marks().items())

    def forget(self) -> None:
        """The step at hand is not recorded."""
        self._first, self._past = {}, {}
        self._before, self._behind = set(), set()

    def optimizer_steps(self, serial: int, is_first: bool) -> None:
        """An optimizer is about to step. `is_first`: of several in one step, it is the first one that is told of."""
        self.look()
        first, self._first = self._first, {}
        before, behind = self._before, self._behind
        self._before, self._behind = set(), set()
        for past in self._past.values():
            past.since |= before | behind
        if is_first:
            self._tell(self._past.get(serial), first)
        self._past[serial] = _Past(first, behind)
        self._steps += is_first
        self.due = self._steps < LOOKS
        if not self.due:
            self._past.clear()

    def _tell(self, past: _Past | None, first: Marks) -> None:
        if past is None:
            return
        for generator, mark in first.items():
            drawn = any(of == generator and other != mark for of, other in past.since)
            back = drawn and past.first.get(generator) == mark
            if back:
                self._told.add(generator)
            if generator in self._told:
                self._session.context.add("context/random/" + generator, int(back))


def patch(patches: Patches, session: Session) -> None:
    """Puts what sets torch's random numbers under watch."""
    looked_at = session.context.random_numbers

    def watch(seeded: bool) -> Callable[..., Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                if _is_compiling():
                    return original(*args, **kwargs)
                result = original(*args, **kwargs)
                if looked_at.due and session.listening and session.run is not None and not session.elsewhere():
                    try:
                        with hidden():
                            looked_at.was_set(seeded)
                    except BaseException as error:
                        session.guard.failed("random numbers", error, looked_at.give_up)
                return result
            run_uncompiled(watched)
            return watched
        return make

    # What `torch.manual_seed` calls, which itself Dynamo wraps, and registers with TorchScript, when it is imported. A
    # torch that calls this something else: what is drawn behind the forward is seen all the same.
    patches.replace([torch.random], "_manual_seed_impl", watch(seeded=True))
    patches.replace([torch, torch.random], "set_rng_state", watch(seeded=False))
