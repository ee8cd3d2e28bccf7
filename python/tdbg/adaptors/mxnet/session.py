"""One training under watch: wires the pieces of the MXNet adaptor to a run, which the first training event opens: a
forward, backward or step of what a Trainer trains.

What is replaced: Block.__call__, Trainer.__init__, step and update, NDArray.backward, autograd.backward,
gluon.utils.clip_global_norm; and where a script waits for MXNet: NDArray.asnumpy and wait_to_read, waitall.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import mxnet
import numpy as np
from mxnet import autograd
from mxnet.gluon import Block, Trainer
from mxnet.gluon import utils as gluon_utils
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ..guard import say
from ..session import LoopSession
from ..steps import EVAL, PREDICT, TRAIN, Clock
from ..structure import MAX_DEPTH
from ..watch import ARMED, OFF, OPEN
from . import arrays, ranks
from .blocks import BlockTensors, Names, block_kind, is_loss, tree
from .context import Context
from .graphs import Graphs
from .losses import Losses
from .trainers import Trainers

MAX_HELD = 4096


class Session(LoopSession):
    """:param open_run, options: a Watch's
    :param explicit: only Trainers of the models handed over by `add_model` are watched.
    Threads: events of other threads than the one that opened the run are ignored.
    """

    clock: Clock
    context: Context
    accepts = Block, "a gluon.Block"

    def __init__(self, open_run: Callable[..., Any], options: dict[str, Any] | None = None,
                 explicit: bool = False) -> None:
        super().__init__("mxnet", open_run, options, Context)
        self.explicit = explicit
        self.names = Names()
        self.blocks = BlockTensors(self)
        self.graphs = Graphs(self)
        self.losses = Losses(self)
        self.trainers = Trainers(self)
        self.clock = Clock(self._begin, self._end)
        self.by_optimizer = True       # False where the plan says step_by: forward
        self.clip_wanted = False
        self.evaluating = False        # the last root forward was an evaluation's, and its step is not closed
        self._beside = False           # it ran between two Trainers of one step, perhaps as a part of it
        self._held: list[Any] = []    # evaluations that ran while a TRAIN step was open: (mode, losses)
        self._mode_said: int | None = None    # `mode_wanted` as it was when the open evaluation began
        self._calls = threading.local()              # .stack: blocks that are being called with arrays, outermost first
        self._models: list[Any] = []    # weak references: handed over by the script
        # block -> (generation, does a Trainer we follow train some of it)
        self._roots: weakref.WeakKeyDictionary[Any, tuple[int, bool]] = weakref.WeakKeyDictionary()
        self._owners: dict[int, Any] = {}    # id(parameter) -> weak reference to its block
        self._late: BaseException | None = None  # an error of the training's own, seen where it could not be raised
        self._later: list[Any] = []    # (ready, put, arguments) of the last step, which the engine copies
        self._unsealed: bool | None = None    # of that step, closed by now: was it skipped?

    # Replaced functions -------------------------------------------------------------------------------------

    def install(self) -> None:
        replace = self.patches.replace
        replace([Block], "__call__", self._watch_call)
        replace([Trainer], "__init__", self._watch_init)
        replace([Trainer], "step", lambda original: self._watch_step(original, reduced=False))
        replace([Trainer], "update", lambda original: self._watch_step(original, reduced=True))
        for owner, name in (
            (NDArray, "asnumpy"),
            (NDArray, "wait_to_read"),
            (mxnet.nd, "waitall"),
            (mxnet.npx, "waitall"),
        ):
            replace([owner], name, self._watch_wait)
        replace([NDArray], "backward", self._watch_backward)
        replace([autograd], "backward", self._watch_backward)
        replace([gluon_utils], "clip_global_norm", self._watch_clipping)

    def guarded(self, site: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Our own work inside the training's: what goes wrong in it stays here, what goes wrong in the training's
        own computation and shows while we wait for it comes out."""
        try:
            return function(*arguments)
        except arrays.TrainingError as error:
            raise error.error from None
        except BaseException as error:
            self.guard.failed(site, error)
            return None

    def failed_inside(self, site: str, error: BaseException) -> None:
        """As `guarded`, where nothing can be raised: inside a call from MXNet."""
        if isinstance(error, arrays.TrainingError):
            self._late = error.error
        else:
            try:
                self.guard.failed(site, error)
            except BaseException as own:
                self._late = own

    def _watch_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def __call__(block: Block, *args: Any, **kwargs: Any) -> Any:
            if not session.listening or session.elsewhere():
                return original(block, *args, **kwargs)
            calls = session._calls
            stack = getattr(calls, "stack", None)
            if stack is None:
                stack = calls.stack = []
            if _symbolic(args):
                out = original(block, *args, **kwargs)
                if stack:
                    session.guarded("a graph", session.graphs.traced, stack[-1], block, args, out)
                return out
            stack.append(block)
            graph = None
            try:
                graph = session.guarded(f"forward of {block.name}", session._entered, block, args, len(stack) == 1)
                out = original(block, *args, **kwargs)
            finally:
                stack.pop()
                if graph is not None:
                    session.guarded("a graph", session.graphs.ended, block, graph)
            session.guarded(f"forward of {block.name}", session._returned, block, args, out, stack)
            return out

        return __call__

    def _watch_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def __init__(trainer: Any, *args: Any, **kwargs: Any) -> None:
            original(trainer, *args, **kwargs)
            if session.listening:
                session.guarded("a new Trainer", session.trainers.made, trainer)

        return __init__

    def _watch_step(self, original: Callable[..., Any], reduced: bool) -> Callable[..., Any]:
        session = self

        def step(trainer: Any, batch_size: Any, ignore_stale_grad: bool = False) -> Any:
            if not session.listening or session.elsewhere():
                return original(trainer, batch_size, ignore_stale_grad)
            updates = trainer._optimizer.num_update
            try:
                session.guarded(
                    "a Trainer's step", session.trainers.pre, trainer, batch_size, ignore_stale_grad, reduced
                )
                result = original(trainer, batch_size, ignore_stale_grad)
            except BaseException:
                session.trainers.left(trainer)
                raise
            session.guarded("after a Trainer's step", session.trainers.post, trainer, updates)
            return result

        return step

    def _watch_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def backward(heads: Any, *args: Any, **kwargs: Any) -> Any:
            if session.listening and not session.elsewhere():
                session.guarded("backward", session._before_backward, heads)
            return original(heads, *args, **kwargs)

        return backward

    def _watch_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def wait(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if session._later and session.state is OPEN and not session.elsewhere():
                session.guarded("the end of a step", session.settle_if_there)
            return result

        return wait

    def _watch_clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def clip_global_norm(arrays_: Any, max_norm: Any, check_isfinite: bool = True) -> Any:
            watched = session.state is OPEN and not session.elsewhere()
            if watched:
                session.guarded("gradients before clipping", session.trainers.before_clipping)
            norm = original(arrays_, max_norm, check_isfinite)
            if watched:
                session.context.norm = norm
            return norm

        return clip_global_norm

    # Opening ------------------------------------------------------------------------------------------------

    def adaptor(self) -> str:
        return f"mxnet {mxnet.__version__}"

    def rank(self) -> tuple[int, int]:
        return ranks.of_process()

    def _opened(self) -> None:
        super()._opened()
        self.by_optimizer = self.plan.get("step_by", "optimizer") != "forward"
        self.clip_wanted = self.keeps("gradients_before_clip")
        self.context.started()

    # Models -------------------------------------------------------------------------------------------------

    def watch(self, models: list[Any]) -> None:
        """What the script handed over: where there is any, Trainers of nothing else are watched."""
        self.explicit |= bool(models)
        for model in models:
            self.add_model(model)

    def add_model(self, block: Block) -> None:
        self._models.append(weakref.ref(block))
        for entry in list(self.trainers.entries.values()):
            trainer = entry.ref()
            if trainer is not None:
                entry.ignored = not self.follows(trainer)
        self.trainers.generation += 1

    def follows(self, trainer: Any) -> bool:
        """Does it train (a part of) a model that we watch?"""
        if not self.explicit:
            return True
        own = {id(p) for ref in self._models if (m := ref()) is not None for p in m.collect_params().values()}
        return any(id(p) in own for p in trainer._params)

    def known_parameters(self) -> list[Any]:
        """Of every model that was called, and handed over."""
        models = [m for ref in self._models if (m := ref()) is not None]
        models += [] if self.explicit else [b for b, (_, ours) in list(self._roots.items()) if ours]
        return list({id(p): p for m in models for p in m.collect_params().values()}.values())

    def _is_ours(self, block: Block) -> bool:
        """Is anything of it trained? A data set's transforms are blocks, too."""
        known = self._roots.get(block)
        generation = self.trainers.generation
        if known is not None and known[0] == generation:
            return known[1]
        parameters = [] if is_loss(block) else list(block.collect_params().values())
        for trainer in {id(p._trainer): p._trainer for p in parameters if p._trainer is not None}.values():
            self.trainers.made(trainer)          # one that was there before we were
        trained = self.trainers.trained()
        ours = any(id(p) in trained for p in parameters)
        self._roots[block] = (self.trainers.generation, ours)
        if ours:
            for b in tree(block):
                for p in b._reg_params.values() if hasattr(b, "_reg_params") else ():
                    self._owners.setdefault(id(p), weakref.ref(b))
        return ours

    def owner(self, parameter: Any) -> Any:
        ref = self._owners.get(id(parameter))
        return None if ref is None else ref()

    def kind_of(self, block: Block) -> str:
        return "" if block is None else block_kind(block)

    def short_name(self, parameter: Any, name: str) -> str:
        """Without the model's own prefix, which Gluon counts up with every model made."""
        for root, (_, ours) in list(self._roots.items()):
            if ours and root.prefix and name.startswith(root.prefix) and self.owner(parameter) is not root:
                return name[len(root.prefix):]
        return name

    # Events: forward and backward ---------------------------------------------------------------------------

    def _entered(self, block: Block, args: Any, outermost: bool) -> Any:
        if outermost:
            self._model_begins(block, args)
        if not self.blocks.active and self.state is not ARMED:
            return None
        self.graphs.entered(block)
        if self.blocks.armed and getattr(block, "_active", False):
            return self.graphs.begins(block, args)
        return None

    def _model_begins(self, block: Block, args: Any) -> None:
        if not self._is_ours(block) or not self.ensure_open():
            return
        self.blocks.install(block)
        self.close_evaluation()
        if autograd.is_recording():
            self._trains(args)
        elif not autograd.is_training():
            self._evaluates(args)
        else:
            self.blocks.armed = False            # in training mode without gradients: averages are being updated

    def _trains(self, args: Any) -> None:
        if not self.idle[TRAIN]:
            self.context.saw_batch(args)
        if not self.by_optimizer:
            self.close_forward()
            self.blocks.armed = self.clock.forward(TRAIN) and self.blocks.active
            return
        self.clock.training_goes_on()
        if self.blocks.active:
            self.blocks.armed = self.clock.train()

    def _evaluates(self, args: Any) -> None:
        if not self.by_optimizer:
            self.close_forward()
        self.evaluating, self._mode_said = True, self.mode_wanted
        self._beside = self.by_optimizer and self.clock.waits()
        if self._beside:         # perhaps a target network: the step goes on until a Trainer steps or does not
            self.blocks.armed = False
            return
        mode = PREDICT if self._mode_said == PREDICT else EVAL
        if not self.idle[mode]:
            self.context.saw_batch(args)
        if self.blocks.active:
            self.blocks.armed = self.clock.evaluate(mode)

    def _returned(self, block: Block, args: Any, out: Any, stack: Any) -> None:
        self.raise_late()
        if is_loss(block):
            self._loss(block, args, out, stack)
        elif self.blocks.armed and (stack or self._is_ours(block)):
            self.blocks.ran(block, args, out)

    def _loss(self, block: Block, args: Any, out: Any, stack: Any) -> None:
        training = autograd.is_recording()
        if not (training or self.evaluating) or (stack and is_loss(stack[-1])) or not self.trainers.entries:
            return
        mode = TRAIN if training else PREDICT if self._mode_said == PREDICT else EVAL
        if not self.ensure_open() or self.idle[mode]:
            return
        self.losses.returned(self.names.of(block), out, training)
        self.blocks.install(block)
        if self.blocks.active and (training or not self._beside):
            self.blocks.armed = self.clock.mode is not None and self.clock.due
            if self.blocks.armed:
                self.blocks.ran(block, args, out)

    def _before_backward(self, heads: Any) -> None:
        if not self.trainers.entries or not self.ensure_open():
            return
        self.close_evaluation()
        self.losses.backward(heads, not self.idle[TRAIN])

    def sub(self) -> int:
        """Sub-key of what happens now: 0 for the first micro-step of a step, n + 1 for later ones."""
        if self.clock.evaluates or not self.by_optimizer or not self.losses.passes or not self.trainers.accumulate:
            return 0
        return self.losses.passes + 1

    def place(self) -> tuple[int, int | None, int]:
        return self.steps_closed, self.clock.mode, self.sub()

    def close_evaluation(self) -> None:
        if not self.evaluating:
            return
        self.evaluating = False
        mode = PREDICT if self._mode_said == PREDICT else EVAL
        if self._beside and self.clock.mode == TRAIN:
            pending, self.losses.eval = self.losses.eval, []
            self._held.append((mode, pending))
            if len(self._held) >= MAX_HELD:      # no loop evaluates so often within one step: the step is over
                self.clock.close()
            return
        self._put_evaluation(mode)

    def _put_evaluation(self, mode: int) -> None:
        if self.clock.due if self.clock.evaluates else self.clock.evaluate(mode):
            self.losses.flush_eval()
            self.context.add_batch()
            self.context.flush()
        self.losses.eval.clear()
        self.context.discard()
        self.clock.close()

    def evaluations_between(self) -> None:
        """A Trainer is about to step, in the step that is open: only what had a loss was an evaluation, and comes after
        it."""
        self._held = [held for held in self._held if held[1]]

    def close_forward(self) -> None:
        """Where a step is a forward: ends it, with what no Trainer has taken yet."""
        if self.clock.mode == TRAIN and self.clock.due and self.losses.train:
            ids, found, alive = self.losses.put_train(*self.losses.take_train(False))
            if ids:
                self.run.put_many(ids, found, 0, 0)      # `alive` holds their memory
            del alive
        self.clock.close()

    # Steps --------------------------------------------------------------------------------------------------

    def _begin(self, mode: int) -> bool:
        try:
            self.settle()
        except arrays.TrainingError as error:        # nothing may come out of a clock
            self._late = error.error
        due = self.begin_step(mode)
        self.waiting.write()
        return due

    def _end(self, mode: int, skipped: bool) -> None:
        self.step_is_over()
        self.blocks.armed = False
        if mode == TRAIN:
            self.losses.numbering.new_step()
            self.losses.passes = 0
        if self._later:
            self._unsealed = skipped
        else:
            self._seal(skipped)
        if mode == TRAIN and self._held:
            held, self._held = self._held, []
            for kind, self.losses.eval in held:
                self._put_evaluation(kind)

    def _leave(self) -> None:
        """Of a forward after the last Trainer's step: it is no step, whether outputs are recorded or not."""
        self._later.clear()
        self.leave_step()
        self.blocks.armed = False
        held, self._held = self._held, []
        for kind, self.losses.eval in held:
            self._put_evaluation(kind)

    def later(self, ready: Callable[[], bool], put: Callable[..., Any], *arguments: Any) -> None:
        """`put` waits for the engine: it runs when `ready` says it would not have to, at the latest before the next
        step begins. The step stays open in the run until then."""
        self._later.append((ready, put, arguments))

    def settle(self) -> None:
        """Puts what is left of the last step. Waits for it."""
        later, self._later = self._later, []
        skipped, self._unsealed = self._unsealed, None
        try:
            for _, put, arguments in later:
                put(*arguments)
        finally:
            if skipped is not None:
                self._seal(skipped)

    def settle_if_there(self) -> None:
        if self._later and all(ready() for ready, _, _ in self._later):
            self.settle()

    def raise_late(self) -> None:
        """What went wrong in the training, and could not be raised where it was seen."""
        if self._late is not None:
            late, self._late = self._late, None
            raise arrays.TrainingError(late)

    def _seal(self, skipped: bool) -> None:
        self.run.end_step(skipped)
        self.take_request()

    def put_values(self, ident: int, array: Any, sub: int = 0, point: int = 0) -> None:
        """A NumPy array, in the open step."""
        if array.size:
            self.run.put_array(ident, array, sub, point)

    # The script's own values --------------------------------------------------------------------------------

    def record_value(self, name: str, tensor: Any, collection: str) -> None:
        array = arrays.values(tensor) if isinstance(tensor, NDArray) else np.array(tensor, order="C")
        ident = self.own_id(name, collection, (name, array.dtype.str, array.ndim), lambda: self.run.define(
            name, name, "", "", array.dtype.name, list(array.shape), True, -1, [], [collection]))
        if ident is not None:
            self.soon(lambda: self.put_values(ident, array))

    def record_scalar(self, name: str, value: Any, collection: str) -> None:
        number = float(value.asscalar() if isinstance(value, NDArray) else value)
        ident = self.context.id("scalar/" + name, collection)
        self.soon(lambda: self.run.put_scalars([ident], [number], 0))

    # The end ------------------------------------------------------------------------------------------------

    def _last_words(self) -> None:
        try:
            self._close_all()
        except arrays.TrainingError as error:
            say(f"the last steps could not be read: {error}")

    def _close_all(self) -> None:
        self.close_evaluation()
        if self.by_optimizer:
            self.clock.over(self._leave)
        else:
            self.close_forward()
        self.settle()
        if self.begin_end():
            for entry in self.trainers.with_tensors():
                entry.capture_weights()

    def disarm(self) -> None:
        """Takes the replacements away; the run, if open, is not touched."""
        self.state = OFF
        self.patches.undo()


def _symbolic(args: Any) -> bool:
    first = args
    for _ in range(MAX_DEPTH):      # a list may be its own first element
        if not isinstance(first, (list, tuple)) or not first:
            break
        first = first[0]
    return isinstance(first, Symbol)
