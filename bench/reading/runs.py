"""Writes one run twice: as tdbg records it, and as smdebug 1.0.34 lays it out (checked by the real one in reading.py)."""

import json
import pathlib
import struct

import numpy as np

ELEMENTS = 16
FOOTER = struct.pack("<I", 0x062DC0B3)  # what smdebug writes in place of a checksum


def name_of(tensor):
    return f"gradient/Net_layer{tensor}.weight"


def value_of(step, tensors):
    """float32 (tensors, ELEMENTS), the same in both runs."""
    return np.random.default_rng(step).standard_normal((tensors, ELEMENTS), dtype=np.float32)


def write_tdbg(path, steps, tensors):
    from tdbg._capture import Run

    plan = {"kind": "tdbg.plan", "major": 1, "minor": 0, "when_full": "block", "collections": [
        {"name": "gradients", "kinds": ["gradient"], "keep": True, "raw": {"train": {"interval": 1}}}]}
    run = Run.open(directory=str(path), plan_json=json.dumps(plan))
    ids = [run.define(name_of(t), f"layer{t}.weight", "gradient", "linear", "float32", [ELEMENTS]) for t in range(tensors)]
    for step in range(steps):
        run.begin_step(1)
        values = value_of(step, tensors)
        for t, tensor in enumerate(ids):
            run.put_array(tensor, values[t])
        run.end_step()
    dropped = run.dropped()
    run.end("done")
    assert not dropped, dropped


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def field(number, payload):
    assert len(payload) < 1 << 14
    size = bytes([len(payload)]) if len(payload) < 128 else bytes([len(payload) & 127 | 128, len(payload) >> 7])
    return bytes([number << 3 | 2]) + size + payload


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def record_of(name, step, content, headers):
    """One Event with one float32 tensor of ELEMENTS elements, framed."""
    shape = field(2, field(2, b"\x08" + varint(ELEMENTS)))
    tensor = b"\x08\x01" + shape + field(4, content)
    plugins = b"".join(field(1, field(1, key) + field(2, value)) for key, value in
                       ((b"mode_step", str(step).encode()), (b"mode", b"1")))
    value = field(1, name) + field(8, tensor) + field(9, plugins)
    payload = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + varint(step) + field(5, field(1, value))
    if len(payload) not in headers:
        length = struct.pack("<Q", len(payload))
        crc = crc32c(length)
        headers[len(payload)] = length + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    return headers[len(payload)] + payload + FOOTER


def write_smdebug(path, steps, tensors):
    path = pathlib.Path(path)
    names = [name_of(t) for t in range(tensors)]
    encoded = [name.encode() for name in names]
    collections = path / "collections/000000000"
    collections.mkdir(parents=True)
    (collections / "worker_0_collections.json").write_text(json.dumps({"collections": {"gradients": {
        "name": "gradients", "include_regex": ["^gradient"], "tensor_names": names, "reduction_config": None,
        "save_config": None, "save_histogram": True}}, "_meta": {"num_workers": 1}}))
    headers = {}
    for step in range(steps):
        at, records, entries = 0, [], []
        for t, value in enumerate(value_of(step, tensors)):
            record = record_of(encoded[t], step, value.tobytes(), headers)
            entries.append({"tensorname": names[t], "start_idx": at, "length": len(record)})
            records.append(record)
            at += len(record)
        file = f"events/{step:012d}/{step:012d}_worker_0.tfevents"
        (path / file).parent.mkdir(parents=True)
        (path / file).write_bytes(b"".join(records))
        index = path / f"index/{step // 1000:09d}"
        index.mkdir(parents=True, exist_ok=True)
        (index / f"{step:012d}_worker_0.json").write_text(json.dumps({
            "meta": {"mode": "TRAIN", "mode_step": step, "event_file_name": file}, "tensor_payload": entries,
            "shape_payload": []}))
    (path / "training_job_end.ts").touch()
