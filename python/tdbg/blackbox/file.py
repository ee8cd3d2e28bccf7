"""The two files of a black box: `black_box.json` and `tensors.safetensors` beside it (docs/format.md, "The black box").

The directory is written under another name and then renamed, so that readers see it whole or not at all. Values go from
the tensors' own memory into the file; tensors on a device are copied one at a time.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from typing import Any

import torch

FORMAT = {"major": 1, "minor": 0}
DOCUMENT, TENSORS = "black_box.json", "tensors.safetensors"
MAX_HEADER = 100 << 20      # safetensors' own limit

_DTYPES = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
           "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
           "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class BlackBoxError(Exception):
    """Not a black box, or a damaged one."""


def can_keep(tensor: torch.Tensor) -> bool:
    """Is it a dense tensor of a type that the format has?"""
    return tensor.layout is torch.strided and tensor.dtype in _NAMES and not tensor.is_meta and not tensor.is_quantized


def write(run: str, place: str, document: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> int:
    """Makes the directory `place` in the run's, which must not exist yet, with the access rights of the run's.

    :returns: the bytes written

    :raises OSError: writing failed; nothing is left behind
    """
    mode = os.stat(run).st_mode & 0o777
    path, (*above, last) = run, place.split(os.sep)
    for name in above:
        path = os.path.join(path, name)
        if not os.path.isdir(path):
            os.mkdir(path, mode)
        if os.path.islink(path):
            raise OSError(f"{path} is a symbolic link")
    unfinished, directory = os.path.join(path, f".tmp-{last}-{os.getpid()}"), os.path.join(path, last)
    os.mkdir(unfinished, mode)
    try:
        size = _write_tensors(os.path.join(unfinished, TENSORS), tensors)
        text = json.dumps({"format": FORMAT, "kind": "black_box", **document}, indent=1).encode() + b"\n"
        with open(os.path.join(unfinished, DOCUMENT), "xb") as file:
            file.write(text)
        os.rename(unfinished, directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return size + len(text)


def _write_tensors(path: str, tensors: Mapping[str, torch.Tensor]) -> int:
    header: dict[str, Any] = {}
    # Largest items first, as in segments: every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    position = 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, tensor in ordered:
            plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
            if plain.numel():
                file.write(memoryview(plain.reshape(-1).view(torch.uint8).numpy()))
    return 8 + len(text) + position


def read(directory: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The document and the tensors, which own their memory.

    :raises BlackBoxError: damaged, or of a newer major version
    :raises OSError: missing or unreadable
    """
    with open(os.path.join(directory, DOCUMENT), "rb") as file:
        try:
            document = json.load(file)
        except ValueError as error:
            raise BlackBoxError(f"{directory}: {DOCUMENT}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != "black_box":
        raise BlackBoxError(f"{directory}: {DOCUMENT}: not a black box")
    major = document.get("format", {}).get("major") if isinstance(document.get("format"), dict) else None
    if not isinstance(major, int) or major > FORMAT["major"]:
        raise BlackBoxError(f"{directory}: written in format {major}; this tdbg reads up to {FORMAT['major']}")
    return document, _read_tensors(os.path.join(directory, TENSORS))


def _read_tensors(path: str) -> dict[str, torch.Tensor]:
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(MAX_HEADER, size - 8):
            raise BlackBoxError(f"{path}: the header says {length} bytes, and the file has {size}")
        try:
            header = json.loads(file.read(length))
            entries = [(name, *_checked(entry, size - 8 - length)) for name, entry in header.items()
                       if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BlackBoxError(f"{path}: its header is damaged: {error}") from None
        found = {}
        for name, dtype, shape, begin, end in sorted(entries, key=lambda entry: entry[3]):
            file.seek(8 + length + begin)
            data = bytearray(end - begin)
            if file.readinto(data) != end - begin:
                raise BlackBoxError(f"{path}: ends inside of {name}")
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            found[name] = flat.reshape(shape)
    return found


def _checked(entry: Any, room: int) -> tuple[torch.dtype, list[int], int, int]:
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError("a size is not a whole number")
    if not begin <= end <= room or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"offsets {begin} to {end} are not those of {entry['dtype']} {shape}")
    return dtype, shape, begin, end
