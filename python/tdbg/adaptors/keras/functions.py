"""The functions that Keras runs for a batch, with extra outputs.

Keras compiles a model's train_step (test_step, predict_step) once, into `model.train_function`. Python code in it runs
while it is traced, so there is nothing to hook at a step; what can be had at every step are outputs. A `Watched` takes
the place of the model's function: it runs Keras' own where nothing is due, else one that was made from the same step by
the same Keras code (building.py) and returns the wanted tensors beside the result, which the model gets as it was. What
they returned goes into the step of the run (recording.py).
"""

from __future__ import annotations

import enum
import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...words import error_text
from ..guard import pass_on, say
from ..steps import PREDICT, TRAIN
from ..watch import OFF
from . import collect
from .building import Builder, Trace
from .recording import Recording
from .tap import Tap

if TYPE_CHECKING:
    from .session import Session


class Functions(enum.Enum):
    """What there is to choose from. Two are traced at most: the whole one, with every wanted tensor, and Keras' own or
    a light one, with the tensors of which statistics are kept, where raw values are due more seldom."""

    WHOLE = enum.auto()             # would a light one return fewer? The first step with statistics alone will tell
    WHOLE_ALONE = enum.auto()       # it would not
    WHOLE_AND_LIGHT = enum.auto()
    WHOLE_AND_KERAS = enum.auto()   # a batch with nothing due was run
    KERAS_ALONE = enum.auto()       # the step takes no extra outputs


class Choice:
    """Of one model and mode.

        WHOLE --statistics_were_due--> WHOLE_ALONE or WHOLE_AND_LIGHT
        any with a whole one --nothing_is_due--> WHOLE_AND_KERAS
        any --gives_up--> KERAS_ALONE
    """

    def __init__(self, session: Session, mode: int) -> None:
        self._session, self._mode = session, mode
        self.functions = Functions.WHOLE
        self.light_names: set[str] | None = None    # what the light one returns

    def gives_up(self) -> None:
        self.functions = Functions.KERAS_ALONE

    def nothing_is_due(self) -> None:
        self.functions = Functions.WHOLE_AND_KERAS

    def statistics_were_due(self, returned: dict[str, Any]) -> None:
        """Call in the open step, with what a function returned for it: are there tensors that no statistics are kept
        of?"""
        session = self._session
        if self.functions is not Functions.WHOLE or not session.every_step or session.forecast.raw_due(
                self._mode, session.run.mode_step(self._mode)):
            return
        due = {key for key in returned if key.startswith("context/")
               or session.values.due([key.partition(collect.AGAIN)[0]])}
        if len(due) < len(returned):
            self.functions, self.light_names = Functions.WHOLE_AND_LIGHT, due
        else:
            self.functions = Functions.WHOLE_ALONE

    def is_light(self) -> bool:
        """Is the light one enough for the next step?"""
        session = self._session
        return (self.functions is Functions.WHOLE_AND_LIGHT
                and not session.forecast.raw_due(self._mode, session.next_step(self._mode)))


