"""Small outputs of a compiled step, as one: each output costs a step some 40 us of CPU time, whatever its
size.

A `Packing` is made while a step is traced and says where in the one tensor each of the others is; its bytes are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

#: An output of this size is as quickly copied into the one as handed over by itself.
LARGEST = 32 << 10
#: Before the number of a packing, in the name of its output.
PACKED = "packed\n"


class Packing:
    """:param names: of the tensors, in their order
    :param shapes: of each
    :param dtypes: NumPy's, of each; 8 bytes an element before 4
    """

    def __init__(self, names: Iterable[str], shapes: Iterable[Any], dtypes: Iterable[Any]) -> None:
        self._parts, begin = [], 0
        for name, shape, dtype in zip(names, shapes, dtypes):
            end = begin + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize // 4
            self._parts.append((name, begin, end, tuple(shape), None if dtype == np.float32 else np.dtype(dtype)))
            begin = end

    def unpack(self, flat: Any) -> dict[str, Any]:
        """name -> a view of `flat`, float32 in C order."""
        found = {}
        for name, begin, end, shape, dtype in self._parts:
            part = flat[begin:end]
            found[name] = (part if dtype is None else part.view(dtype)).reshape(shape)
        return found


class Packer:
    """All packings of a model's functions: a function that is traced once more may have another one."""

    def __init__(self) -> None:
        self._packings: list[Packing] = []

    def pack(self, tensors: dict[str, Any], backend: Any) -> dict[str, Any]:
        """`tensors` (name -> tensor of the graph being made), the small ones of known shape replaced by one."""
        small = [(name, t) for name, t in tensors.items() if backend.is_packable(t, LARGEST)]
        if len(small) < 3:
            return tensors
        small.sort(key=lambda pair: -pair[1].dtype.size)
        names = [name for name, _ in small]
        self._packings.append(Packing(names, [t.shape for _, t in small], [t.dtype.as_numpy_dtype for _, t in small]))
        rest = {name: t for name, t in tensors.items() if name not in set(names)}
        rest[f"{PACKED}{len(self._packings) - 1}"] = backend.concatenate([t for _, t in small])
        return rest

    def unpack(self, outputs: dict[str, Any], backend: Any) -> dict[str, Any]:
        """The other way: name -> tensor, or view of what `outputs` keeps alive."""
        found = {}
        for name, tensor in outputs.items():
            if name.startswith(PACKED):
                found.update(self._packings[int(name[len(PACKED):])].unpack(backend.numpy(tensor)))
            else:
                found[name] = tensor
        return found
