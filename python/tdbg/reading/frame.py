"""Statistics of many tensors over many steps, as columns: NumPy's, pandas' or Arrow's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..modes import ModeKeys
from ..words import counted, printable
from .arrays import Array

KEYS = ("tensor", "worker", "step", "mode", "mode_step")


def needed(module: str, what: str, package: str | None = None) -> Any:
    """Imports what tdbg does not depend on.

    :raises ImportError: it is not there; says how to get it
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = package or module.partition(".")[0]
        raise ImportError(f"{what} needs {package}: pip install {package}") from error


class Frame:
    """Columns of equal length, one row per tensor, step and worker, ascending. Made by `trial.frame(...)`.

    >>> frame = trial.frame("gradients", ["max"])
    >>> frame["step"].tolist(), frame["max"].tolist()
    ([0, 1, 2], [1.5, 3.0, 7.5])

    :ivar names: of the tensors, sorted; `tensor_index` points into it
    :ivar workers: `worker_index` points into it
    :ivar step: global steps, int64
    :ivar mode_index: ModeKeys as numbers, uint8
    :ivar mode_step: the mode's own steps, int64
    :ivar fields: name -> float64 column. NaN: this row does not have it, or it is NaN.

    `frame["mean_abs"]`, `frame["step"]` and so on are the columns as arrays.
    """

    def __init__(self, raw: tuple[Any, ...], fields: Sequence[str]) -> None:
        self.names: list[str] = raw[0]
        self.workers: list[str] = raw[1]
        self.tensor_index: Array
        self.worker_index: Array
        self.step: Array
        self.mode_index: Array
        self.mode_step: Array
        self.tensor_index, self.worker_index, self.step, self.mode_index, self.mode_step = raw[2:7]
        self.fields: dict[str, Array] = dict(zip(fields, raw[7], strict=True))

    def __len__(self) -> int:
        return len(self.step)

    @property
    def columns(self) -> list[str]:
        """Names that `frame[name]` takes: tensor, worker, step, mode, mode_step and the fields."""
        return [*KEYS, *self.fields]

    def __getitem__(self, column: str) -> Array:
        """A column: of numbers as they are, of names and modes as objects.

        :raises KeyError: names the columns
        """
        if column in self.fields:
            return self.fields[column]
        if column == "tensor":
            return np.array(self.names, dtype=object)[self.tensor_index]
        if column == "worker":
            return np.array(self.workers, dtype=object)[self.worker_index]
        if column == "mode":
            return np.array([None, *(mode.name for mode in ModeKeys)], dtype=object)[self.mode_index]
        if column == "step":
            return self.step
        if column == "mode_step":
            return self.mode_step
        raise KeyError(f"no column {column!r}: one of {', '.join(self.columns)}")

    def pivot(self, field: str, worker: str | None = None) -> tuple[list[str], Array, Array]:
        """(names, steps, matrix): one row per tensor, one column per step, NaN where there is nothing.

        >>> names, steps, matrix = trial.frame("gradients", ["max"]).pivot("max")
        >>> names, matrix.shape
        (['gradient/Net_conv1.weight'], (1, 3))

        With several workers in the frame, `worker` chooses one; default: the first.
        """
        values = self[field]
        chosen: Array | slice = slice(None)
        if len(self.workers) > 1:
            chosen = self.worker_index == self.workers.index(self.workers[0] if worker is None else worker)
        steps, column = np.unique(self.step[chosen], return_inverse=True)
        matrix = np.full((len(self.names), len(steps)), np.nan)
        matrix[self.tensor_index[chosen], column] = values[chosen]
        return self.names, steps, matrix

    def pandas(self) -> Any:
        """A DataFrame in long form; tensor, worker and mode are categories. The numbers are not copied."""
        pd = needed("pandas", "Frame.pandas()")
        modes = [mode.name for mode in ModeKeys]
        return pd.DataFrame(
            {
                "tensor": pd.Categorical.from_codes(self.tensor_index.astype(np.int32), self.names),
                "worker": pd.Categorical.from_codes(self.worker_index.astype(np.int32), self.workers),
                "step": self.step,
                "mode": pd.Categorical.from_codes(self.mode_index.astype(np.int8) - 1, modes),
                "mode_step": self.mode_step,
                **self.fields,
            },
            copy=False,
        )

    def arrow(self) -> Any:
        """A pyarrow.Table in long form; tensor, worker and mode are dictionary-encoded."""
        pa = needed("pyarrow", "Frame.arrow()")

        def words(index: Array, names: list[str]) -> Any:
            return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(names, pa.string()))

        modes = [mode.name for mode in ModeKeys]
        return pa.table({
            "tensor": words(self.tensor_index, self.names),
            "worker": words(self.worker_index, self.workers),
            "step": pa.array(self.step),
            "mode": words(self.mode_index.astype(np.int32) - 1, modes),
            "mode_step": pa.array(self.mode_step),
            **{name: pa.array(values, from_pandas=False) for name, values in self.fields.items()},
        })

    def __repr__(self) -> str:
        return (f"<tdbg.Frame {counted(len(self), 'row')}: {counted(len(self.names), 'tensor')}, "
                f"{counted(len(np.unique(self.step)), 'step')}, {counted(len(self.workers), 'worker')}; "
                f"{printable(', '.join(self.fields))}>")