class Watched:
    """Takes the place of `model.train_function` (test, predict).

    :ivar session: whose watch it is
    :ivar bare: Keras' own function
    :param make: Keras' method that makes it
    """

    def __init__(
        self, session: Session, model: Any, mode: int, bare: Callable[..., Any], make: Callable[..., Any]
    ) -> None:
        self.session, self._model, self._mode, self.bare = session, weakref.ref(model), mode, bare
        self._choice = Choice(session, mode)
        self._recording = Recording(session, mode, self._choice.statistics_were_due)
        self._builder = Builder(session, mode, bare, make, self._recording)
        self._made: dict[bool, Callable[..., Any]] = {}    # is it the light one? -> the function
        self._ran = False                                   # one of them has, to its end

    def __call__(self, *arguments: Any) -> Any:
        session, model = self.session, self._model()
        if session.state is OFF:
            return self.bare(*arguments)
        if model is None or not session.watches(model):
            return self._builder.unseen(*arguments)
        try:
            session.loops.close()
            if not self._opens(model):
                return self.bare(*arguments)
            run = self._choose(model)
        except BaseException as error:
            session.guard.failed("the begin of a batch", error)
            run = self._bare_step
        return run(model, *arguments)

    def _opens(self, model: Any) -> bool:
        """Is there a run, or may this batch begin one? To predict is not yet to train."""
        session = self.session
        if session.run is None and self._mode == PREDICT and not session.names_models:
            return False
        session.opens_with(getattr(model, "optimizer", None), self._mode)
        return session.ensure_open()

    def _choose(self, model: Any) -> Callable[..., Any]:
        if self._choice.functions is Functions.KERAS_ALONE:
            return self._bare_step
        session = self.session
        first = session.next_step(self._mode)
        due = any(session.forecast.due(self._mode, s) for s in range(first, first + self._steps(model)))
        if not due:
            self._choice.nothing_is_due()
            return self._bare_step
        if self._mode == PREDICT and not self._wants_predictions(model):
            return self._bare_step
        return self._extra_step

    def _wants_predictions(self, model: Any) -> bool:
        session = self.session
        session.watch_layers(model)
        return session.layers_wanted or any(
            session.run.wants(name, kind, "", 0, said) for name, kind, said in
            (("inputs", "input", ["model_input"]), ("predictions", "prediction", [])))

    def _steps(self, model: Any) -> int:
        """How many batches one call takes."""
        return max(1, int(getattr(model, "steps_per_execution", 1) or 1)) if self._mode != PREDICT else 1

    # Keras' own ---------------------------------------------------------------------------------------------------

    def _bare_step(self, model: Any, *arguments: Any) -> Any:
        session = self.session
        before = self._iterations(model)
        result = self._builder.unseen(*arguments)
        try:
            after = self._iterations(model)
            count = self._steps(model) if before is None or after is None else max(1, after - before)
            for _ in range(min(count, self._steps(model))):
                session.begin(self._mode)
                if self._mode == TRAIN:
                    session.close_step()
        except BaseException as error:
            session.guard.failed("the end of a batch", error)
        return result

    def _iterations(self, model: Any) -> int | None:
        """Only where one call takes several batches is it not known how many there were."""
        if self._mode != TRAIN or self._steps(model) == 1:
            return None
        try:
            return int(self.session.backend.numpy(self.session.backend.read(model.optimizer._iterations)))
        except Exception as error:
            pass_on(error)
            return None

    # With extra outputs -------------------------------------------------------------------------------------------

    def _extra_step(self, model: Any, *arguments: Any) -> Any:
        if self._steps(model) > 1:
            if self.session.spread():
                return self._bare_step(model, *arguments)
            return self._one_by_one(model, *arguments)
        return self._one(model, *arguments)

    def _one_by_one(self, model: Any, *arguments: Any) -> Any:
        """Several batches per call: taken singly, because the outputs of a call are those of its last batch."""
        session, steps = self.session, self._steps(model)
        session.say_once(f"steps_per_execution={steps}: batches are run one by one in calls where something is due")
        result, taken = None, 0
        optional = getattr(arguments[-1], "get_next_as_optional", None)
        model.steps_per_execution = 1
        try:
            while taken < steps:
                batch = arguments
                if optional is not None:
                    # A step that is run on an iterator at its end fails, but not before it has counted itself.
                    found = optional()
                    if not found.has_value():
                        break
                    batch = (*arguments[:-1], iter([found.get_value()]))
                try:
                    result = self._one(model, *batch)
                except Exception as error:
                    if taken and _exhausted(error):
                        break
                    raise
                taken += 1
                if session.backend.name == "jax":
                    arguments = (result[1], arguments[-1])
        finally:
            model.steps_per_execution = steps
        if not taken:
            raise StopIteration
        return result

    def _one(self, model: Any, *arguments: Any) -> Any:
        session, recording, builder = self.session, self._recording, self._builder
        light = self._choice.is_light()
        try:
            function = self._made[light] if light in self._made else self._make(model, light, arguments)
        except Exception as error:
            self._gives_up(error)
            return self._bare_step(model, *arguments)
        if self._mode == TRAIN:
            session.guarded("frozen weights", recording.look, model, arguments)
        builder.trace, replay = Trace.NONE, _replayable(arguments)
        if recording.tap is not None:
            session.guarded("the begin of a batch", recording.begin_early)
        try:
            with session.loops.silence():       # replicas are threads of their own
                output = function(*replay())
        except BaseException as error:
            session.guarded("the end of the data", recording.take_back)
            if not isinstance(error, Exception) or _exhausted(error) or not self._may_run_again(model, error):
                raise
            self._gives_up(error)
            return self._bare_step(model, *replay())
        self._ran = True
        result, logs, extras = builder.split(output)
        try:
            recording.record(model, extras, logs)
        except BaseException as error:
            session.guard.failed("the end of a batch", error)
        return result

    def _make(self, model: Any, light: bool, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        session, recording = self.session, self._recording
        session.names.learn(model)
        session.watch_layers(model)
        recording.before_first(model, arguments)
        recording.tap = Tap(session) if self._mode == TRAIN and session.backend.takes_operations(model) else None
        made = self._builder.build(model, self._choice.light_names if light else None, arguments[0])
        self._made[light] = made
        return made

    def _may_run_again(self, model: Any, error: Exception) -> bool:
        """Did it fail while it was traced, or while XLA compiled it? Then nothing has happened yet."""
        backend, trace = self.session.backend, self._builder.trace
        if getattr(model, "run_eagerly", False) or not backend.extras or self.session.spread():
            return False
        if backend.name == "jax" and not model.jit_compile:
            return False
        return (trace is Trace.INSIDE or trace is Trace.DONE and backend.is_of_tracing(error)
                or bool(model.jit_compile) and not self._ran)

    def _gives_up(self, error: Exception) -> None:
        """A step that cannot be traced with extra outputs. If it is the script's own mistake, it is raised again."""
        pass_on(error)
        self._choice.gives_up()
        self.session.lost("unsupported", 1, f"a step function: {error_text(error)}")
        say(f"this step function takes no extra outputs ({error_text(error)[:200]}): "
            "its gradients and outputs are not captured")


def _exhausted(error: BaseException) -> bool:
    """The data has ended: StopIteration, or what TensorFlow says instead."""
    return isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"


def _replayable(arguments: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
    """A function that gives the arguments of one batch, more than once. TensorFlow's iterators are read in the graph:
    a step that could not be traced has taken nothing."""
    iterator = arguments[-1]
    if not hasattr(iterator, "__next__") or hasattr(iterator, "element_spec"):
        return lambda: arguments
    taken = list(itertools.islice(iterator, 1))
    return lambda: (*arguments[:-1], iter(taken))
