"""The functions that Keras runs for a batch, with extra outputs.

Keras compiles a model's train_step (test_step, predict_step) once, into `model.train_function`. Python code in it runs
while it is traced, so there is nothing to hook at a step; what can be had at every step are outputs. A `Watched` takes
the place of the model's function: it runs Keras' own where nothing is due, else one that was made from the same
step by the same Keras code and returns the wanted tensors beside the result, which the model gets as it was.

At most two functions are traced: the whole one and, where raw values are due more seldom than statistics, one with the
tensors of which statistics are kept, or else Keras' own.
"""

import contextlib
import functools
import itertools
import weakref

import numpy as np

from ..guard import say
from ..steps import EVAL, PREDICT, TRAIN
from ..watch import OFF
from . import collect, packing
from .tap import Tap

STEPS = {TRAIN: ("train_step", "train_function", "make_train_function"),
          EVAL: ("test_step", "test_function", "make_test_function"),
          PREDICT: ("predict_step", "predict_function", "make_predict_function")}


def metric(session, name, value, kind="metric"):
    """One entry of Keras' logs, for `Values.put`: [(Entry, array)]; [] for what is no number, or not wanted."""
    array = session.backend.numpy(value) if session.backend.is_tensor(value) else None
    if array is None:
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            return []
    entry = session.values.entry(name, kind)
    return [(entry, array)] if entry is not None and array.size == 1 and array.dtype.kind in "fiub" else []


