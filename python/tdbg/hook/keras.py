"""smdebug's hook for Keras, as a callback: what is saved and when is the hook's, what is seen is the Keras adaptor's.

    hook = KerasHook("run", include_collections=["gradients"], save_config=SaveConfig(save_interval=10))
    model.fit(x, y, callbacks=[hook])

    with hook.wrap_tape(tf.GradientTape()) as tape:     # in a loop of one's own, as is hook.wrap_optimizer(optimizer)
        ...

Names are smdebug's. Weights and gradients are those before a step's update, as `tdbg run` has them (smdebug's hook for
Keras takes weights after it).
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ..adaptors.keras.attach import attach, stand_down
from ..modes import ModeKeys
from .base import BaseHook
from .collection import CollectionKeys


class KerasHook(BaseHook, keras.callbacks.Callback):  # type: ignore[misc]
    """Its arguments are BaseHook's. Modes and steps are Keras' own: a step is a batch of `fit`, `evaluate` or
    `predict`; `set_mode` is accepted and changes nothing. In a loop of one's own a step is an update, and lasts until
    the next tape begins. The script's own scalars and tensors belong to the open step, those saved while none is open
    to the next one."""

    framework = "tensorflow"
    _keeps_state = False        # steps are the adaptor's to count

    def __init__(self, *arguments: Any, **options: Any) -> None:
        keras.callbacks.Callback.__init__(self)
        BaseHook.__init__(self, *arguments, **options)
        self._attached: Any = None
        self._ranks = 0, 1
        self._batches = 0                   # of the last epoch, where Keras does not know how many there are
        self._first: int | None = None      # step of this epoch
        stand_down("the script has a hook of its own")

    # Loops of one's own ------------------------------------------------------------------------------------------

    def wrap_tape(self, tape: Any) -> Any:
        """Returns it: tapes are seen as they are, from here on. A step is an update: `apply_gradients` or `apply`."""
        self._watch()
        return tape

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Returns it: its gradients and variables are seen as they are, from here on."""
        self._watch()
        return optimizer

    def register_model(self, model: Any) -> None:
        """From here on the model is seen: its layers, weights and steps, as they are."""
        self._watch()

    def _watch(self) -> None:
        if not self._closed:
            self._prepare()                     # what cannot be meant is raised here
            self._watched("attaching", self._attach)

    def _keep(self, name: str, kind: str, array: Any, collections: list[str]) -> None:
        super()._keep(name, kind, array, collections)
        self._watched("attaching", self._attach)        # a loop that wraps nothing has steps, too

    # What Keras calls -------------------------------------------------------------------------------------------

    def set_model(self, model: Any) -> None:
        keras.callbacks.Callback.set_model(self, model)
        self._watch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self._closed and self._run is not None:
            self._watched("the last batch of an epoch", self._batch_begins, batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._first is not None:
            self._batches, self._first = self._attached._session.next_step(ModeKeys.TRAIN.value) - self._first, None

    def _batch_begins(self, batch: int) -> None:
        """Losses and metrics of an epoch's last batch are saved, whatever the schedules say; of several batches that
        Keras runs in one call, those of the last call."""
        left = (self.params.get("steps") or self._batches) - batch
        session = self._attached._session
        self._first = session.next_step(ModeKeys.TRAIN.value) - batch
        if 0 < left <= self.model.steps_per_execution and session.open_mode != ModeKeys.TRAIN.value:
            session.capture_more([CollectionKeys.LOSSES, CollectionKeys.METRICS], left)

    def _validation_ends(self, numbers: dict[str, Any]) -> None:
        """The same of its evaluation: what the schedules have not saved in its last step."""
        for name, value in numbers.items():
            number = np.asarray(self._to_numpy(value))
            if not self._attached._session.values.due([name]) and number.size == 1 and number.dtype.kind in "fiub":
                self._keep(name, "metric", number.reshape(1), [CollectionKeys.METRICS])

    def _attach(self) -> None:
        if self._attached is not None:
            return
        self._attached = attach(dir=self._launched or self.out_dir, open_run=self._open_run)
        session = self._attached._session
        session.number_shape = (1,)
        session.loops.stays_open = True
        session.on_step_end.append(self._step_ends)
        session.on_validation_end.append(self._validation_ends)

    def _open_run(self, rank: int = 0, world_size: int = 1, **options: Any) -> Any:
        self._ranks = rank, world_size
        if not self._ensure_run():
            raise RuntimeError(f"this hook saves of one worker, and worker {rank} is another")
        return self._run

    def _rank(self) -> tuple[int, int]:
        return self._ranks

    def _saves_this_step(self) -> bool:
        return True         # modes and steps are the adaptor's

    def _step_ends(self) -> None:
        self._watched("a script's own values", self._put_own)
        self.step = self.last_saved_step = self._run.global_step

    def close(self, reason: str = "completed", message: str = "") -> None:
        """Ends the run with the final weights. Later calls do nothing."""
        if self._attached is not None and not self._closed:
            if self._own and self._run is not None and self._attached._session.open_mode is None:
                self._watched("a script's own values", self._attached._session.begin, self.mode.value)
            self._attached.close(reason, message)
        super().close(reason, message)

    cleanup = close

    def _adaptor(self) -> str:
        return f"keras {keras.__version__}, smdebug hook"

    def _to_numpy(self, value: Any) -> Any:
        return keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value
