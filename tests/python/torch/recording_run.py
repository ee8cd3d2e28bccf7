"""A stand-in for tdbg._capture.Run that remembers every call and copies what the pointers point to.

For what the real one cannot show: which calls were made, in which order, with which sub-keys; failures on demand;
and the adaptor's own cost. What it accepts is what python/src binds.
"""

import ctypes
import json

import numpy as np
import torch

NOT_WANTED = 0xFFFFFFFF
ALWAYS = ("weight", "bias", "gradient", "buffer", "loss")


def dtype_of(name):
    return np.dtype("uint16") if name == "bfloat16" else np.dtype(name)


class Step:
    def __init__(self, mode, mode_step):
        self.mode, self.mode_step = mode, mode_step
        self.values = {}        # (name, sub, point) -> array
        self.summaries = {}     # (name, sub, point) -> 15 numbers
        self.scalars = {}       # (name, sub) -> value
        self.skipped = None

    def __getitem__(self, name):
        return self.values[name, 0, 0]


class RecordingRun:
    NOT_WANTED = NOT_WANTED

    def __init__(self, kinds=ALWAYS, names=(), plan=None, due=None, copy=True, **options):
        self.options = options
        self.directory, self.attempt = options.get("directory") or "nowhere", 0
        self.kinds, self.names = set(kinds), set(names)
        self.plan_value = {"context": True, "step_by": "optimizer", "summaries_every": 1, **(plan or {})}
        self.is_due = due or (lambda mode, step: True)
        self.copy = copy
        self.specs, self.ids, self.series = [], {}, []
        self.left = []              # steps that were begun and are none
        self.steps, self.open, self.end_values, self.end_scalars = [], None, None, {}
        self.twice = []             # (step, name, sub, point) that was put although it was there
        self.modes = {1: -1, 2: -1, 3: -1, 4: -1}
        self.contexts, self.lost, self.requests = {}, [], []
        self.said = {}          # name -> was it said to be unchanged, call by call
        self.ended = self.abandoned = None
        self.global_step = -1

    def share_threads(self, threads):
        self.threads = threads

    def plan(self):
        kept = {"name": "kept by the stand-in", "keep": True}
        return json.dumps({"kind": "tdbg.plan", "major": 1, **self.plan_value,
                           "collections": [*self.plan_value.get("collections", []), kept]})

    def wants(self, name, kind, module_kind="", element_count=0, collections=()):
        return kind in self.kinds or name in self.names or bool(self.names.intersection(collections))

    def define(self, name, short_name, kind, module_kind, dtype, shape, variable_shape=False, unit_axis=-1,
               aliases=[], collections=[], whole_shape=[], part_begin=[]):
        assert isinstance(name, str) and isinstance(dtype, str) and all(isinstance(d, int) for d in shape)
        if not self.wants(name, kind, collections=collections):
            return NOT_WANTED
        key = (name, dtype, None if variable_shape else tuple(shape))
        if key not in self.ids:
            self.ids[key] = len(self.specs)
            self.specs.append(dict(name=name, short_name=short_name, kind=kind, module_kind=module_kind, dtype=dtype,
                                   shape=tuple(shape), variable_shape=variable_shape, unit_axis=unit_axis,
                                   aliases=list(aliases), collections=list(collections),
                                   whole_shape=list(whole_shape), part_begin=list(part_begin)))
        return self.ids[key]

    def spec(self, name):
        return next(s for s in self.specs if s["name"] == name)

    def define_scalar(self, name, collection=""):
        self.series.append(name)
        return 1_000_000 + len(self.series) - 1

    def begin_step(self, mode):
        assert self.open is None, "a step is open"
        self.modes[mode] += 1
        self.global_step += 1
        self.open = Step(mode, self.modes[mode])
        return self.is_due(mode, self.modes[mode])

    def due(self, ident):
        return True

    def _target(self):
        if self.end_values is not None:
            return self.end_values
        assert self.open is not None, "put outside a step"
        return self.open.values

    def _keep(self, name, sub, point, value):
        target = self._target()
        if (name, sub, point) in target:
            self.twice.append((self.global_step, name, sub, point))
        target[name, sub, point] = value

    def put_many(self, ids, ptrs, sub=0, point=0, unchanged=None):
        assert len(ids) == len(ptrs) and len(ids) == len(ids if unchanged is None else unchanged)
        for ident, same in zip(ids, unchanged or ()):
            self.said.setdefault(self.specs[ident]["name"], []).append(same)
        if not self.copy:
            return False
        nonfinite = False
        for ident, ptr in zip(ids, ptrs):
            if ident == NOT_WANTED or not ptr:
                continue
            spec = self.specs[ident]
            dtype = dtype_of(spec["dtype"])
            count = int(np.prod(spec["shape"], dtype=np.int64))
            data = ctypes.string_at(ptr, count * dtype.itemsize)
            value = np.frombuffer(data, dtype).reshape(spec["shape"]).copy()
            nonfinite |= spec["dtype"] != "bfloat16" and not np.isfinite(value).all()
            self._keep(spec["name"], sub, point, value)
        return nonfinite

    def put_batch(self, batch, ids, ptrs, sub=0, point=0):
        self.batches = getattr(self, "batches", 0) + 1
        return self.put_many(list(batch.ids) + list(ids), list(batch.addresses) + list(ptrs), sub, point)

    def put_tensor(self, slot, tensor, sub=0):
        ident = slot.match(tensor)
        if ident is None:
            return False
        self.slot_puts = getattr(self, "slot_puts", 0) + 1
        if ident != NOT_WANTED and tensor.numel():
            bits = tensor.detach()
            bits = bits.view(torch.uint16) if bits.dtype == torch.bfloat16 else bits
            self._keep(self.specs[ident]["name"], sub, 0, bits.numpy().copy())
        return True

    def put_ptr(self, ident, ptr, dtype, shape, strides, sub=0, point=0):
        spec = self.specs[ident]
        kind = dtype_of(dtype)
        extent = 1 + sum((d - 1) * s for d, s in zip(shape, strides)) if all(shape) else 0
        flat = np.frombuffer(ctypes.string_at(ptr, extent * kind.itemsize), kind)
        view = np.lib.stride_tricks.as_strided(flat, shape, [s * kind.itemsize for s in strides])
        self._keep(spec["name"], sub, point, view.copy())

    def put_sparse(self, ident, ptr, dtype, values, elements, sub=0, point=0):
        """Kept: (the values that are there, how many elements there are)."""
        kind = dtype_of(dtype)
        data = ctypes.string_at(ptr, values * kind.itemsize) if values else b""
        self._keep(self.specs[ident]["name"], sub, point, (np.frombuffer(data, kind).copy(), elements))

    def put_raw(self, ident, ptr, dtype, shape, strides, sub=0, point=0):
        self.put_ptr(ident, ptr, dtype, shape, strides, sub, point)

    def put_summaries(self, ids, rows, sub=0, point=0):
        assert rows.dtype == np.float64 and rows.shape == (len(ids), 15)
        for ident, row in zip(ids, rows):
            self.open.summaries[self.specs[ident]["name"], sub, point] = row.copy()

    def raw_due(self, ident, mode, mode_step):
        return any(mode_step % raw.get("train", {}).get("interval", 1) == 0 for raw in self._raws())

    def _raws(self):
        return [c["raw"] for c in self.plan_value.get("collections", []) if c.get("raw")]

    def put_rows(self, rows):
        sub, point = rows.place
        for at, ident in enumerate(rows.ids):
            if ident == NOT_WANTED:
                continue
            spec = self.specs[ident]
            data = rows.values(at)
            if data is not None:
                shape = spec["shape"] if not spec["variable_shape"] else (-1,)
                self._keep(spec["name"], sub, point, np.frombuffer(data, dtype_of(spec["dtype"])).reshape(shape).copy())
            elif (row := rows.summary(at)) is not None:
                self.open.summaries[spec["name"], sub, point] = np.array(row)

    def put_scalars(self, ids, values, sub=0):
        assert self.open is not None or self.end_values is not None, "scalars outside a step"
        target = self.end_scalars if self.open is None else self.open.scalars
        for ident, value in zip(ids, values):
            target[self.series[ident - 1_000_000], sub] = float(value)

    def put_context(self, topic, text):
        self.contexts.setdefault(topic, []).append((self.global_step, json.loads(text)))

    def end_step(self, skipped=False):
        if self.open is None:
            return -1
        self.open.skipped = skipped
        self.steps.append(self.open)
        self.open = None
        return self.global_step

    def cancel_step(self):
        if self.open is not None and (self.open.values or self.open.summaries or self.open.scalars):
            self.end_step()
        elif self.open is not None:
            self.modes[self.open.mode] -= 1
            self.global_step -= 1
            self.open = None

    def leave_step(self):
        if self.open is not None:
            self.modes[self.open.mode] -= 1
            self.global_step -= 1
            self.left.append(self.open)
            self.open = None

    def mode_step(self, mode):
        return self.modes[mode]

    def begin_end(self):
        assert self.open is None
        self.end_values = {}

    def end(self, reason, message=""):
        self.ended = (reason, message)

    def take_request(self):
        return self.requests.pop(0) if self.requests else None

    def count_dropped(self, cause, tensors, detail):
        self.lost.append((cause, tensors, detail))

    def abandon(self):
        self.abandoned = True

    # For tests ----------------------------------------------------------------------------------------------

    def of(self, mode):
        return [s for s in self.steps if s.mode == mode]

    @property
    def train(self):
        return self.of(1)

    @property
    def eval(self):
        return self.of(2)
