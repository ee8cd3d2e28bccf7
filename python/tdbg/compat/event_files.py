"""smdebug's files, one at a time: its FileWriter and FileReader, which tools and tests are written with.

    with FileWriter("run", worker="worker_0", step=3) as writer:
        writer.write_tensor(np.arange(6.0), "x", mode=ModeKeys.TRAIN, mode_step=3)
    for name, step, value, mode, mode_step in FileReader(writer.name()).read_tensors():
        ...

A run as a whole is written by a hook or by `tdbg export --to smdebug`, and read by `create_trial`.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from .. import _trial
from ..hook.locations import TensorboardFileLocation
from ..modes import ModeKeys
from ..places import write_whole
from ..reading.arrays import Array, array_of
from .exceptions import SMDebugNotImplementedError, SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError

logger = logging.getLogger("smdebug")

_NOT_IN_TAGS = re.compile(r"[^-/\w.]")


def make_numpy_array(value: object) -> Array:
    """What smdebug writes of it: an array as it is, a scalar or a text as one element, lists and tuples as arrays.

    :raises SMDebugTypeError: anything else

    >>> make_numpy_array(2.5), make_numpy_array([1, 2])
    (array([2.5]), array([1, 2]))
    """
    if isinstance(value, np.ndarray):
        return value
    if np.isscalar(value):
        return np.array([value])
    if isinstance(value, (list, tuple)):
        return np.asarray(value)
    raise SMDebugTypeError(f"an array, a scalar, a list or a tuple is accepted, not {type(value).__name__}")


class FileWriter:
    """One worker's files of one step. Nothing is to be seen before `close()`, which replaces what is there.

    :param trial_dir: the run's directory; for `wtype="tensorboard"` the directory of its files
    :param worker: as it stands in the name of the file
    :param wtype: "events": tensors, with their index; "tensorboard": scalars and histograms
    :param mode: of TensorBoard's file; tensors have one each

    `max_queue`, `flush_secs`, `verbose` and `write_checksum` change nothing: smdebug's reader wants its own constant
    where a checksum would be, and TensorBoard's files always have one.
    """

    def __init__(self, trial_dir: str | os.PathLike[str], worker: str, step: int = 0, wtype: str = "events",
                 mode: ModeKeys = ModeKeys.GLOBAL, max_queue: int = 10, flush_secs: float = 120, verbose: bool = False,
                 write_checksum: bool = False) -> None:
        if wtype not in ("events", "tensorboard"):
            raise SMDebugValueError(f"wtype is {wtype!r}: events or tensorboard is accepted")
        self.trial_dir, self.worker, self.step, self.wtype, self.mode = str(trial_dir), worker, step, wtype, mode
        self.max_queue, self.flush_secs = max_queue, flush_secs
        self.verbose, self.write_checksum = verbose, write_checksum
        self._files: _trial.StepFiles | None = None  # of tensors
        self._records: list[bytes] = []  # of TensorBoard's file
        self._path: str | None = None

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _at(self, mode: ModeKeys | None, mode_step: int | None, timestamp: float | None = None,
            indexed: bool = True) -> _trial.StepFiles:
        if self.wtype != "events":
            raise SMDebugRuntimeError("tensors and shapes go into a writer of wtype='events'")
        mode = ModeKeys.GLOBAL if mode is None else mode
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(f"mode is {mode!r}: one of {', '.join(map(str, ModeKeys))} is accepted")
        mode_step = self.step if mode_step is None else mode_step
        if self.step < 0 or mode_step < 0:
            raise SMDebugValueError(f"steps count from 0: found step {self.step}, mode_step {mode_step}")
        if self._files is None:
            self._files = _trial.StepFiles.open(self.trial_dir, self.step, self.worker)
            self._path = self._files.event_path
        self._files.set_moment(mode.value, mode_step, time.time() if timestamp is None else timestamp,
                               indexed)
        return self._files

    def write_tensor(self, tdata: object, tname: str, write_index: bool = True, mode: ModeKeys | None = ModeKeys.GLOBAL,
                     mode_step: int | None = None, timestamp: float | None = None) -> None:
        """:param write_index: False: in the event file only, for FileReader; whoever reads the run does not find it
        :raises SMDebugTypeError, TypeError: neither numbers nor a list of texts

        In the nearest type that smdebug's reader gets right (docs/smdebug.md); empty arrays, which it cannot read,
        are left out.
        """
        array = make_numpy_array(tdata)
        if array.dtype.kind in "UO":
            if array.ndim != 1 or not all(isinstance(text, str) for text in array):
                raise TypeError(f"{tname}: texts are accepted as a list of str, "
                                f"not {array.dtype} of shape {array.shape}")
            self._at(mode, mode_step, timestamp, write_index).put_texts(tname, array.tolist())
            return
        if array.dtype.kind not in "biufc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
            if array.dtype.kind == "S":
                raise TypeError(f"{tname}: bytes are no texts; decode them")
            raise SMDebugTypeError(f"{tname}: no tensor can hold {array.dtype}")
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        files = self._at(mode, mode_step, timestamp, write_index)
        files.put(tname, array.ctypes.data, array.dtype.name, list(array.shape))

    def write_shape(self, name: str, shape: Sequence[int], mode: ModeKeys | None = ModeKeys.GLOBAL,
                    mode_step: int | None = None, original_name: str | None = None) -> None:
        """A tensor's shape without its values."""
        self._at(mode, mode_step).put_shape(name, name if original_name is None else original_name, list(shape))

    def _summary(self, record: Callable[..., bytes], tag: str, *values: Any, global_step: int,
                 timestamp: float | None = None) -> None:
        if self.wtype != "tensorboard":
            raise SMDebugRuntimeError("scalars and histograms go into a writer of wtype='tensorboard'")
        self._path = TensorboardFileLocation(self.step, self.worker, self.mode).get_file_location(self.trial_dir)
        tag = _NOT_IN_TAGS.sub("_", tag).lstrip("/")
        self._records.append(record(time.time() if timestamp is None else timestamp, global_step, tag, *values))

    def write_scalar_summary(self, name: str, value: object, global_step: int, timestamp: float | None = None) -> None:
        """One number, for TensorBoard.

        :param timestamp: seconds since 1970; default: now
        :raises SMDebugRuntimeError: several numbers, or a writer of wtype="events"
        """
        array = make_numpy_array(value)
        if array.size != 1:
            raise SMDebugRuntimeError(f"{name}: a single number is accepted, not an array of shape {array.shape}")
        number = float(array.reshape(()))
        self._summary(_trial.scalar_record, name, number, global_step=global_step, timestamp=timestamp)

    def write_histogram_summary(self, tdata: object, tname: str, global_step: int, bins: Any = "default") -> None:
        """:param bins: as of numpy.histogram; "default": TensorFlow's, which grow by a tenth from 1e-12 on

        What cannot be counted (nothing there, NaN) is a warning, as in smdebug.
        """
        values = make_numpy_array(tdata).astype(float).reshape(-1)
        if not values.size or not np.isfinite(values).all():
            logger.warning("Unable to write histogram %s at %s: %s", tname, global_step,
                           "no elements" if not values.size else "not all elements are finite")
            return
        counts, edges = np.histogram(values, _default_edges() if isinstance(bins, str) and bins == "default" else bins)
        used = np.flatnonzero(counts)
        if not used.size:
            logger.warning("Unable to write histogram %s at %s: no element is in a bin", tname, global_step)
            return
        # TensorBoard knows right edges only: an empty bin in front tells where the first one begins.
        first, last = used[0], used[-1]
        moments = [values.min(), values.max(), values.size, values.sum(), values @ values]
        self._summary(_trial.histogram_record, tname, [float(m) for m in moments], edges[first:last + 2].tolist(),
                      [0.0, *counts[first:last + 1].astype(float)], global_step=global_step)

    def name(self) -> str:
        """The path of the event file, which is there once the writer is closed."""
        if self._path is None:
            raise SMDebugRuntimeError("nothing has been written yet: there is no file")
        return self._path

    def flush(self) -> None:
        """Nothing to do: a step appears as a whole."""

    def close(self) -> None:
        """Publishes what was written. Later calls do nothing more."""
        files, self._files = self._files, None  # published once more, its index would say that nothing is there
        if files is not None:
            files.close()
        records, self._records = self._records, []
        if records:
            path = self.name()
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_whole(path, b"".join(records))


