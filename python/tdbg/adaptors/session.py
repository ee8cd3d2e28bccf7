"""A session watches one training, whatever its framework: steps, modes, what will be due in them, a watcher's
requests, and what the script records itself. An adaptor's Session is a LoopSession; framework.py says what it adds.

The calls of a step: `begin_step`, then what is due, `end_step`, `take_request`. If an adaptor cannot close the step in
the run yet, because its numbers are still being computed, it calls `step_is_over` at once and `end_step` later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .context import Context
from .guard import say
from .overhead import Overhead
from .requests import obey
from .steps import EVAL, GLOBAL, PREDICT, TRAIN, Clock, ModeSteps
from .watch import OPEN, Watch

#: A script that never says which mode it is in may be in GLOBAL (smdebug's hooks).
MODES = (TRAIN, EVAL, PREDICT, GLOBAL)
#: What Run.define says of a tensor that the plan never wants.
NOT_WANTED = 0xFFFFFFFF


def _finds(pattern: str, name: str) -> bool:
    """As the plan's own regexes do, for one that Python does not read: yes."""
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True


class LoopSession(Watch):
    """:param framework, open_run, options: a Watch's

    :ivar port: where steps and values go: the run, or what stands in front of it
    :ivar clock: where steps begin and end, of an adaptor that finds that out by one
    :ivar overhead: what an adaptor does inside the training is added to its `spent`
    :ivar forecast: of the plan, once there is a run: asked before a step is begun
    :ivar idle: mode -> nothing will be due in the next step of it
    :ivar open_mode: of the step that is open in the port; None: none is
    :ivar steps_closed: by this session
    :ivar mode_wanted: what the script said of steps to come (AttachedLoop.set_mode)
    """

    def __init__(self, framework: str, open_run: Callable[..., Any], options: dict[str, Any] | None = None,
                 context: Callable[[Any], Context] = Context) -> None:
        super().__init__(framework, open_run, options)
        self.port: Any = None
        self.clock: Clock | None = None
        self.forecast: Any = None
        self.idle = dict.fromkeys(MODES, False)
        self.open_mode: int | None = None
        self.steps_closed = 0
        self.mode_wanted: int | None = None
        self.context = context(self)
        self.overhead = Overhead(0)
        self._mode_steps: ModeSteps             # once there is a run
        self._more_until = 0        # somebody asked for more detail, up to this global step
        self._own_ids: dict[Any, int] = {}      # of tensors that the script records
        self._said: set[str] = set()

    def _opened(self) -> None:
        """Called when the run was opened. An adaptor's own `_opened` calls this first."""
        from .._capture import Forecast
        self.port = self.run
        self.context.enabled = bool(self.plan.get("context", True))
        self.forecast = Forecast(self.run.plan())
        self.overhead = Overhead(float(self.plan.get("overhead", 0)))
        self._mode_steps = ModeSteps(self.run)
        self.look_ahead()

    def keeps(self, collection: str) -> bool:
        """Does the plan keep this collection?"""
        return any(c.get("name") == collection and c.get("keep") for c in self.plan.get("collections", []))

    def names_tensor(self, name: str) -> bool:
        """Does a collection that the plan keeps name this tensor, and not only its kind?"""
        return any(c.get("keep") and (name in c.get("tensor_names", ()) or any(
            _finds(pattern, name) for pattern in c.get("include_regex", ()))) for c in self.plan.get("collections", []))

    def say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            say(message)

    # Steps --------------------------------------------------------------------------------------------------

    def look_ahead(self) -> None:
        """Computes for each mode whether the next step has anything due."""
        if self._more_until:
            self.forecast.more = self.run.global_step + 1 < self._more_until
        if self.forecast.always:
            return
        for mode, step in self._mode_steps.items():
            self.idle[mode] = not self.forecast.due(mode, step + 1)

    def next_step(self, mode: int) -> int:
        """Number of the next step of this mode."""
        return self._mode_steps[mode] + 1

    def begin_step(self, mode: int) -> bool:
        """Opens a step. True if anything is due in it."""
        self._mode_steps.add(mode)
        self.open_mode = mode
        return bool(self.port.begin_step(mode))

    def cancel_step(self) -> None:
        """Cancels the open step, unless something was recorded in it."""
        mode, self.open_mode = self.open_mode, None
        if mode is not None:
            self.port.cancel_step()
            self._mode_steps.read(self.port)

    def leave_step(self) -> None:
        """The open step is none: the training ended before an update came of it. Its tensors are not recorded, what the
        script itself gave as numbers is the end's."""
        self.port.leave_step()
        self._mode_steps.read(self.port)
        self.step_is_over()

    def interrupted(self) -> None:
        """Makes what is kept of steps here and what the port has agree again: a step that was being begun or ended is
        taken back, or, with something in it, ended."""
        if self.state is not OPEN or self.port is None:
            return
        if self.clock is not None:
            self.clock.interrupted()
            if self.clock.mode is None and self.open_mode is not None:
                self.cancel_step()
                self.step_is_over()
        self._mode_steps.read(self.port)

    def step_is_over(self) -> None:
        """Nothing that happens from here on belongs to the open step."""
        self.open_mode = None
        self.steps_closed += 1
        self.look_ahead()

    def training_step_is_over(self, hidden: bool = False) -> None:
        """Takes statistics less often, or more often again, as the training leaves time. `hidden`: Overhead's."""
        if self.overhead.step_ended(hidden):
            every = self.overhead.every
            self.run.look_every(every)
            self.forecast.look_every = every
            if every == 1:
                self.idle = dict.fromkeys(MODES, False)
            self.look_ahead()

    def take_request(self) -> None:
        """Carries out a watcher's requests, between two steps: all that are due, since one that held the training may
        be followed by what somebody asked for meanwhile."""
        while (request := self.run.take_request()) is not None:
            if until := obey(self.run, request, rank=self.rank(), keep_step=self.keep_step):
                # The latest request holds, as in the run, which forgets an earlier one (Recorder::CaptureMore).
                self._more_until = until
                self.look_ahead()

    def capture_more(self, collections: list[str], steps: int) -> None:
        """Values of these collections in each of the next steps, whatever the schedules say. Nothing, while a watcher's
        request holds: of two the later one alone does."""
        if not self.forecast.more:
            self.run.capture_more(collections, steps, True)
            self._more_until = self.run.global_step + 1 + steps
            self.look_ahead()

    def keep_step(self, because: str) -> None:
        """Keeps the next step whole. An adaptor that has a black box does."""
        say(f"a black box was asked for ({because}): there are those of PyTorch trainings only")

    # The script's own values --------------------------------------------------------------------------------

    def soon(self, put: Callable[[], None]) -> None:
        """Runs `put` in the open step, or when the next one opens. The caller's value must stay as it is until then."""
        if self.open_mode is not None:
            put()
        else:       # what goes wrong with it then must not take the step with it that opens
            self.waiting.add(lambda: self.guarded("recording what the script gave", put))

    def own_id(self, name: str, collection: str, key: tuple[Any, ...], define: Callable[[], int]) -> int | None:
        """Id of a tensor that the script records, defined once for each `key` (its name, and what a definition is made
        of); None where the plan does not keep the collection, which is said."""
        ident = self._own_ids.get(key)
        if ident is None:
            ident = self._own_ids[key] = define()
            if ident == NOT_WANTED:
                self.say_not_kept(name, collection)
        return None if ident == NOT_WANTED else ident

    def say_not_kept(self, name: str, collection: str) -> None:
        self.say_once(f"record: the plan does not keep the collection {collection!r}, so {name!r} is not recorded")
