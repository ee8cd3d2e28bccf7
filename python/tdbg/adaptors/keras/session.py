"""One training under watch: opens the run at the first batch, keeps steps apart, ends it.

A TRAIN step is one update of a model's train function, an EVAL or PREDICT step one batch of the other two. With
accumulated gradients the batches of an update are its micro-steps.
"""

from __future__ import annotations

import gc
import platform
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..guard import pass_on, say
from ..patches import Patches
from ..ranks import of_tensorflow
from ..session import LoopSession
from ..steps import TRAIN
from ..values import Values
from ..watch import OFF, OPEN
from . import backends, collect, patching
from .loops import Loops
from .names import Names, output_kind, output_unit_axis
from .untrained import Untrained

if TYPE_CHECKING:
    from ..values import Entry
    from .names import Named

#: Final weights are recorded of models that are gone by then, too, if their variables are not larger than this, the
#: last ones' together.
KEPT_BYTES = 64 << 20
#: How often the live objects are searched for models.
SEARCHES = 20


class Session(LoopSession):
    """Threads: events of other threads than the one that opened the run are ignored."""

    accepts = keras.Model, "a keras.Model"

    def __init__(self, open_run: Callable[..., Any], options: dict[str, Any] | None = None) -> None:
        super().__init__("keras", open_run, options)
        self.values: Values    # once there is a run
        self.backend = backends.make(keras.backend.backend())
        self.names = Names()
        self.state_wanted = self.layers_wanted = False
        self.layer_patches = Patches()
        self.on_disarm: list[Callable[[], None]] = []    # what else is replaced for this watch
        self.on_step_end: list[Callable[[], None]] = []    # called before a step is closed
        # Called with an epoch's metrics of its evaluation, in the last step of that.
        self.on_validation_end: list[Callable[[dict[str, Any]], None]] = []
        self._only: list[Any] = []    # the models that the script named
        # (reference, strong reference or None) of models whose weights are recorded at the end
        self._trained: list[tuple[Any, Any]] = []
        self.loops = Loops(self)
        self.untrained = Untrained(self)
        self.number_shape: tuple[int, ...] = ()    # of losses and metrics: smdebug has an axis there
        self._learned = 0
        self._opens: tuple[Any, int] = (None, TRAIN)    # the optimizer and the mode of what is about to open the run

    # Arming and opening -------------------------------------------------------------------------------------

    def install(self) -> None:
        if self.backend is None:
            say(f"Keras' backend {keras.backend.backend()!r} is not known: nothing is captured")
            return
        missing = patching.patch(self.patches, self)
        if missing:
            say(f"Keras {keras.__version__} has no {', '.join(missing)}: what depends on it is not captured")
        if self.backend.name == "tensorflow":
            from .. import tensorflow
            tensorflow.arm()
            self.on_disarm.append(tensorflow.disarm)

    def watch(self, models: list[Any]) -> None:
        """What the script handed over: where there is any, no other model is watched. One that trains already is seen
        from its next batch on."""
        self._only += map(weakref.ref, models)
        if self.backend is not None:
            patching.catch_up(self)

    @property
    def names_models(self) -> bool:
        """Has the script said which models it trains?"""
        return bool(self._only)

    def watches(self, model: keras.Model) -> bool:
        if self.state is OFF or self.elsewhere():
            return False
        return not self._only or any(reference() is model for reference in self._only)

    def adaptor(self) -> str:
        return f"keras {keras.__version__} on {self.backend.name} {self.backend.version}"

    def rank(self) -> tuple[int, int]:
        if self.spread():
            rank, world_size = self.backend.processes()
            return rank, world_size
        return of_tensorflow()

    def opens_with(self, optimizer: Any, mode: int) -> None:
        if self.run is None:
            self._opens = optimizer, mode

    def optimizer_count(self) -> tuple[int, str] | None:
        optimizer: Any = self._opens[0]
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if inner is None or not inner.built:
            return None
        # Of updates: `iterations` counts batches where gradients are accumulated.
        try:
            count = int(self.backend.numpy(self.backend.read(inner._iterations)))
        except Exception as error:      # while JAX's `fit` runs, variables are empty
            pass_on(error)
            return None
        return count // (inner.gradient_accumulation_steps or 1), optimizer.name

    def begins_with_evaluation(self) -> bool:
        return self._opens[1] != TRAIN

    def spread(self) -> bool:
        """Do several processes run each step together, as one program that is the same in all of them?"""
        return bool(self.backend.name == "jax" and self.backend.processes()[1] > 1)

    def _opened(self) -> None:
        super()._opened()
        self._opens = None, TRAIN       # an optimizer that the script drops must be freed
        self.values = Values(self.run, self.number_shape)
        self.every_step = int(self.plan.get("summaries_every", 1)) == 1
        self.state_wanted = self.run.wants("optimizer/x", "optimizer", "", 0)
        if self.run.wants("layer/outputs", "output", "", 0) or self.run.wants("layer/inputs", "input", "", 0):
            self.watch_all_layers()
        self.context.topic("versions", {"keras": keras.__version__, self.backend.name: self.backend.version,
                                        "python": platform.python_version()})

    # What is wanted -------------------------------------------------------------------------------------------

    def entry(self, *arguments: Any) -> Entry | None:
        return self.values.entry(*arguments)

    def wants_weight(self, named: Named) -> bool:
        return (
            self.values.entry(named.name, named.kind, named.module_kind, named.short_name, named.unit_axis) is not None
        )

    def layer_tensors(self, collector: collect.Collector, kind: str, label: str, layer: Any,
                      tensors: Sequence[Any]) -> None:
        """Names the outputs or inputs of one layer: `dense/outputs`, or `dense/outputs_0`, ... where there are
        several."""
        said = ["embedding_input"] if kind == "input" and "Embedding" in type(layer).__name__ else []
        for n, tensor in enumerate(tensors):
            name = f"{label}/{kind}s" + ("" if len(tensors) == 1 else f"_{n}")
            collector.add(
                name,
                tensor,
                kind,
                output_kind(layer),
                "",
                output_unit_axis(layer, len(tensor.shape)),
                said,
                True,
                merged=collect.ROWS,
            )

    def watch_layers(self, model: keras.Model) -> None:
        """Patches `Layer.__call__`, the first time that the plan wants a layer's tensors."""
        if self.layers_wanted:
            return
        for layer in model._flatten_layers(include_self=False, recursive=True):
            label = self.names.layer(layer, model.name)
            for kind in ("output", "input"):
                module_kind = output_kind(layer)
                if any(self.run.wants(f"{label}/{kind}s{n}", kind, module_kind, 0) for n in ("", "_0")):
                    self.watch_all_layers()

    def watch_all_layers(self) -> None:
        self.layers_wanted = True
        patching.patch_layers(self.layer_patches, self)

    def learn_live(self, variables: Sequence[Any]) -> None:
        """Names variables that a loop of the script's own trains: their models are looked for among what lives."""
        if all(self.names.knows(v) for v in variables) or self._learned >= SEARCHES:
            return
        self._learned += 1
        layers = [o for o in gc.get_objects() if issubclass(type(o), keras.layers.Layer) and hasattr(o, "_layers")]
        models = [m for m in layers if isinstance(m, keras.Model)]
        # Models that are not trained here, above all those that the script has dropped, must not take names away.
        wanted = set(map(id, variables))
        for model in sorted(models, key=lambda m: -len(m._flatten_layers())):
            if not wanted.isdisjoint(map(id, model.weights)):
                self.names.learn(model)
            if not wanted.isdisjoint(map(id, model.trainable_variables)):
                self.trained(model)
        for layer in layers:
            if any(v is w for v in variables for w in layer._trainable_variables):
                self.names.learn(layer)

    def listening_in_function(self) -> bool:
        """A host function runs in a thread of TensorFlow's, while the training's waits for it."""
        return self.state is OPEN

    # Steps ------------------------------------------------------------------------------------------------------

    def begin(self, mode: int) -> bool:
        """Opens a step, and closes what is open. True if anything is due in it."""
        self.close_step()
        return self.begin_step(mode)

    def close_step(self, skipped: bool = False) -> None:
        if self.open_mode is None:
            return
        self.waiting.write()        # not before: what is written can no longer be taken back (cancel_step)
        self.context.flush()
        for listener in self.on_step_end:
            listener()
        self.run.end_step(skipped)
        self.step_is_over()
        self.take_request()

    def trained(self, model: keras.Model) -> None:
        """`model` is trained: its final weights are recorded at the end."""
        if any(reference() is model for reference, _ in self._trained):
            return
        size = sum(_bytes(v) for v in model.weights)
        self._trained.append((weakref.ref(model), list(model.weights) if size <= KEPT_BYTES else None))
        # A search over parameters makes many: of those that are gone the last ones are kept.
        room, left = KEPT_BYTES, []
        for reference, kept in reversed(self._trained):
            if reference() is None:
                room -= sum(_bytes(v) for v in kept or ())
                if kept is None or room < 0:
                    continue
            left.append((reference, kept))
        self._trained = left[::-1]

    def trained_models(self) -> list[Any]:
        """Those of them that the script still has."""
        return [model for reference, _ in self._trained if (model := reference()) is not None]

    def put_weights(self, variables: Iterable[Any], state: dict[int, Any] | None = None) -> None:
        """Weights that are read from outside of any step function.

        :param state: id of a variable -> its value, where the variables are empty (JAX, while `fit` runs)
        """
        found, elsewhere = [], []
        for variable in variables:
            named = self.names.of(variable)
            entry = self.values.entry(named.name, named.kind, named.module_kind, named.short_name, named.unit_axis)
            if entry is None:
                continue
            value = (state or {}).get(id(variable))
            value = self.backend.read(variable) if value is None else value
            if self.backend.name == "jax" and not self.backend.is_here(value):
                elsewhere.append(named.name)
                continue
            found.append((entry, self.backend.numpy(value)))
        if elsewhere:
            self.say_once(f"weights that lie in several processes are not captured: {', '.join(elsewhere[:5])}"
                          f"{', ...' if len(elsewhere) > 5 else ''}")
        self.values.put(found)

    # The script's own values ------------------------------------------------------------------------------------

    def record_value(self, name: str, tensor: Any, collection: str) -> None:
        array = np.array(self.backend.numpy(tensor) if self.backend.is_tensor(tensor) else tensor)
        self.values.record(self, name, array, collection)

    def record_scalar(self, name: str, value: Any, collection: str) -> None:
        number, ident = float(value), self.context.id("scalar/" + name, collection)
        self.soon(lambda: self.context.number(ident, number))

    # The end ------------------------------------------------------------------------------------------------------

    def _last_words(self) -> None:
        self.loops.close()
        self.close_step()
        if self.begin_end():
            final: dict[int, Any] = {}      # a model's variables are those of the models inside it, too
            for reference, kept in self._trained:
                model = reference()
                final.update((id(v), v) for v in (model.weights if model is not None else kept or ()))
            self.put_weights(final.values())

    def disarm(self) -> None:
        """Takes the patches away; the run, if open, is not touched."""
        self.state = OFF
        self._trained.clear()
        self.loops.forget()
        self.patches.undo()
        self.layer_patches.undo()
        for undo in self.on_disarm:
            undo()
        self.on_disarm.clear()


def _bytes(variable: Any) -> int:
    size = 8
    for d in variable.shape:
        size *= d or 0
    return size
