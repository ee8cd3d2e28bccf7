"""Tensors of a train function on TensorFlow, recorded where they are computed instead of as outputs of the step.

A `Tap` belongs to one function of one model. While the function is traced it puts an operation behind each tensor that
is wanted (tensorflow/operation.py); when it runs, they record into the step that `begin` has opened them for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tdbg import _capture

from ...words import error_text
from ..guard import pass_on
from ..values import NUMBERS
from . import collect

if TYPE_CHECKING:
    from .session import Session


class Tap:
    """:param session: with an open run."""

    def __init__(self, session: Session) -> None:
        from ..tensorflow import operation
        self._session, self._operation = session, operation
        self._capture = _capture.GraphCapture(session.run)
        self._taken: set[str] = set()    # keys of what has its operation
        self._batch: list[Any] = []    # tensors of the batch: none of them, no step

    def retrace(self, batch: list[Any]) -> None:
        """The function is traced, maybe once more. `batch`: the tensors that it takes from the data. What does not
        depend on them (a weight, the learning rate) is nevertheless recorded only if there are any: the data may have
        ended."""
        self._taken.clear()
        self._batch = batch

    def begin(self) -> None:
        """What is computed from here on belongs to the open step."""
        self._capture.begin()

    def end(self) -> tuple[int | None, str, list[int]] | None:
        """(fingerprint or None, NumPy's name of the dtype, shape) of the batch; None if there was none."""
        return self._capture.end()

    def __contains__(self, key: str) -> bool:
        """Is it recorded by an operation?"""
        return key in self._taken

    def through(self, key: str, tensor: Any, first: tuple[str, Any] | None = None) -> Any:
        """`tensor` behind its operation, for whoever uses it next. `first`: (key, tensor) to be recorded before it."""
        after = []
        if first is not None:
            passed = self._record(*first)
            after = [] if passed is None else [passed]
        passed = self._record(key, tensor, after)
        return tensor if passed is None else passed

    def rest(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Puts operations behind what has none yet. Returns what cannot be recorded so and must be an output."""
        # a step of several batches: what is due when is known when they have run
        if collect.ITERATION in tensors:
            return tensors
        return {key: tensor for key, tensor in tensors.items()
                if key not in self._taken and self._record(key, self._shaped(key, tensor)) is None}

    def _shaped(self, key: str, tensor: Any) -> Any:
        """With the session's axis of numbers, where it is one."""
        entry, shape = self._session.values.known(key), self._session.number_shape
        if not shape or tensor.shape.rank != 0 or entry is None or entry.kind not in NUMBERS:
            return tensor
        import tensorflow as tf
        return tf.reshape(tensor, shape)

    def _record(self, key: str, tensor: Any, after: Sequence[Any] = ()) -> Any:
        if tensor.dtype not in self._operation.DTYPES or key in (collect.ITERATION, collect.FINITE):
            return None
        if key == collect.BATCH:
            slot = self._capture.batch()
        elif key.startswith("context/"):
            slot = self._capture.number(self._session.context.id(key))
        else:
            name, _, repeated = key.partition(collect.AGAIN)
            entry = self._session.values.known(name)
            slot = self._capture.tensor(
                entry.name,
                entry.short,
                entry.kind,
                entry.module_kind,
                entry.variable,
                entry.unit_axis,
                entry.collections,
                int(repeated) + 1 if repeated else 0,
            )
        try:
            passed = self._operation.record(tensor, slot, [*self._batch, *after])
        # it is an output, then: a trace that fails loses the variables that were made in it
        except Exception as error:
            pass_on(error)
            self._session.say_once(
                f"TensorFlow takes no operation of ours here ({error_text(error)}): tensors "
                "leave the step as its outputs, which takes longer"
            )
            return None
        self._taken.add(key)
        return passed