class Watched:
    """Takes the place of `model.train_function` (test, predict).

    :param bare: Keras' own function
    :param make: Keras' method that makes it
    """

    def __init__(self, session, model, mode, bare, make):
        self._session, self._model, self._mode, self._bare, self._make = session, weakref.ref(model), mode, bare, make
        self._whole = self._light = None    # functions with extra outputs
        self._light_names = None            # what _light returns
        self._light_asked = False           # it is known whether there is to be one
        self._batch_kind = None             # dtype and shape of the last one
        self._failed = False
        self._bare_used = False
        self._ran = set()
        self._packer = packing.Packer()
        # Of a training, what records tensors on their way, as far as they need be no outputs. The step is opened before
        # the function knows whether there is a batch; an evaluation's last one has to stay open behind the data's end.
        self._tap = None
        self._begun = False                 # the step was opened before the function ran
        self._in_step = False               # a step function was entered and not left
        self._tracing = False               # it was entered in this call
        self._putting = self._due = self._skipped = self._saw_loss = False
        self._micro, self._micro_steps, self._losses = 0, 1, []
        self._absent, self._optimizers = None, []
        self._first = True
        self._untrained, self._options = [], {}     # what was found of frozen weights and buffers for this step

    def __call__(self, *arguments):
        session, model = self._session, self._model()
        if session.state is OFF:
            return self._bare(*arguments)
        if model is None or not session.watches(model):
            return self._unseen(*arguments)
        try:
            session.loops.close()
            if not self._opens(model):
                return self._bare(*arguments)
            run = self._choose(model)
        except Exception as error:
            session.guard.failed("the begin of a batch", error)
            run = self._bare_step
        return run(model, *arguments)

    def _unseen(self, *arguments):
        """Keras' own function. While it is traced, optimizers and layers are not those of a loop of the script's own."""
        with self._session.loops.silence():
            return self._bare(*arguments)

    def _opens(self, model):
        """Is there a run, or may this batch begin one? To predict is not yet to train."""
        session = self._session
        if session.run is None and self._mode == PREDICT and not session._only:
            return False
        return session.ensure_open()

    # Which function -----------------------------------------------------------------------------------------------

    def _choose(self, model):
        session = self._session
        if self._failed:
            return self._bare_step
        first = session.next_step(self._mode)
        steps = range(first, first + self._steps(model))
        due = any(session.forecast.due(self._mode, s) for s in steps)
        if self._mode == PREDICT and due:
            return self._extra_step if self._wants_predictions(model) else self._bare_step
        if not due:
            self._bare_used = True
            return self._bare_step
        return self._extra_step

    def _wants_predictions(self, model):
        session = self._session
        session.watch_layers(model)
        return session.layers_wanted or any(
            session.run.wants(name, kind, "", 0, said) for name, kind, said in
            (("inputs", "input", ["model_input"]), ("predictions", "prediction", [])))

    def _steps(self, model):
        """How many batches one call takes."""
        return max(1, int(getattr(model, "steps_per_execution", 1) or 1)) if self._mode != PREDICT else 1

    def _light_is_enough(self):
        session = self._session
        step = session.next_step(self._mode)
        return (self._light_names is not None and session.every_step and not self._bare_used
                and not session.forecast.raw_due(self._mode, step))

    # Keras' own ---------------------------------------------------------------------------------------------------

    def _bare_step(self, model, *arguments):
        session = self._session
        before = self._iterations(model)
        result = self._unseen(*arguments)
        try:
            after = self._iterations(model)
            count = self._steps(model) if before is None or after is None else max(1, after - before)
            for _ in range(min(count, self._steps(model))):
                session.begin(self._mode)
                if self._mode == TRAIN:
                    session.close_step()
        except Exception as error:
            session.guard.failed("the end of a batch", error)
        return result

    def _iterations(self, model):
        """Only where one call takes several batches is it not known how many there were."""
        if self._mode != TRAIN or self._steps(model) == 1:
            return None
        try:
            return int(self._session.backend.numpy(self._session.backend.read(model.optimizer._iterations)))
        except Exception:
            return None

    # With extra outputs -------------------------------------------------------------------------------------------

    def _extra_step(self, model, *arguments):
        if self._steps(model) > 1:
            if self._session.spread():
                return self._bare_step(model, *arguments)
            return self._one_by_one(model, *arguments)
        return self._one(model, *arguments)

    def _one_by_one(self, model, *arguments):
        """Several batches per call: taken singly, because the outputs of a call are those of its last batch."""
        session, steps = self._session, self._steps(model)
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

    def _one(self, model, *arguments):
        session = self._session
        light = self._light_is_enough()
        function = (self._light if light else self._whole)
        if function is None:
            try:
                session.names.learn(model)
                session.watch_layers(model)
                if self._first and self._mode == TRAIN:
                    self._before_first(model, arguments)
                self._tap = Tap(session) if self._mode == TRAIN and session.backend.takes_operations(model) else None
                function = self._build(model, self._light_names if light else None, arguments[0])
            except Exception as error:
                self._gives_up(error)
                return self._bare_step(model, *arguments)
            if light:
                self._light = function
            else:
                self._whole = function
        if self._mode == TRAIN:
            session.guarded("frozen weights", self._look, model, arguments)
        self._in_step, self._tracing, replay = False, False, _replayable(session.backend, arguments)
        if self._tap is not None:
            session.guarded("the begin of a batch", self._begin_early)
        try:
            with session.loops.silence():       # replicas are threads of their own
                output = function(*replay())
        except BaseException as error:
            session.guarded("the end of the data", self._take_back)
            if not isinstance(error, Exception) or _exhausted(error) or not self._may_run_again(model, error):
                raise
            self._gives_up(error)
            return self._bare_step(model, *replay())
        self._ran.add(light)
        result, logs, extras = self._split(output)
        try:
            batch = None if self._tap is None else self._tap.end()
            self._put(model, extras, logs, batch)
            self._finish_step()
        except Exception as error:
            session.guard.failed("the end of a batch", error)
        return result

    def _begin_early(self):
        """Opens the step for what is recorded while the function runs."""
        self._due, self._begun, self._putting = self._session.begin(self._mode), True, False
        if self._due:
            self._tap.begin()

    def _take_back(self):
        """The function had no batch, or failed: what `_begin_early` did is undone. What was recorded before a failure is
        kept, as a step: it may be what led to it."""
        if self._begun:
            self._begun = False
            self._tap.end()
            self._session.cancel_step()

    def _may_run_again(self, model, error):
        """Did it fail while it was traced, or while XLA compiled it? Then nothing has happened yet."""
        if getattr(model, "run_eagerly", False) or not self._session.backend.extras or self._session.spread():
            return False
        backend = self._session.backend
        if backend.name == "jax" and not model.jit_compile:
            return False
        return self._in_step or self._tracing and backend.is_of_tracing(error) or (bool(model.jit_compile) and not self._ran)

    def _split(self, output):
        """(what Keras expects, logs, extra tensors)"""
        if self._session.backend.name == "jax":
            (logs, extras), state = output
            return (logs, state), logs, extras
        if not self._session.backend.extras:
            return output, output, {}
        logs, extras = output
        return logs, logs, self._packer.unpack(extras, self._session.backend)

    def _gives_up(self, error):
        """A step that cannot be traced with extra outputs. If it is the script's own mistake, it is raised again."""
        self._failed = True
        self._session.lost("unsupported", 1, f"a step function: {type(error).__name__}: {error}")
        say(f"this step function takes no extra outputs ({type(error).__name__}: {str(error)[:200]}): "
            "its gradients and outputs are not captured")

    # Building -----------------------------------------------------------------------------------------------------

    def _build(self, model, only, state):
        """A function that Keras makes from the model's step and that returns the collected tensors, too.

        :param state: what the function is given first; on JAX the values of the model's variables
        """
        session, mode = self._session, self._mode
        step_name, attribute, _ = STEPS[mode]
        backend = session.backend
        if not backend.extras:
            return self._immediate(model, only)
        if session.spread():
            return self._together(model)
        original = getattr(model, step_name)

        @functools.wraps(original)
        def step(*arguments):
            self._in_step = self._tracing = True
            tap = self._tap if backend.place() is not None else None      # functions may be run eagerly from now on
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
            self._traced(collector)
            extras = collector.outputs()
            if tap is not None:
                tap.rest(self._logged(logs, extras))        # what is left of them is in the result anyway
                extras = tap.rest(extras)
            self._in_step = False
            if backend.name == "tensorflow" and collector.replicas == 1 and backend.place() is not None:
                extras = self._packer.pack(extras, backend)
            return ((logs, extras), *out[1:]) if backend.name == "jax" else (logs, extras)

        instead = {step_name: step}
        if backend.name == "jax":
            # Asked for under a keras.distribution: Keras looks at the variables, which are empty while `fit` runs.
            shardings = backend.shardings(mode, state)
            instead["_get_state_sharding_spec"] = lambda: shardings

        @contextlib.contextmanager
        def replaced():
            for name, function in instead.items():
                object.__setattr__(model, name, function)       # past Keras' tracking of attributes
            try:
                yield
            finally:
                for name in instead:
                    object.__delattr__(model, name)

        present = getattr(model, attribute)
        try:
            with replaced():
                self._make(model, True)
            made = getattr(model, attribute)
        finally:
            setattr(model, attribute, present)
        if mode != PREDICT:
            return made

        def predict(*arguments):        # looks its step up when it is traced
            with replaced():
                return made(*arguments)
        return predict

    def _logged(self, logs, extras):
        """Keras' logs as tensors of the graph, for a tap: as `_put` would take them from the result."""
        found, backend = {}, self._session.backend
        for name, value in logs.items() if isinstance(logs, dict) else ():
            kind = "loss" if name == "loss" else "metric"
            if (name not in extras and backend.is_tensor(value) and value.shape.num_elements() == 1
                    and self._session.values.entry(name, kind) is not None):
                found[name] = value
        return found

    def _immediate(self, model, only):
        """Nothing is traced (torch): what a step is asked for is recorded before the update, while it is running."""
        session, mode, bare = self._session, self._mode, self._bare
        if model.jit_compile:
            session.say_once("torch.compile: of a step that it has compiled weights and metrics are captured, gradients and outputs are not")

        def compiled(*arguments):
            if mode == TRAIN:
                session.guarded("the begin of a batch", self._begin_unseen, model)
            return self._unseen(*arguments)

        def step(*arguments):
            collector = collect.Collector(session, session.backend, model, mode, only)
            collector.before_update = lambda: self._put(model, collector.take())
            with collector.active():
                self._saw_batch(collector, arguments[-1][0])
                result = bare(*arguments)
                if mode == PREDICT:
                    session.guarded("predictions", collector.predictions, result)
            self._traced(collector)
            session.guarded("the end of a batch", lambda: self._put(model, collector.take()))
            return result

        return compiled if model.jit_compile else step

    def _begin_unseen(self, model, trainable=None):
        """Opens the step of a function that takes no extra outputs, and puts the weights that it is about to use.

        :param trainable: their values, where the variables have none
        """
        self._put(model, {})
        if self._due:
            values = dict(zip(map(id, model.trainable_variables), trainable or ()))
            self._session.put_weights(model.trainable_weights, values)

    def _together(self, model):
        """Several processes run one program: another one in any of them, with more outputs, would have all wait for ever.
        So it is Keras' own that runs, and what can be seen is what it takes and returns: weights and logs."""
        session, mode = self._session, self._mode
        session.say_once("several processes run each step together: weights and metrics are captured, gradients and outputs are not")

        def together(state, data):
            if mode == TRAIN:
                session.guarded("the begin of a batch", self._begin_unseen, model, state[0])
            logs, state = self._unseen(state, data)
            return (logs, {}), state
        return together

    def _saw_batch(self, collector, data):
        try:
            from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight
            x, y, _ = unpack_x_y_sample_weight(data)
            collector.batch(x, y)
        except Exception as error:
            self._session.guard.failed("a batch", error)

    def _traced(self, collector):
        self._absent, self._optimizers = collector.absent, collector.optimizers
        if collector.apart:
            names = sorted(set(collector.apart))
            self._session.say_once(f"{collector.replicas} replicas: tensors without the batch's axis have no whole to be recorded: "
                                   f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")
        if collector.unseen:
            names = sorted(collector.unseen)
            self._session.say_once(f"layers called inside a loop or a branch of a graph have no outputs to be recorded: "
                                   f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")

    # Recording ----------------------------------------------------------------------------------------------------

    def _put(self, model, extras, logs=None, batch=None):
        """Opens the step (of an update whose gradients are accumulated: at its first batch) and puts the tensors, and with
        those of its last batch Keras' logs. `batch`: see Tap.end."""
        session, mode, values = self._session, self._mode, self._session.values
        numpy = session.backend.numpy
        if self._putting:                       # more of the same step
            due = self._due
        else:
            self._micro_steps = _accumulated(self._optimizers) if mode == TRAIN else 1
            iteration = extras.pop(collect.ITERATION, None)
            self._micro = int(numpy(iteration)) % self._micro_steps if iteration is not None and self._micro_steps > 1 else 0
            if not self._begun and (self._micro == 0 or session.open_mode != TRAIN):
                self._due = session.begin(mode)
            due, self._putting, self._begun, self._skipped = self._due, True, False, False
        finite = extras.pop(collect.FINITE, None)
        if finite is not None and not bool(numpy(finite)):
            self._skipped = True
        self._saw_loss = self._saw_loss or "loss" in extras or self._tap is not None and "loss" in self._tap
        if not due:
            return
        if self._first and mode == TRAIN:
            self._first = False
            self._first_step(model)
        if self._untrained and not self._micro:
            session.untrained.put(self._untrained)
        self._untrained = []
        if batch is not None:
            self._batch(*batch)
        last = self._micro + 1 == self._micro_steps
        found = {}                              # sub-key -> [(entry, array)]
        for key, tensor in extras.items():
            if key.startswith("context/"):
                self._context(key, numpy(tensor))
                continue
            name, _, repeated = key.partition(collect.AGAIN)
            entry = values.known(name)
            sub = int(repeated) + 1 if repeated else 0
            if self._micro_steps > 1:
                if entry.kind == "gradient" and not last or entry.kind in ("weight", "bias", "optimizer") and self._micro:
                    continue
                if entry.kind == "loss":
                    sub = self._micro + 1
                    self._losses.append(float(numpy(tensor)))
                elif entry.kind not in ("gradient", "weight", "bias", "optimizer"):
                    sub = self._micro + 1 if self._micro else 0
            found.setdefault(sub, []).append((entry, numpy(tensor)))
        if last and mode != PREDICT and isinstance(logs, dict):
            for name, value in logs.items():
                if (name != "loss" or not self._saw_loss) and not (self._tap is not None and name in self._tap):
                    found.setdefault(0, []).extend(metric(session, name, value, "loss" if name == "loss" else "metric"))
        for sub, arrays in found.items():
            values.put(arrays, sub)
        self._choose_light(extras)

    def _finish_step(self):
        session = self._session
        if not self._putting:
            if not self._begun:
                session.begin(self._mode)
            self._due = False
        self._putting = self._begun = False
        last = self._micro + 1 == self._micro_steps
        if self._due and last:
            if self._losses:
                session.values.put([(session.values.known("loss"), np.float32(np.mean(self._losses)).reshape(()))])
                session.context.add("context/micro_steps", self._micro_steps)
            if self._mode == TRAIN and self._absent is not None:
                session.context.add("context/gradients_absent", len(self._absent))
                if self._absent:
                    session.context.topic("gradients_absent", {"names": self._absent})
            if self._skipped:
                session.context.add("context/skipped", 1)
        if last:
            self._losses.clear()
            if self._mode == TRAIN:     # an evaluation's last step takes the metrics of the whole, too
                session.close_step(self._skipped)

    def _context(self, key, array):
        if key != collect.BATCH:
            self._session.context.add(key, array)
            return
        mark = None
        if array.flags.c_contiguous and array.size:
            from tdbg import _capture
            mark = _capture.fingerprint(array.__array_interface__["data"][0], array.nbytes)
        self._batch(mark, array.dtype.name, list(array.shape))

    def _batch(self, mark, dtype, shape):
        values = self._session.values
        self._session.context.add("context/batch_size", shape[0] if shape else 1)
        if mark is not None:
            self._session.context.add("context/batch_fingerprint", mark)
        kind = dtype, shape
        if kind != self._batch_kind:
            self._batch_kind = kind
            self._session.context.topic("batch", {"dtype": dtype, "shape": shape})

    def _before_first(self, model, arguments):
        """Options as they are before the first step."""
        session, jax = self._session, self._session.backend.name == "jax"
        optimizer = getattr(model, "optimizer", None)
        state = arguments[0] if jax else None
        if optimizer is not None:
            if jax:
                from keras.src import backend
                with backend.StatelessScope(state_mapping=list(zip(optimizer.variables, state[2]))):
                    self._options[optimizer.name] = _options(optimizer)
            else:
                self._options[optimizer.name] = _options(optimizer)

    def _first_step(self, model):
        """What does not change: which weights are frozen, the optimizers' options."""
        session = self._session
        session.trained(model)
        session.context.topic("parameters", {"frozen": [entry.name for entry, _, _ in self._untrained], "in_no_optimizer": []})
        for optimizer in self._optimizers:
            if optimizer is not getattr(model, "optimizer", None) and session.backend.name != "jax":
                self._options[optimizer.name] = _options(optimizer)
        for name, options in self._options.items():
            session.context.topic(f"optimizer/{name}", options)

    def _look(self, model, arguments):
        raw_due = self._session.forecast.raw_due(self._mode, self._session.next_step(self._mode))
        self._untrained = self._session.untrained.look(model, arguments[0], raw_due)

    def _choose_light(self, extras):
        """In a step where statistics alone are due: are there tensors that they are not kept of?"""
        session = self._session
        if self._light_asked or self._tap is not None or not session.every_step or session.forecast.raw_due(
                self._mode, session.run.mode_step(self._mode)):
            return
        self._light_asked = True
        due = {key for key in extras if key.startswith("context/")
               or session.values.due([key.partition(collect.AGAIN)[0]])}
        if len(due) < len(extras):
            self._light_names = due


def _options(optimizer):
    """Class and configuration; the learning rate is a series of its own."""
    options = {k: v for k, v in optimizer.get_config().items() if k != "learning_rate"}
    return {"class": type(optimizer).__name__, "options": options}


def _accumulated(optimizers):
    """How many batches make one update."""
    for optimizer in optimizers:
        steps = getattr(getattr(optimizer, "inner_optimizer", optimizer), "gradient_accumulation_steps", None)
        if steps:
            return int(steps)
    return 1


def _exhausted(error):
    """The data has ended: StopIteration, or what TensorFlow says instead."""
    return isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"


def _replayable(backend, arguments):
    """A function that gives the arguments of one batch, more than once. TensorFlow's iterators are read in the graph:
    a step that could not be traced has taken nothing."""
    iterator = arguments[-1]
    if not hasattr(iterator, "__next__") or hasattr(iterator, "element_spec"):
        return lambda: arguments
    taken = list(itertools.islice(iterator, 1))
    return lambda: (*arguments[:-1], iter(taken))