class FileReader:
    """One event file of smdebug's `events/`, in the order in which it was written.

    :raises NotFoundError: no such file
    """

    def __init__(self, fname: str | os.PathLike[str], wtype: str = "tfevent") -> None:
        if wtype != "tfevent":
            raise SMDebugNotImplementedError(f"wtype is {wtype!r}: tfevent is accepted")
        self._path = os.fspath(fname)
        _trial.EventFile.open(self._path)

    def __enter__(self) -> FileReader:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def _records(self) -> Iterator[tuple[Any, ...]]:
        file = _trial.EventFile.open(self._path)
        while (record := file.next()) is not None:
            yield cast("tuple[Any, ...]", record)

    def read_tensors(self, check: str = "minimal") -> Iterator[tuple[str, int, Array, ModeKeys, int]]:
        """Yields (name, global step, array, mode, mode step). `check` changes nothing: what can be checked is.

        :raises DataLossError: at the first record that is damaged or cut short; those before it were whole
        """
        for name, step, array, dtype, mode, mode_step, _ in self._records():
            yield name, step, array_of((array, dtype)).copy(), ModeKeys(mode), mode_step

    def read_events(self, check: str = "minimal", regex_list: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """[{"timestamp", "step", "name", "value"}] of the tensors whose names match any of the patterns."""
        patterns = None if regex_list is None else [re.compile(p) for p in regex_list]
        return [{"timestamp": wall_time, "step": step, "name": name, "value": array_of((array, dtype)).copy()}
                for name, step, array, dtype, _, _, wall_time in self._records()
                if patterns is None or any(p.search(name) for p in patterns)]


def _default_edges() -> list[float]:
    """TensorFlow's: they grow by a tenth from 1e-12 on, to both sides of 0."""
    positive: list[float] = []
    edge = 1e-12
    while edge < 1e20:
        positive.append(edge)
        edge *= 1.1
    return [-e for e in reversed(positive)] + [0.0] + positive
