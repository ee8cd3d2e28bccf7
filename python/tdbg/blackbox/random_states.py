"""Reads random states of torch, CUDA, NumPy and Python, drawing no number and waiting for no device, and restores them.

They are read before every training forward, so cost counts (2-core VM, Python 3.11, NumPy 2.4). torch's state takes
0.7 us, NumPy's `get_state` 24 and Python's `getstate` 7. These two are therefore called only if the memory that holds
the state has changed, which takes 0.3 us to see. The address of that memory is found once and checked against the
official call; if it is not as expected, the official call is always used.

Not seen: generators of the script's own (`numpy.random.default_rng`, `torch.Generator`), and a change that consists
only of drawing the second of a pair of `numpy.random.randn`.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

_WORDS = 624            # of a Mersenne twister's state, and its position
_BYTES = 4 * (_WORDS + 1)


class RandomStates(NamedTuple):
    """Of one moment. `cuda`: by number of the device; `numpy` is None where the program has not imported it, or
    draws from another generator than NumPy's usual one."""

    torch: torch.Tensor
    cuda: dict[int, torch.Tensor]
    numpy: tuple[Any, ...] | None
    python: tuple[Any, ...]


class _Watched:
    """A state that is asked for again only if its bytes in memory have changed.

    :param found: (the address of its bytes, the object that they are a part of, which is held: who puts another in its
        place must not free what we look at); None: always asked
    """

    def __init__(self, ask: Callable[[], tuple[Any, ...]], found: tuple[int, object] | None) -> None:
        self._ask = ask
        self._found = found
        self._bytes: bytes | None = None
        self._state: tuple[Any, ...] = ()

    def take(self) -> tuple[Any, ...]:
        if self._found is None:
            return self._ask()
        now = ctypes.string_at(self._found[0], _BYTES)
        if now != self._bytes:
            self._bytes, self._state = now, self._ask()
        return self._state


def _address_of_python() -> tuple[int, object] | None:
    """Of `random`'s own generator: after the object's header the position, then the words (CPython since 2.3)."""
    try:
        address = id(random._inst) + object.__basicsize__
        position, *words = struct.unpack(f"<i{_WORDS}I", ctypes.string_at(address, _BYTES))
        return (address, random._inst) if random.getstate()[1] == (*words, position) else None
    except Exception:
        return None


def _generator_of_numpy() -> object:
    """The global one; `numpy.random.set_bit_generator` puts another in its place."""
    mtrand = sys.modules.get("numpy.random.mtrand")
    return None if mtrand is None else getattr(getattr(mtrand, "_rand", None), "_bit_generator", None)


def _address_of_numpy(numpy: Any) -> tuple[int, object] | None:
    """Of NumPy's global generator, in its documented `ctypes` interface: the words, then the position."""
    try:
        generator: Any = _generator_of_numpy()
        address = int(generator.ctypes.state_address)
        *words, position = struct.unpack(f"<{_WORDS}Ii", ctypes.string_at(address, _BYTES))
        state = numpy.random.get_state()
        return (address, generator) if state[1].tolist() == words and state[2] == position else None
    except Exception:
        return None


class Taker:
    """Takes states again and again, in one thread."""

    def __init__(self) -> None:
        self._python: _Watched | None = None
        self._numpy: _Watched | None = None
        self._numpy_generator: object = None

    def take(self) -> RandomStates:
        if self._python is None:
            self._python = _Watched(random.getstate, _address_of_python())
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and (generator := _generator_of_numpy()) is not self._numpy_generator:
            self._numpy_generator = generator
            # Of others than a Mersenne twister `get_state` warns, in the middle of somebody's training.
            known = type(generator).__name__ == "MT19937"
            self._numpy = _Watched(numpy.get_state, _address_of_numpy(sys.modules["numpy"])) if known else None
        return RandomStates(torch.get_rng_state(), _cuda_states(), None if self._numpy is None else self._numpy.take(),
                            self._python.take())


def _cuda_states() -> dict[int, torch.Tensor]:
    """The states of all devices; they are in host memory. May not be read while a CUDA graph is captured."""
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return {}
    return {n: g.get_state() for n, g in enumerate(torch.cuda.default_generators)}


def restore(states: RandomStates) -> None:
    """Restores the states, so that the same numbers are drawn next. Devices that are not there are skipped."""
    torch.set_rng_state(states.torch)
    for number, state in states.cuda.items():
        if number < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, number)
    if states.numpy is not None:
        import numpy
        numpy.random.set_state(states.numpy)
    random.setstate(states.python)
