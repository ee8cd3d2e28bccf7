"""What is in a tensor, as far as it matters for NaN and infinity. Looks in pieces, so that it needs 10 MiB and not the
tensor's size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tdbg import _capture

PIECE = 1 << 20           # elements that are looked at at once
MOST_SAMPLES = 5          # that are told by their numbers
MAX_BYTES = 4 << 30       # of all tensors of one walk: about four seconds on one core

NAN, INF, FINITE = "nan", "inf", "finite"
SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass(frozen=True)
class Values:
    """Counts of elements; `low`, `high`: of the finite ones (0 where there are none)."""

    count: int
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zeros: int = 0
    negative: int = 0         # finite ones
    low: float = 0.0
    high: float = 0.0

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def inf(self) -> int:
        return self.posinf + self.neginf


class Budget:
    """How much more may be looked at in one walk."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self.left = most
        self.looked = self.bytes = 0

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        self.looked += 1
        self.bytes += size
        return True


def _strided(tensor: torch.Tensor) -> torch.Tensor | None:
    """Its numbers as they lie in memory; None where there are none to look at."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None
    tensor = tensor.detach()
    tensor = getattr(tensor, "_local_tensor", tensor)       # a DTensor's part of this rank
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        return None
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout in SPARSE:
        tensor = tensor.values()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None             # a subclass of somebody's: what its operations do nobody knows
    return tensor


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg()


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from its first element in memory to its last."""
    if not tensor.numel():
        return 0
    last: int = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    size: int = (1 + last) * tensor.element_size()
    return size


def is_there(tensor: torch.Tensor) -> bool:
    """Can it be read? A weight may lie in a mapped file that was cut short, or in a protected page: to read it would
    end the training. Takes about as long as reading it. Of a strided tensor; one of a device is there."""
    return tensor.device.type != "cpu" or _capture.is_readable(tensor.data_ptr(), _extent(tensor))


def _may_be_read(tensor: torch.Tensor) -> bool:
    """Nor does a view that leaves out most of a large storage cost more than a walk may."""
    return tensor.device.type != "cpu" or (_extent(tensor) <= MAX_BYTES and is_there(tensor))


def plain_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """As `readable`, of a tensor whose memory is known to be there."""
    strided = _strided(tensor)
    return None if strided is None else _resolved(strided)


def readable(tensor: torch.Tensor) -> torch.Tensor | None:
    """Its numbers as a plain strided tensor, without a copy of them; None where there are none to look at, or where
    reading them would end the process."""
    strided = _strided(tensor)
    return None if strided is None or not _may_be_read(strided) else _resolved(strided)


def _within(tensor: torch.Tensor, budget: Budget) -> torch.Tensor | None:
    """`readable`, within what may still be looked at."""
    strided = _strided(tensor)
    if strided is None or not budget.take(strided.numel() * strided.element_size()) or not _may_be_read(strided):
        return None
    return _resolved(strided)


def pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """All its elements, at most PIECE at once, as views."""
    if tensor.numel() <= PIECE:
        yield tensor
    elif tensor.is_contiguous():
        yield from tensor.view(-1).split(PIECE)
    else:
        for part in tensor.unbind(0):
            yield from pieces(part)


def _as_numbers(piece: torch.Tensor) -> torch.Tensor:
    return piece.float() if piece.dtype.itemsize < 4 else piece


def state_of(tensor: torch.Tensor, budget: Budget) -> str | None:
    """NAN if it has one, else INF, else FINITE; None: it could not be looked at."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return FINITE
    plain = _within(tensor, budget)
    if plain is None:
        return None
    found = FINITE
    for piece in pieces(plain):
        piece = _as_numbers(piece)
        if bool(torch.isfinite(piece).all()):
            continue
        if bool(torch.isnan(piece).any()):
            return NAN
        found = INF
    return found


def values_of(tensor: torch.Tensor, budget: Budget) -> Values | None:
    """An element that is complex counts once: as NaN or infinite where one of its parts is, as 0 where both are."""
    plain = _within(tensor, budget)
    if plain is None:
        return None
    total = [0] * 6
    low, high = float("inf"), -float("inf")
    for piece in pieces(plain):
        piece = _as_numbers(piece)
        if not piece.is_floating_point():
            piece = piece.double()
        finite = piece[torch.isfinite(piece)]
        # A row for each element, of one or two parts.
        parts = piece.reshape(-1, 2 if tensor.is_complex() else 1)
        counts = (
            len(parts),
            torch.isnan(parts).any(1).sum(),
            (parts == float("inf")).any(1).sum(),
            (parts == -float("inf")).any(1).sum(),
            (parts == 0).all(1).sum(),
            0 if tensor.is_complex() else (finite < 0).sum(),
        )
        total = [a + int(b) for a, b in zip(total, counts)]
        if finite.numel():
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    low, high = (low, high) if low <= high else (0.0, 0.0)
    count, nan, posinf, neginf, zeros, negative = total
    return Values(count, nan, posinf, neginf, zeros, negative, low, high)


class Samples(NamedTuple):
    """Rows of the first axis that have an element that is not finite. `numbers`: of the first of them."""

    bad: int
    of: int
    numbers: list[int]

    def words(self) -> str:
        told = "" if self.bad == self.of else (
            f" (sample {self.numbers[0]:,}, counted from 0)" if self.bad == 1 else
            f" ({', '.join(f'{n:,}' for n in self.numbers)}{', ...' if self.bad > len(self.numbers) else ''}, counted "
            "from 0)")
        return f", in {self.bad:,} of {self.of:,} samples{told}"


def samples_with_nan(tensor: torch.Tensor) -> Samples | None:
    """None where that says nothing."""
    plain = readable(tensor)
    if plain is None or plain.dim() < 2 or plain.numel() > 16 * PIECE or not plain.numel():
        return None
    bad = ~torch.isfinite(_as_numbers(plain)).flatten(1).all(1)
    return Samples(int(bad.sum()), plain.shape[0], [int(n) for n in bad.nonzero().flatten()[:MOST_SAMPLES]])
