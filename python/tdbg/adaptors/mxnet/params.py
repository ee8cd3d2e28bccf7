"""Parameters and gradients of one Trainer, handed over in one batched call per step.

Gradients are what `Parameter.grad()` holds: summed over the batch, because Gluon differentiates the sum of what
`backward` is called on and divides by `Trainer.step`'s batch size inside the update. The divisor is context
(`context/gradient_divisor`), and nothing here multiplies. Over several contexts (devices) they are summed, which is
what the update gets; a weight is the first context's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tdbg import _capture

from ..session import NOT_WANTED
from . import arrays
from .blocks import parameter_kind, parameter_unit_axis
from .copies import Copies

if TYPE_CHECKING:
    from .session import Session

#: Sparse parameters and gradients are put as dense ones, if those are no larger than this.
MAX_DENSE = 64 << 20
# : Weights and gradients up to so many bytes in all are copied, so that the script need not wait for its backward.
# Larger ones are : waited for: a training of that size computes for so long that the wait does not show.
MAX_COPIED = 64 << 20
# : A change of a frozen parameter that its mark (a hash of at most 4 KiB) does not show is seen so many steps late at
# most.
LOOK_EVERY = 64


class TrainerTensors:
    """What is recorded of one Trainer. Lives as long as it (see trainers.py), holds its parameters strongly."""

    def __init__(self, session: Session, serial: int, label: str) -> None:
        self.session, self.serial, self.label = session, serial, label
        self.params: list[Any] = []
        self.ref: Callable[[], Any] = lambda: None    # weak reference to the Trainer
        self.nested = 0                      # calls of step() or update() inside one
        self.skipped = self.ignored = False
        self.accumulates = False             # some gradients add up over backward calls
        self.total_bytes = 0
        self._key: Any = None
        self._frozen: list[tuple[Any, int]] = []
        self._marks: dict[int, int] = {}    # id of a frozen parameter -> hash of what was last recorded
        self._captures = 0

    def refresh(self, trainer: Any) -> None:
        """Defines the tensors again where parameters were added, frozen, cast, moved or only now got their shapes."""
        self.params = trainer._params
        key = [(p._data, p._grad, p._grad_req) for p in self.params]
        if self._key is not None and len(key) == len(self._key) and all(
                a is x and b is y and c == z for (a, b, c), (x, y, z) in zip(key, self._key)):
            return
        self._key = key
        self._define()
        self.session.context.membership(self, trainer)

    def _define(self) -> None:
        names = self.session.names
        self.accumulates = any(p._grad_req == "add" for p in self.params)
        self.fast, self.fast_names, self.ids = [], [], []       # parameters whose memory is handed over
        self.handles, self.grad_handles, self.grad_ids = [], [], []
        self.odd, self._frozen = [], []                         # (parameter, weight's id, gradient's id, name)
        self.total_bytes = 0
        for parameter in self.params:
            if parameter._data is None:
                continue                                        # its shape is not known yet
            name = names.of(parameter)
            weight_id, gradient_id = self._ids(parameter, name)
            weight = parameter._data[0]
            self.total_bytes += arrays.dense_bytes(weight)
            if parameter._grad_req == "null" and parameter_kind(parameter.name) != "buffer":
                self._frozen.append((parameter, weight_id))
            elif weight_id == NOT_WANTED and gradient_id == NOT_WANTED:
                continue
            elif self._is_fast(parameter):
                self.fast.append(parameter)
                self.fast_names.append(name)
                self.handles.append(None if weight_id == NOT_WANTED else weight.handle)
                self.ids.append(weight_id)
                gradient = None if gradient_id == NOT_WANTED else parameter._grad[0]
                self.grad_handles.append(None if gradient is None else gradient.handle)
                self.grad_ids.append(gradient_id)
            else:
                self.odd.append((parameter, weight_id, gradient_id, name))
        self._plan_copies()

    def _plan_copies(self) -> None:
        """What the engine copies when a Trainer is about to step, and is put later. Weights too: where an evaluation is
        on its way, oneDNN lays them out anew behind our back. Not where running averages are wanted: a graph of fixed
        shapes writes them without telling the engine, so they are there when the gradients are."""
        weights = [n for n, h in enumerate(self.handles) if h is not None]
        gradients = [n for n, h in enumerate(self.grad_handles) if h is not None]
        sources = [self.fast[n]._data[0] for n in weights] + [self.fast[n]._grad[0] for n in gradients]
        averages = any(self.fast[n]._grad_req == "null" for n in weights)
        self.copies: Copies | None = None
        if gradients and not averages and not self.odd and sum(map(arrays.dense_bytes, sources)) <= MAX_COPIED:
            self.copies = Copies(sources)
            self.copy_ids = [self.ids[n] for n in weights] + [self.grad_ids[n] for n in gradients]
            self._copied_gradients = [(len(weights) + k, n) for k, n in enumerate(gradients)]

    def _ids(self, parameter: Any, name: str) -> tuple[int, int]:
        """The ids of a parameter's values and of its gradient."""
        run, short = self.session.run, self.session.short_name(parameter, name)
        block = self.session.owner(parameter)
        kind, module_kind = parameter_kind(parameter.name), self.session.kind_of(block)
        array = parameter._data[0]
        dtype, shape = arrays.dtype_name(array), list(array.shape)
        axis = parameter_unit_axis(block, kind, len(shape))
        weight = run.define(name, short, kind, module_kind, dtype, shape, False, axis)
        gradient = NOT_WANTED
        if parameter._grad_req != "null":
            gradient = run.define(
                "gradient/" + name, "gradient/" + short, "gradient", module_kind, dtype, shape, False, axis
            )
        return weight, gradient

    @staticmethod
    def _is_fast(parameter: Any) -> bool:
        own = list(parameter._data) + list(parameter._grad or ())
        return len(parameter._data) == 1 and all(arrays.is_plain(a) and a.dtype == own[0].dtype for a in own)

    # One step -----------------------------------------------------------------------------------------------

    def capture(self, reduced: bool, only_fresh: bool) -> tuple[list[str],
                Callable[[], tuple[list[int], list[int]]] | None]:
        """Weights and gradients as they are now. Returns the names of parameters whose gradient this step did not
        compute, and, where the engine copies, a function for later: it waits and gives (ids, addresses) of what was
        copied.

        `reduced`: the gradients of several contexts are summed already. `only_fresh`: the update will pass over
        parameters that no backward reached.
        """
        absent, fresh, later = [], None, None
        if only_fresh:
            fresh = [p._data[0]._fresh_grad for p in self.fast]
            absent = [n for n, f, i in zip(self.fast_names, fresh, self.grad_ids) if not f and i != NOT_WANTED]
        if self.copies is not None:
            self.copies.take()
            later = self._copied(self.copies, fresh)
        else:
            grad_handles = self.grad_handles if fresh is None else [h if f else None
                                                                    for h, f in zip(self.grad_handles, fresh)]
            # the first parameter's gradient is computed last: when it is there, backward is through
            arrays.wait(grad_handles)
            self.session.run.put_many(self.ids + self.grad_ids, arrays.addresses(self.handles + grad_handles), 0, 0)
            self._capture_odd(reduced, only_fresh, absent)
        self._capture_frozen()
        return absent, later

    def _capture_frozen(self) -> None:
        """Where nothing changed the last row is said again, and no memory is read (Run.put_many's `unchanged`)."""
        self._captures += 1
        ids, handles, sizes = [], [], []
        for parameter, weight_id in self._frozen:
            array = parameter._data[0]
            if weight_id != NOT_WANTED and arrays.is_plain(array):
                ids.append(weight_id)
                handles.append(array.handle)
                sizes.append(arrays.dense_bytes(array))
            elif self._captures == 1:       # nobody can tell whether it changes
                self._put(weight_id, parameter._data[:1], parameter.name)
        places = arrays.addresses(handles)
        marks = list(map(_capture.fingerprint, places, sizes))
        unchanged = [0 if self._marks.get(i) != mark else 1 if (n + self._captures) % LOOK_EVERY
                     else _capture.WORTH_A_LOOK for n, (i, mark) in enumerate(zip(ids, marks))]
        self._marks = dict(zip(ids, marks))
        if ids:
            self.session.run.put_many(ids, places, 0, 0, unchanged)

    def _capture_odd(self, reduced: bool, only_fresh: bool, absent: list[str]) -> None:
        for parameter, weight_id, gradient_id, name in self.odd:
            self._put(weight_id, parameter._data[:1], name)
            if gradient_id == NOT_WANTED or parameter._grad is None:
                continue
            if only_fresh and not parameter._data[0]._fresh_grad:
                absent.append(name)
            else:
                self._put(gradient_id, parameter._grad[:1] if reduced else parameter._grad, "gradient/" + name)

    def _copied(self, copies: Copies, fresh: Any) -> Callable[[], tuple[list[int], list[int]]]:
        ids = self.copy_ids
        stale = [] if fresh is None else [k for k, n in self._copied_gradients if not fresh[n]]

        def later() -> tuple[list[int], list[int]]:
            places = copies.addresses()
            for k in stale:
                places[k] = 0
            return ids, places

        return later

    def capture_gradients(self, point: int) -> None:
        """The gradients alone, at a point of the step (before clipping)."""
        self.session.run.put_many(self.grad_ids, arrays.addresses(self.grad_handles), 0, point)
        for parameter, _, gradient_id, name in self.odd:
            if gradient_id != NOT_WANTED and parameter._grad is not None:
                self._put(gradient_id, parameter._grad, "gradient/" + name, point)

    def capture_weights(self) -> None:
        """The weights alone: the record at the end of a run."""
        self.session.run.put_many(self.ids, arrays.addresses(self.handles), 0, 0)
        for parameter, weight_id, _, name in self.odd:
            self._put(weight_id, parameter._data[:1], name)
        for parameter, weight_id in self._frozen:
            self._put(weight_id, parameter._data[:1], parameter.name)

    def _put(self, ident: int, parts: Any, name: str, point: int = 0) -> None:
        """What has no memory of its own to show: sparse, on a device, or in several parts that add up."""
        if ident == NOT_WANTED:
            return
        size = arrays.dense_bytes(parts[0])
        if parts[0].stype != "default" and size > MAX_DENSE:
            self.session.lost("unsupported", 1, f"{name}: {parts[0].stype}, {size >> 20} MiB as a dense array")
            return
        total = arrays.values(parts[0])
        for part in parts[1:]:
            total = total + arrays.values(part)
        self.session.put_values(ident, total, 0, point)
