"""Writes the golden runs of formats 1.0 to 1.2 by docs/format.md alone, sharing no code with src/.

    python make_golden.py DIRECTORY [MINOR]

`v1.0/` to `v1.2/` beside this file are its output, frozen: every later version must open them. `expected.json` says what
is in them; that of 1.2 knows a step at which no histogram was due.
Needs NumPy; the hash is xxhash's if that package is there, else xxh3.py's.
"""
import json
import pathlib
import struct
import sys

import numpy as np

try:
    from xxhash import xxh3_64_intdigest as hash64
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from xxh3 import xxh3_64 as hash64

WRITER_ID = 0x1234567890ABC
RUN_ID = "00112233445566778899aabbccddeeff"
MINORS = (0, 1, 2)
RING = 8192
FLOAT32, COMPLEX64, BFLOAT16 = 12, 14, 11
NAN = float("nan")


def zigzag_leb(value):
    return leb(value << 1 if value >= 0 else (-value << 1) - 1)


def leb(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def histogram(values):
    """Signed logarithmic histogram of finite non-zero values, encoded."""
    buckets = {}
    for x in values:
        m, e = np.frexp(abs(float(x)))  # 0.5 <= m < 1
        k = 4 * (int(e) - 1) + int((m * 2 - 1) * 4)
        b = (k + 4301) * (1 if x > 0 else -1)
        buckets[b] = buckets.get(b, 0) + 1
    out, previous = leb(len(buckets)), 0
    for b in sorted(buckets):
        out += zigzag_leb(b - previous) + leb(buckets[b])
        previous = b
    return out


def summary(array):
    """(count .. abs_max) of a float array as docs/format.md orders them."""
    a = np.asarray(array, np.float64).ravel()
    f = a[np.isfinite(a)]
    counts = [a.size, np.isnan(a).sum(), np.isposinf(a).sum(), np.isneginf(a).sum(), (a == 0).sum()]
    if f.size == 0:
        return [int(c) for c in counts], [NAN] * 10
    mean = f.mean()
    d = f - mean
    return [int(c) for c in counts], [f.min(), f.max(), mean, (d**2).mean(), (d**3).mean(), (d**4).mean(),
                                      np.abs(f).sum(), np.sqrt((f**2).sum()), np.abs(f).min(), np.abs(f).max()]


TENSORS = [
    {"id": 0, "name": "gradient/Net_conv1.weight", "dtype": "float32", "shape": [2, 3],
     "short_name": "conv1.weight", "kind": "gradient", "module_kind": "conv", "collections": ["gradients"], "unit_axis": 0},
    {"id": 1, "name": "odd@name.5", "dtype": "complex64", "shape": [2]},
    {"id": 2, "name": "half", "dtype": "bfloat16", "shape": [3]},
    {"id": 3, "name": "lr", "dtype": "float64", "shape": [], "kind": "scalar"},
]


def gradient(step):
    values = (np.arange(6, dtype=np.float32) - 2).reshape(2, 3) * np.float32(0.5 + step)
    if step == 1:
        values[0, 0], values[1, 2] = np.nan, np.inf
    return values


COMPLEX = np.array([1 + 2j, -3.5j], np.complex64)
HALF = np.array([0x3F80, 0xC000, 0x7F80], np.uint16)  # 1, -2, inf as bfloat16


def due(step, minor):
    """A histogram, at this step."""
    return minor < 2 or step % 2 == 0


# ---- The segment: steps 0 and 1

def make_segment(directory, minor):
    rows, histograms = [], b""
    for step in (0, 1):
        values = gradient(step)
        finite = values[np.isfinite(values) & (values != 0)]
        encoded = histogram(finite) if due(step, minor) else b""
        rows.append((step, *summary(values), len(histograms), len(encoded)))
        histograms += encoded
    columns = {}

    def column(key, dtype, values):
        columns[key] = (dtype, np.asarray(values, {"I64": "<i8", "U64": "<u8", "F64": "<f8", "U32": "<u4", "U16": "<u2",
                                                   "U8": "u1"}[dtype]))

    column("step/global", "I64", [0, 1])
    column("step/mode_step", "I64", [0, 1])
    column("step/wall_nanos", "I64", [1_700_000_000_000_000_000, 1_700_000_000_500_000_000])
    column("step/monotonic_nanos", "I64", [10, 20])
    column("step/mode", "U16", [1, 1])
    column("step/flags", "U32", [0, 1])
    column("step/shed", "U32", [0, 0])
    column("step/summary_rows", "U32", [1, 1])
    column("step/scalar_rows", "U32", [1, 0])
    column("step/raw_tensors", "U32", [2, 1])
    column("summary/tensor", "U32", [0, 0])
    column("summary/step_first", "I64", [r[0] for r in rows])
    column("summary/step_last", "I64", [r[0] for r in rows])
    column("summary/level", "U32", [0, 0])
    column("summary/sub", "U16", [0, 0])
    column("summary/point", "U16", [0, 0])
    column("summary/flags", "U32", [0 if due(step, minor) else 2 for step in (0, 1)])
    for i, name in enumerate(["count", "nan_count", "pos_inf_count", "neg_inf_count", "zero_count"]):
        column("summary/" + name, "U64", [r[1][i] for r in rows])
    for i, name in enumerate(["min", "max", "mean", "variance", "m3", "m4", "l1", "l2", "abs_min", "abs_max"]):
        column("summary/" + name, "F64", [r[2][i] for r in rows])
    column("summary/histogram_offset", "U64", [r[3] for r in rows])
    column("summary/histogram_bytes", "U32", [r[4] for r in rows])
    column("summary/histogram", "U8", np.frombuffer(histograms, "u1"))
    column("scalar/tensor", "U32", [3])
    column("scalar/step", "I64", [0])
    column("scalar/sub", "U16", [0])
    column("scalar/point", "U16", [0])
    column("scalar/value", "F64", [0.125])

    entries = [(array.itemsize, key, dtype, list(array.shape), array.tobytes()) for key, (dtype, array) in columns.items()]
    raw = {}

    def tensor(key, item, dtype, shape, data, tensor_id, commit, logical):
        entries.append((item, key, dtype, shape, data))
        raw[key] = {"id": tensor_id, "commit": commit, **logical}

    for step in (0, 1):
        tensor(f"gradient/Net_conv1.weight@{step}", 4, "F32", [2, 3], gradient(step).tobytes(), 0, step,
               {"dtype": "float32", "shape": [2, 3]})
    tensor("odd@name.5@0.1.after_clip", 8, "U8", [2, 8], COMPLEX.tobytes(), 1, 0, {"dtype": "complex64", "shape": [2]})

    entries.sort(key=lambda e: -e[0])
    header, data = {}, b""
    for _, key, dtype, shape, content in entries:
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    tdbg = {"format": {"major": 1, "minor": minor}, "kind": "segment", "run": RUN_ID, "attempt": 0,
            "worker": "worker_0", "writer_id": WRITER_ID, "first_sequence": 1, "last_sequence": 12, "last_seen_step": 1, "last_seen_wall_nanos": 5,
            "tensors": [t for t in TENSORS if t["id"] != 2],
            "context": [{"global_step": 0, "topic": "optimizer", "value": {"lr": 0.125}}],
            "acks": [{"id": "r1", "done": True}],
            "losses": [{"cause": 1, "kind": 1, "count": 3, "bytes": 300, "first_step": 0, "last_step": 1}]}
    if minor >= 1:
        index = make_index({key: header[key]["data_offsets"] for key in header}, columns, entries, raw, tdbg, len(data))
        entries.append((1, "index", "U8", [len(index)], index))
        header["index"] = {"dtype": "U8", "shape": [len(index)], "data_offsets": [len(data), len(data) + len(index)]}
        data += index
    tdbg |= {"checksums": {e[1]: f"{hash64(e[4]):016x}" for e in entries}, "raw": raw}
    text = json.dumps({"__metadata__": {"tdbg_hash": "0" * 16, "tdbg": json.dumps(tdbg)}, **header}, separators=(",", ":"))
    text += " " * (-(len(text) + 8) % 64)
    text = text.replace('"tdbg_hash":"' + "0" * 16, f'"tdbg_hash":"{hash64(text.encode()):016x}', 1)
    name = f"{1:020d}-{12:020d}.safetensors"
    (directory / name).write_bytes(struct.pack("<Q", len(text)) + text.encode() + data)


# ---- Its index

def make_index(places, columns, entries, raw, tdbg, begin):
    hashes = {e[1]: hash64(e[4]) for e in entries}
    codes = {"I64": 9, "U64": 8, "F64": 13, "U32": 6, "U16": 4, "U8": 2}
    logical = {"float32": FLOAT32, "complex64": COMPLEX64}

    def packed(form, items):
        return b"".join(struct.pack(form, *item) for item in items)

    names, column_rows = "", []
    for key, (dtype, _) in columns.items():
        names += key
        column_rows.append((places[key][0], places[key][1] - places[key][0], hashes[key], len(names), codes[dtype], 0))

    extents, forms, layouts, layout_rows, commits, table = [], [], [], [], [], []

    def form_of(about):
        form = (logical[about["dtype"]], about["shape"])
        if form not in forms:
            forms.append(form)
        return forms.index(form)

    def layout_of(rows):
        if rows not in layouts:
            layouts.append(rows)
            layout_rows.extend(rows)
        return layouts.index(rows)

    points = {"after_clip": 3}
    for commit in (0, 1):
        raws = []
        for key, about in raw.items():
            if about["commit"] == commit:
                _, _, where = key.rpartition("@")
                _, sub, point = [*where.split("."), "", ""][:3]
                raws.append((about["id"], int(sub) + 1 if sub else 0, points[point] if point else 0, form_of(about)))
                table.append((places[key][0], hashes[key]))
        none = 2**32 - 1
        commits.append((layout_of([(0, 0, 0, none)]), layout_of([(3, 0, 0, none)] if commit == 0 else []), layout_of(raws)))
    form_rows = []
    for dtype, shape in forms:
        form_rows.append((dtype, len(shape), len(extents)))
        extents += shape
    ends = list(np.cumsum([len(rows) for rows in layouts]))
    texts = [json.dumps(t) for t in tdbg["tensors"]]
    meta = json.dumps({key: value for key, value in tdbg.items() if key != "tensors"})
    blocks = packed("<QQ", table)
    head = struct.pack("<12I2Q", len(column_rows), len(extents), 1, len(forms), len(commits), len(layouts), len(layout_rows),
                       len(texts), len(names), len("".join(texts)), len(meta), 0, 0, 0)
    head += packed("<QQQIHH", column_rows) + packed("<q", [(x,) for x in extents]) + struct.pack("<Q", hash64(blocks))
    head += packed("<HHI", form_rows) + packed("<III", commits) + packed("<I", [(x,) for x in ends])
    head += packed("<IHHI", layout_rows) + packed("<I", [(int(x),) for x in np.cumsum([len(t) for t in texts])])
    head += (names + "".join(texts) + meta).encode()
    head += bytes(-len(head) % 8)
    zeros = bytes(-begin % 64)
    data_bytes = begin + len(zeros) + len(head) + len(blocks) + 64
    footer = struct.pack("<8sHHIQQQQQ", b"TDBGINDX", 1, 1, 64, data_bytes, len(head), len(table), hash64(head), 0)
    return zeros + head + blocks + footer + struct.pack("<Q", hash64(footer))


# ---- The journal: step 2 is committed, step 3 is not; a pad lies in between

class Journal:
    def __init__(self, position, sequence):
        self.ring = bytearray(RING)
        self.position, self.sequence = position, sequence

    def record(self, kind, step, payload, prefix=0):
        total = 64 + -(-len(payload) // 64) * 64
        room = RING - self.position % RING
        if total > room:
            self.put(1, 0, room - 64, b"", 0, 0)
            self.position += room
        content = payload[prefix:]
        self.put(kind, step, len(payload), payload, hash64(content), hash64(payload[:prefix]) if prefix else 0)
        self.position += total

    def put(self, kind, step, payload_bytes, payload, payload_hash, prefix_hash):
        head = struct.pack("<IHHQQQqQQ", 0x43455254, kind, 0, self.sequence, self.position, payload_bytes, step,
                           payload_hash, prefix_hash)
        at = self.position % RING
        record = head + struct.pack("<Q", hash64(head)) + payload
        self.ring[at:at + len(record)] = record
        self.sequence += 1

    def raw(self, step, tensor, dtype, shape, data):
        head = struct.pack("<IHHHHI13q", tensor, 0, 0, dtype, len(shape), 0, *(list(shape) + [0] * (13 - len(shape))))
        self.record(5, step, head + bytes(8) + data, prefix=128)


def make_journal(path, minor):
    sealed = 3 * RING - 1024
    journal = Journal(sealed, 13)
    journal.record(2, 0, json.dumps(TENSORS[2]).encode())
    values = gradient(2)
    counts, numbers = summary(values)
    encoded = histogram(values[values != 0])
    row = struct.pack("<IHH5Q10dIIIIQ", 0, 0, 0, *counts, *numbers, 0, len(encoded), 0, 0, 0)
    journal.record(3, 2, struct.pack("<IIQ", 1, 0, len(encoded)) + row + encoded)
    journal.raw(2, 2, BFLOAT16, [3], HALF.tobytes())
    journal.raw(2, 0, FLOAT32, [2, 3], gradient(2).tobytes())  # behind the pad
    journal.record(4, 2, struct.pack("<IHHdQ", 3, 0, 0, 0.0625, 0))
    journal.record(7, 2, struct.pack("<qqqqIHHIIIIQ", 2, 2, 1_700_000_001_000_000_000, 30, 0, 1, 0, 1, 1, 2, 0, 0))
    committed, committed_seq = journal.position, journal.sequence - 1
    journal.raw(3, 0, FLOAT32, [2, 3], gradient(3).tobytes())

    page = bytearray(4096)
    struct.pack_into("<8sHHIQQI", page, 0, b"TDBGJRNL", 1, minor, 4096, RING, WRITER_ID, 4242)
    struct.pack_into("<QQqqQ", page, 64, committed, committed_seq, 3, 1_700_000_001_500_000_000, 0)
    struct.pack_into("<QQ", page, 128, sealed, 12)
    for i in range(48):
        struct.pack_into("<q", page, 960 + 8 * i, -1)
        struct.pack_into("<q", page, 1344 + 8 * i, -1)
    cell = 1 * 4 + 0  # journal_full, raw
    for at, value in ((192, 3), (576, 300), (960, 0), (1344, 1)):
        struct.pack_into("<q", page, at + 8 * cell, value)
    path.write_bytes(bytes(page) + bytes(journal.ring))


def make(root, minor):
    worker = root / "0" / "worker_0"
    (worker / "segments").mkdir(parents=True, exist_ok=True)

    def write(path, value):
        path.write_text(json.dumps(value, indent=1) + "\n")

    write(root / "run.json", {"format": {"major": 1, "minor": minor}, "kind": "run", "id": RUN_ID, "name": "golden", "tdbg_version": "0.1.0",
                              "command": ["python", "train.py"], "working_directory": "/tmp",
                              "created_wall_nanos": 1_700_000_000_000_000_000})
    write(root / "0" / "attempt.json", {"format": {"major": 1, "minor": minor}, "kind": "attempt", "attempt": 0, "step_base": 0, "world_size": 1,
                                        "started_wall_nanos": 1_700_000_000_000_000_000, "from_the_future": {"x": 1}})
    write(worker / "worker.json", {"format": {"major": 1, "minor": minor}, "kind": "worker", "worker": "worker_0", "rank": 0, "pid": 4242,
                                   "host": "golden", "boot_id": "", "writer_id": WRITER_ID, "journal_path": "journal",
                                   "started_wall_nanos": 1_700_000_000_000_000_000, "adaptor": "by hand", "run": RUN_ID,
                                   "attempt": 0})
    (worker / "lock").write_bytes(b"")
    (worker / "doorbell").write_bytes(struct.pack("<Q", 19))
    make_segment(worker / "segments", minor)
    make_journal(worker / "journal", minor)
    write(root / "expected.json", {
        "steps": [0, 1, 2],
        "gradient": {str(s): [repr(float(x)) for x in gradient(s).ravel()] for s in (0, 1, 2)},
        "gradient_mean": {str(s): summary(gradient(s))[1][2] for s in (0, 1, 2)},
        "gradient_m4": {str(s): summary(gradient(s))[1][5] for s in (0, 1, 2)},
        "gradient_nan_count": {str(s): summary(gradient(s))[0][1] for s in (0, 1, 2)},
        "histogram_total": {str(s): int((np.isfinite(gradient(s)) & (gradient(s) != 0)).sum()) for s in (0, 1, 2) if due(s, minor)},
        "lr": {"0": 0.125, "2": 0.0625},
        "half_hex": {"2": HALF.tobytes().hex()},
        "complex_hex": {"0": COMPLEX.tobytes().hex()},
        "last_seen_step": 3,
    })


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MINORS[-1])
