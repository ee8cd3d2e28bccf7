"""smdebug's hook for MXNet Gluon: a step is a forward of a registered block.

    forward of a root begins   parameters and gradients as the step before left them, which then ends; a step begins
    forward of a block ends    its inputs, then its outputs

So parameters are those after a step's update, and gradients those of its last backward, as smdebug's hook for Gluon has
them (its hook for PyTorch, and tdbg's adaptors, record weights before the update). Names are Gluon's. Blocks inside a
hybridized one are not called, and not seen: `tdbg run` without a hook sees them.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import mxnet
from mxnet.gluon import Block
from mxnet.ndarray import NDArray

from ..adaptors.mxnet import arrays, ranks
from ..adaptors.mxnet.attach import stand_down
from ..adaptors.mxnet.blocks import (
    PROBES,
    block_kind,
    is_loss,
    output_unit_axis,
    parameter_kind,
    parameter_unit_axis,
    tree,
)
from ..adaptors.session import NOT_WANTED
from .base import BaseHook
from .collection import Collection
from .watcher import Watcher

logger = logging.getLogger("smdebug")


class _RootPre(Watcher):
    def __call__(self, block: Any, inputs: Any) -> None:
        if next(arrays.flat(inputs), None) is not None:         # symbols: a graph is being made
            self.hook._root_begins(block, inputs)


class _BlockPost(Watcher):
    def __call__(self, block: Any, inputs: Any, outputs: Any) -> None:
        if self.hook._due and next(arrays.flat(inputs), None) is not None:
            self.hook._watched("output of " + block.name, self.hook.forward_hook, block, inputs, outputs)


class MxNetCollection(Collection):
    def add_block_tensors(self, block: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Inputs and outputs of a block, which must be (part of) a registered one."""
        if inputs:
            self.include(f"{block.name}_input_")
        if outputs:
            self.include(f"{block.name}_output_")


