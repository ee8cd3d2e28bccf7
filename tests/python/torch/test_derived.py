"""Derived statistics of a real training against NumPy, on the host and through the device's lane."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tdbg._capture", reason="the extension modules are not built (TDBG_PYTHON=ON)")
tdbg = pytest.importorskip("tdbg")
pytest.importorskip("tdbg._trial")

from tdbg._capture import Run  # noqa: E402
from tdbg.adaptors.torch import other_devices  # noqa: E402
from tdbg.adaptors.torch.session import Session  # noqa: E402

nn = torch.nn
WANTED = {
    "relu_output": (["output:relu"], ["count_above(0)"]),
    "tanh_input": (["input:tanh"], ["count_within(-0.3,0.2)"]),
    "model_input": ([], ["sums(1)", "sums(-1)"]),
    "embedding_input": ([], ["value_counts(0,3)"]),
}


class Images(nn.Module):
    def __init__(self, dtype, channels_last):
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 5, 3), nn.ReLU()
        self.fc, self.tanh = nn.Linear(5 * 6 * 6, 7), nn.Tanh()
        self.to(dtype)
        self.format = torch.channels_last if channels_last else torch.contiguous_format

    def forward(self, x):
        x = self.relu(self.conv(x).contiguous(memory_format=self.format))
        return self.tanh(self.relu(self.tanh(self.fc(x.flatten(1)))))     # two calls of each in a step


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions, self.fc = nn.Embedding(9, 4), nn.Embedding(6, 4), nn.Linear(4, 7)
        self.relu = nn.ReLU()

    def forward(self, tokens):
        return self.relu(self.fc(self.words(tokens) + self.positions(torch.arange(6)))).mean(1)


def plan(raw):
    return json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
        {"name": name, "kinds": kinds, "keep": True, "summaries": False, "statistics": statistics,
         **({"raw": {"train": {"interval": 1}}} if raw else {})}
        for name, (kinds, statistics) in WANTED.items()]})


def train(directory, model, batches, raw, force_lane=False):
    session = Session(Run.open, dict(directory=str(directory), plan_json=plan(raw)), explicit=True,
                      force_lane=force_lane)
    session.install()
    session.guard.strict = True
    try:
        torch.manual_seed(0)
        model = model()
        session.add_model(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches:
            optimizer.zero_grad()
            model(batch).float().square().mean().backward()
            optimizer.step()
    finally:
        session.finish("completed")
    return tdbg.open(str(directory))


def numpys(statistic, x, unit_axis):
    """What NumPy makes of it: (entries, elements of each, samples)."""
    kind, _, rest = statistic.partition("(")
    p = [float(v) for v in rest[:-1].split(",")]
    if kind == "value_counts":
        return [(x == v).sum() for v in p], x.size, x.shape[0]
    axis = int(p[0]) % x.ndim if kind == "sums" else unit_axis
    rest = tuple(d for d in range(x.ndim) if d != axis)
    wide = x.astype(np.float64)
    counted = {"sums": lambda: wide, "count_above": lambda: wide > p[0],
               "count_within": lambda: (p[0] < wide) & (wide < p[1])}[kind]()
    return counted.sum(axis=rest), x.size // x.shape[axis], x.shape[0]


@pytest.mark.parametrize("case", ["float32", "channels_last", "float64", "bfloat16", "words"])
def test_they_are_numpys(tmp_path, case, monkeypatch):
    if case == "words":
        model, made = Words, lambda: [torch.randint(0, 5, (n, 6)) for n in (4, 4, 2)]
        expected = {"relu_output_0", "words_input_0", "Words_input_0"}
    else:
        dtype = torch.float32 if case == "channels_last" else getattr(torch, case)
        model, made = lambda: Images(dtype, case == "channels_last"), lambda: [
            torch.randn(n, 3, 8, 8).to(dtype) + 0.25 for n in (4, 4, 3)]
        expected = {"relu_output_0", "relu_output_1", "tanh_input_0", "tanh_input_1", "Images_input_0"}
    torch.manual_seed(1)
    batches = made()
    kept = train(tmp_path / "kept", model, batches, raw=True)
    assert {n for n in kept.tensor_names() if kept.tensor(n).statistics()} == expected
    monkeypatch.setattr(other_devices, "SMALL", 0)      # else small tensors travel whole and are summarized on the host
    for run in (kept, train(tmp_path / "lean", model, batches, raw=False),
                train(tmp_path / "lane", model, batches, raw=False, force_lane=True)):
        assert run.dropped() == []
        for name in expected:
            raw, tensor = kept.tensor(name), run.tensor(name)
            if run is not kept:
                assert tensor.steps(kind="raw") == []
            axis = 1 if len(raw.shape(0)) in (2, 4) else 2
            for statistic in tensor.statistics():
                for step in range(3):
                    x = np.asarray(raw.value(step))
                    if case == "bfloat16":
                        x = torch.from_numpy(x.view(np.uint16).astype(np.int16)).view(torch.bfloat16).double().numpy() \
                            if x.dtype.kind in "uV" else x.astype(np.float64)
                    entries, elements, samples = tensor.statistic(statistic, step)
                    want, of, first = numpys(statistic, x, axis)
                    assert (elements, samples) == (of, first), (name, statistic)
                    np.testing.assert_allclose(entries, want, rtol=1e-9, atol=1e-9, err_msg=f"{name} {statistic}")


def test_thresholds_are_the_doubles_that_were_asked_for():
    below = np.float32(9.4999)
    assert float(below) < 9.4999
    x = torch.tensor([[below], [np.nextafter(below, np.float32(10))], [-below], [np.nan]])
    inside = {"kind": "count_within", "parameters": [-9.4999, 9.4999], "axis": 0}
    assert other_devices.derive(x, inside).tolist() == [1, 0, 1, 0]
    above = {"kind": "count_above", "parameters": [9.4999], "axis": 0}
    assert other_devices.derive(x, above).tolist() == [0, 1, 0, 0]
    assert other_devices.derive(x, {"kind": "count_above", "parameters": [1e300], "axis": 0}).tolist() == [0, 0, 0, 0]
