"""One training under watch: opens the run at the first batch, keeps steps apart, ends it.

A TRAIN step is one update of a model's train function, an EVAL or PREDICT step one batch of the other two. With
accumulated gradients the batches of an update are its micro-steps.
"""

import gc
import platform
import weakref

import keras
import numpy as np

from ..guard import say
from ..patches import Patches
from ..ranks import of_tensorflow
from ..session import LoopSession
from ..values import Values
from ..watch import OFF, OPEN
from . import backends, collect, patching
from .loops import Loops
from .names import Names, output_kind, output_unit_axis
from .untrained import Untrained

#: Final weights are recorded of models that are gone by then, too, if their variables are not larger than this.
KEPT_BYTES = 64 << 20
#: How often the live objects are searched for models.
SEARCHES = 20


class Session(LoopSession):
    """Threads: events of other threads than the one that opened the run are ignored."""

    accepts = keras.Model, "a keras.Model"

    def __init__(self, open_run, options=None):
        super().__init__("keras", open_run, options)
        self.values = None
        self.backend = backends.make(keras.backend.backend())
        self.names = Names()
        self.state_wanted = self.layers_wanted = False
        self.layer_patches = Patches()
        self.on_disarm = []            # what else is replaced for this watch
        self.on_step_end = []          # called before a step is closed
        self._only = []                # the models that the script named
        self._trained = []             # (reference, strong reference or None) of models whose weights are recorded at the end
        self.loops = Loops(self)
        self.untrained = Untrained(self)
        self._learned = 0

    # Arming and opening -------------------------------------------------------------------------------------

    def install(self):
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

    def watch(self, models):
        """What the script handed over: where there is any, no other model is watched. One that trains already is seen
        from its next batch on."""
        self._only += map(weakref.ref, models)
        if self.backend is not None:
            patching.catch_up(self)

    def watches(self, model):
        if self.state is OFF or self.elsewhere():
            return False
        return not self._only or any(reference() is model for reference in self._only)

    def adaptor(self):
        return f"keras {keras.__version__} on {self.backend.name} {self.backend.version}"

    def rank(self):
        if self.spread():
            return self.backend.processes()
        return of_tensorflow()

    def spread(self):
        """Do several processes run each step together, as one program that is the same in all of them?"""
        return self.backend.name == "jax" and self.backend.processes()[1] > 1

    def _opened(self):
        super()._opened()
        self.values = Values(self.run)
        self.every_step = int(self.plan.get("summaries_every", 1)) == 1
        self.state_wanted = self.run.wants("optimizer/x", "optimizer", "", 0)
        if self.run.wants("layer/outputs", "output", "", 0) or self.run.wants("layer/inputs", "input", "", 0):
            self.watch_all_layers()
        self.context.topic("versions", {"keras": keras.__version__, self.backend.name: self.backend.version,
                                        "python": platform.python_version()})

    # What is wanted -------------------------------------------------------------------------------------------

    def entry(self, *arguments):
        return self.values.entry(*arguments)

    def wants_weight(self, named):
        return self.values.entry(named.name, named.kind, named.module_kind, named.short_name, named.unit_axis) is not None

    def layer_tensors(self, collector, kind, label, layer, tensors):
        """Names the outputs or inputs of one layer: `dense/outputs`, or `dense/outputs_0`, ... where there are several."""
        said = ["embedding_input"] if kind == "input" and "Embedding" in type(layer).__name__ else []
        for n, tensor in enumerate(tensors):
            name = f"{label}/{kind}s" + ("" if len(tensors) == 1 else f"_{n}")
            collector.add(name, tensor, kind, output_kind(layer), "", output_unit_axis(layer, len(tensor.shape)), said, True,
                          merged=collect.ROWS)

    def watch_layers(self, model):
        """Patches `Layer.__call__`, the first time that the plan wants a layer's tensors."""
        if self.layers_wanted:
            return
        for layer in model._flatten_layers(include_self=False, recursive=True):
            label = self.names.layer(layer, model.name)
            for kind in ("output", "input"):
                module_kind = output_kind(layer)
                if any(self.run.wants(f"{label}/{kind}s{n}", kind, module_kind, 0) for n in ("", "_0")):
                    self.watch_all_layers()

    def watch_all_layers(self):
        self.layers_wanted = True
        patching.patch_layers(self.layer_patches, self)

    def learn_live(self, variables):
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

    def listening_in_function(self):
        """A host function runs in a thread of TensorFlow's, while the training's waits for it."""
        return self.state is OPEN

    # Steps ------------------------------------------------------------------------------------------------------

    def begin(self, mode):
        """Opens a step, and closes what is open. True if anything is due in it."""
        self.close_step()
        return self.begin_step(mode)

    def close_step(self, skipped=False):
        if self.open_mode is None:
            return
        self.waiting.write()        # not before: what is written can no longer be taken back (cancel_step)
        self.context.flush()
        for listener in self.on_step_end:
            listener()
        self.run.end_step(skipped)
        self.step_is_over()
        self.take_request()

    def trained(self, model):
        """`model` is trained: its final weights are recorded at the end."""
        if not any(reference() is model for reference, _ in self._trained):
            size = sum(_bytes(v) for v in model.weights)
            self._trained.append((weakref.ref(model), list(model.weights) if size <= KEPT_BYTES else None))

    def trained_models(self):
        """Those of them that the script still has."""
        return [model for reference, _ in self._trained if (model := reference()) is not None]

    def put_weights(self, variables, state=None):
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

    def record_value(self, name, tensor, collection):
        array = np.array(self.backend.numpy(tensor) if self.backend.is_tensor(tensor) else tensor)
        entry = self.values.entry(name, "", "", name, -1, (collection,), True)
        if entry is None:
            self.say_not_kept(name, collection)
        else:
            self.soon(lambda: self.values.put([(entry, array)]))

    def record_scalar(self, name, value, collection):
        number, ident = float(value), self.context.id("scalar/" + name, collection)
        self.soon(lambda: self.context.number(ident, number))

    # The end ------------------------------------------------------------------------------------------------------

    def _last_words(self):
        self.loops.close()
        self.close_step()
        if self.begin_end():
            final = {}                  # a model's variables are those of the models inside it, too
            for reference, kept in self._trained:
                model = reference()
                final.update((id(v), v) for v in (model.weights if model is not None else kept or ()))
            self.put_weights(final.values())

    def disarm(self):
        """Takes the patches away; the run, if open, is not touched."""
        self.state = OFF
        self._trained.clear()
        self.loops.forget()
        self.patches.undo()
        self.layer_patches.undo()
        for undo in self.on_disarm:
            undo()
        self.on_disarm.clear()


def _bytes(variable):
    size = 8
    for d in variable.shape:
        size *= d or 0
    return size