class Hook(BaseHook):
    """Saves what a Gluon training does. Its arguments are BaseHook's.

    Threads: forwards of other threads than the first one's are passed over.
    """

    framework = "mxnet"
    _collection_class = MxNetCollection
    _training_error: BaseException | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()    # blocks with a forward hook
        self._ran: list[weakref.ref[Any]] = []    # weak references to roots that were called in this step
        self._numbers: dict[tuple[str, str], int] = {}    # (name, "input") -> how many in this step
        self._thread: int | None = None
        self._watching = False
        stand_down("the script has a hook of its own")

    # Registering ----------------------------------------------------------------------------------------------

    def register_block(self, block: Any) -> None:
        """Watches a model: parameters, gradients, and what its blocks take and return, as far as it is saved; or a
        loss."""
        if not isinstance(block, Block):
            logger.error("register_block(%s): a gluon.Block is accepted; nothing is registered", type(block).__name__)
            return
        if is_loss(block):
            self._watch_block(block)
        elif block in self._roots:
            logger.warning("register_block: %s is registered already", block.name)
        else:
            self._roots.add(block)
            block.register_forward_pre_hook(_RootPre(self))
            if self._watching:
                self._watch_root(block)

    register_hook = register_block

    def _watch_root(self, root: Any) -> None:
        for block in tree(root):
            if self._any_block or self._wants(block):
                self._watch_block(block)

    def _wants(self, block: Any) -> bool:
        kind, run = block_kind(block), self._run
        return any(
            run.wants(f"{block.name}_{what}_{k}", what, kind, 0) for what in ("input", "output") for k in range(PROBES)
        )

    def _watch_block(self, block: Any) -> None:
        if block not in self._known:
            self._known.add(block)
            block.register_forward_hook(_BlockPost(self))

    # Events ---------------------------------------------------------------------------------------------------

    def _root_begins(self, block: Any, inputs: Any) -> None:
        if self._closed or (self._thread is not None and self._thread != threading.get_ident()):
            return
        self._prepare()         # what cannot be meant is raised here, in the first step
        self._watched("forward of " + block.name, self.forward_pre_hook, block, inputs)

    def forward_pre_hook(self, block: Any, inputs: Any) -> None:
        """A registered block is called: the step before ends, a step begins."""
        if not self._start():
            return
        self._put_parameters()
        self._numbers.clear()
        if self._begin_step():
            self.last_saved_step = self.step
        self._ran = [weakref.ref(block)]

    def forward_hook(self, block: Any, inputs: Any, outputs: Any) -> None:
        """A block has returned `outputs` in a step that is saved."""
        self._write(block, "input", inputs)
        self._write(block, "output", outputs)

    def _start(self) -> bool:
        if self._watching or not self._ensure_run():
            return self._watching
        self._watching = True
        self._thread = threading.get_ident()
        self._any_block = self._asks_for_numbers()
        for root in list(self._roots):
            self._watch_root(root)
        return True

    def _end_step(self, last: bool = False) -> None:
        if self._open:
            self._watched("parameters", self._put_parameters)        # at the end; a forward has done it already
        super()._end_step(last)

    def _put_parameters(self) -> None:
        """Of the roots that ran in the open step, as it left them."""
        ran, self._ran = self._ran, []
        if not self._due:
            return
        ids, handles = [], []
        for root in filter(None, (ref() for ref in ran)):
            for parameter in root.collect_params().values():
                if parameter._data is None:
                    continue                    # its shape is not known yet
                found = [(parameter.name, parameter_kind(parameter.name), parameter._data[0])]
                if parameter._grad is not None:
                    found.append(("gradient/" + parameter.name, "gradient", parameter._grad[0]))
                for name, kind, array in found:
                    ident = self._parameter_id(name, kind, array)
                    if ident == NOT_WANTED or not self._run.due(ident):
                        continue
                    if arrays.is_plain(array):
                        ids.append(ident)
                        handles.append(array.handle)
                    else:
                        self._run.put_array(ident, arrays.values(array), 0, 0)
        if ids:
            self._run.put_many(ids, arrays.addresses(handles), 0, 0)

    def _parameter_id(self, name: str, kind: str, array: Any) -> int:
        return self._id((name, array.dtype, array.shape), lambda: self._run.define(
            name, name, kind, "", arrays.dtype_name(array), list(array.shape), False,
            parameter_unit_axis(None, kind, array.ndim), [], []))

    def _write(self, block: Any, what: str, values: Any) -> None:
        kind, key = block_kind(block), (block.name, what)
        number = self._numbers.get(key, 0)
        for array in arrays.flat(values):
            name = f"{block.name}_{what}_{number}"
            role = "loss" if what == "output" and kind == "loss" else what
            ident = self._id((name, array.dtype, array.ndim), lambda: self._run.define(
                name, name, role, kind, arrays.dtype_name(array), list(array.shape), True,
                output_unit_axis(block, kind, array.ndim), [], []))
            number += 1
            if ident != NOT_WANTED and array.size and self._run.due(ident):
                self._run.put_array(ident, arrays.values(array), 0, 0)
        self._numbers[key] = number

    def _write_raw_tensor_simple(self, tensor_name: str, tensor_value: Any, tensor_ref: Any = None,
                                 timestamp: Any = None) -> None:
        """Saves `tensor_value` in the open step, whatever the schedules say."""
        self.save_tensor(tensor_name, tensor_value)

    def _watched(self, site: str, function: Callable[..., Any], *args: Any) -> None:
        try:
            super()._watched(site, lambda: self._kept_apart(function, *args))
        finally:
            error, self._training_error = self._training_error, None
            if error is not None:
                raise error

    def _kept_apart(self, function: Callable[..., Any], *args: Any) -> None:
        try:
            function(*args)
        # the training's own, which our wait brought out: nobody else gets it
        except arrays.TrainingError as error:
            self._training_error = error.error

    def _to_numpy(self, value: Any) -> Any:
        try:
            return arrays.values(value) if isinstance(value, NDArray) else value
        except arrays.TrainingError as error:
            raise error.error from None

    def _rank(self) -> tuple[int, int]:
        return ranks.of_process()

    def _adaptor(self) -> str:
        return f"mxnet {mxnet.__version__}, smdebug hook"


def get_hook(json_config_path: str | None = None) -> Any:
    """The process's hook, or one from the configuration file where there is one."""
    from .singleton import get_hook as get

    return get(Hook, json_config_path, create=True)
