"""Functions with extra outputs: Keras makes them from a model's own step, whose Python runs while they are traced."""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..steps import EVAL, PREDICT, TRAIN
from . import collect, packing
from .recording import Recording

if TYPE_CHECKING:
    from .session import Session

#: Mode -> names of a model's step, of its function, and of the method that makes the one from the other.
STEPS = {TRAIN: ("train_step", "train_function", "make_train_function"),
         EVAL: ("test_step", "test_function", "make_test_function"),
         PREDICT: ("predict_step", "predict_function", "make_predict_function")}


class Trace(enum.Enum):
    """How far the call under way has traced its function."""

    NONE = enum.auto()      # not at all: it had been traced before, or has not come to it
    INSIDE = enum.auto()    # the model's step was entered and not left
    DONE = enum.auto()      # it was left; what follows is compiling and running


class Builder:
    """Of one model and mode.

    :param bare: Keras' own function
    :param make: Keras' method that makes it, called with (model, force)
    """

    def __init__(self, session: Session, mode: int, bare: Callable[..., Any], make: Callable[..., Any],
                 recording: Recording) -> None:
        self._session, self._mode, self._bare, self._make, self._recording = session, mode, bare, make, recording
        self._packer = packing.Packer()
        self.trace = Trace.NONE

    def build(self, model: Any, only: set[str] | None, state: Any) -> Callable[..., Any]:
        """A function that returns the collected tensors, too; `split` takes them apart from what Keras expects.

        :param only: their names; None: all that are wanted
        :param state: what the function is given first; on JAX the values of the model's variables
        """
        session, mode = self._session, self._mode
        step_name, attribute, _ = STEPS[mode]
        if not session.backend.extras:
            return self._immediate(model, only)
        if session.spread():
            return self._together(model)
        instead: dict[str, Any] = {step_name: self._step(model, only, getattr(model, step_name))}
        if session.backend.name == "jax":
            # Asked for under a keras.distribution: Keras looks at the variables, which are empty while `fit` runs.
            shardings = session.backend.shardings(mode, state)
            instead["_get_state_sharding_spec"] = lambda: shardings
        present = getattr(model, attribute)
        try:
            with _replaced(model, instead):
                self._make(model, True)
            made: Callable[..., Any] = getattr(model, attribute)
        finally:
            setattr(model, attribute, present)
        if mode != PREDICT:
            return made

        def predict(*arguments: Any) -> Any:    # looks its step up when it is traced
            with _replaced(model, instead):
                return made(*arguments)
        return predict

    def split(self, output: Any) -> tuple[Any, Any, dict[str, Any]]:
        """(what Keras expects, logs, extra tensors) of what a function of `build` returned."""
        if self._session.backend.name == "jax":
            (logs, extras), state = output
            return (logs, state), logs, extras
        if not self._session.backend.extras:
            return output, output, {}
        logs, extras = output
        return logs, logs, self._packer.unpack(extras, self._session.backend)

    def unseen(self, *arguments: Any) -> Any:
        """Keras' own function. While it is traced, optimizers and layers are not those of a loop of the script's
        own."""
        with self._session.loops.silence():
            return self._bare(*arguments)

    def _step(self, model: Any, only: set[str] | None, original: Callable[..., Any]) -> Callable[..., Any]:
        """The model's step, with the collected tensors beside its result."""
        session, mode, recording = self._session, self._mode, self._recording
        backend = session.backend

        @functools.wraps(original)
        def step(*arguments: Any) -> Any:
            self.trace = Trace.INSIDE
            tap = recording.tap if backend.place() is not None else None      # functions may be run eagerly from now on
            if tap is not None:
                tap.retrace([t for t in backend.flatten(arguments[-1]) if backend.is_tensor(t)])
            collector = collect.Collector(session, backend, model, mode, only, tap)
            with collector.active(), backend.differentiation(collector):
                self._saw_batch(collector, arguments[-1])
                out = original(*arguments)
                logs = out[0] if backend.name == "jax" else out
                if mode == PREDICT:
                    collector.predictions(logs)
                collector.name_layers()
            recording.traced(collector)
            extras = collector.outputs()
            if tap is not None:
                tap.rest(self._logged(logs, extras))        # what is left of them is in the result anyway
                extras = tap.rest(extras)
            self.trace = Trace.DONE
            if backend.name == "tensorflow" and collector.replicas == 1 and backend.place() is not None:
                extras = self._packer.pack(extras, backend)
            return ((logs, extras), *out[1:]) if backend.name == "jax" else (logs, extras)
        return step

    def _logged(self, logs: Any, extras: dict[str, Any]) -> dict[str, Any]:
        """Keras' logs as tensors of the graph, for a tap: as `Recording.put` would take them from the result."""
        found, backend = {}, self._session.backend
        for name, value in logs.items() if isinstance(logs, dict) else ():
            kind = "loss" if name == "loss" else "metric"
            if (name not in extras and backend.is_tensor(value) and value.shape.num_elements() == 1
                    and self._session.values.entry(name, kind) is not None):
                found[name] = value
        return found

    def _immediate(self, model: Any, only: set[str] | None) -> Callable[..., Any]:
        """Nothing is traced (torch): what a step is asked for is recorded before the update, while it is running."""
        session, mode, recording = self._session, self._mode, self._recording
        if model.jit_compile:
            session.say_once(
                "torch.compile: of a step that it has compiled weights and metrics are captured, gradients and "
                "outputs are not"
            )

        def compiled(*arguments: Any) -> Any:
            if mode == TRAIN:
                session.guarded("the begin of a batch", self._begin_unseen, model)
            return self.unseen(*arguments)

        def step(*arguments: Any) -> Any:
            collector = collect.Collector(session, session.backend, model, mode, only)
            collector.before_update = lambda: recording.put(model, collector.take())
            with collector.active():
                self._saw_batch(collector, arguments[-1][0])
                result = self._bare(*arguments)
                if mode == PREDICT:
                    session.guarded("predictions", collector.predictions, result)
            recording.traced(collector)
            session.guarded("the end of a batch", lambda: recording.put(model, collector.take()))
            return result

        return compiled if model.jit_compile else step

    def _begin_unseen(self, model: Any, trainable: Any = None) -> None:
        """Opens the step of a function that takes no extra outputs, and puts the weights that it is about to use.

        :param trainable: their values, where the variables have none
        """
        self._recording.put(model, {})
        if self._recording.due:
            values = dict(zip(map(id, model.trainable_variables), trainable or (), strict=False))
            self._session.put_weights(model.trainable_weights, values)

    def _together(self, model: Any) -> Callable[..., Any]:
        """Several processes run one program: another one in any of them, with more outputs, would have all wait for
        ever. So it is Keras' own that runs, and what can be seen is what it takes and returns: weights and logs."""
        session, mode = self._session, self._mode
        session.say_once("several processes run each step together: weights and metrics are captured, gradients and "
                         "outputs are not")

        def together(state: Any, data: Any) -> Any:
            if mode == TRAIN:
                session.guarded("the begin of a batch", self._begin_unseen, model, state[0])
            logs, state = self.unseen(state, data)
            return (logs, {}), state
        return together

    def _saw_batch(self, collector: collect.Collector, data: Any) -> None:
        try:
            from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight
            x, y, _ = unpack_x_y_sample_weight(data)
            collector.batch(x, y)
        except BaseException as error:
            self._session.guard.failed("a batch", error)


@contextlib.contextmanager
def _replaced(model: Any, instead: dict[str, Any]) -> Iterator[None]:
    """`model` has these attributes, past Keras' tracking of them."""
    for name, function in instead.items():
        object.__setattr__(model, name, function)
    try:
        yield
    finally:
        for name in instead:
            object.__delattr__(model, name)
