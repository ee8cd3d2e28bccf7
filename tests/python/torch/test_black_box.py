"""The black box: a step with a NaN is kept whole, and a process that starts anew is brought back into it, to the bit."""

import errno
import gc
import json
import os
import pathlib
import random
import subprocess
import sys
import textwrap
import warnings
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tdbg
from tdbg.blackbox import file
from tdbg.blackbox.random_states import Taker, restore
from tdbg.blackbox.structure import ABSENT, Encoder, decode

CLI = [os.environ["TDBG_CLI"]] if "TDBG_CLI" in os.environ else [sys.executable, "-m", "tdbg"]

# Everything that draws, every way a batch comes in, and what trains: argument 1 is the seed, so that a replay with another one can
# only be the same if it was brought back.
PREAMBLE = """
import random, sys
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
seed = int(sys.argv[1])
torch.manual_seed(seed); np.random.seed(seed); random.seed(seed)
"""

TRAININGS = {
    # Dropout, batch norm, numbers of NumPy and of Python; labels of a loss, which is a module and is called behind the model.
    "forward": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l1, self.norm, self.drop, self.l2 = nn.Linear(20, 64), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 5)
            def forward(self, x):
                h = self.drop(self.norm(torch.relu(self.l1(x))))
                h = h + random.random() * torch.from_numpy(np.random.randn(*h.shape).astype("float32"))
                return self.l2(h)
        net = Net(); optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        X, Y = torch.randn(64, 20), torch.randint(0, 5, (64,))
        for step in range(8):
            i = torch.randint(0, 64, (16,)); x = X[i]
            if step == 6: x[3, 4] = float("nan")
            loss = nn.CrossEntropyLoss()(net(x), Y[i]); optimizer.zero_grad(); loss.backward(); optimizer.step()
    """,
    # Two micro-steps, a dictionary with labels and an object in it, the loss computed by the model; a gradient that is NaN of a
    # loss that is finite.
    "backward": """
        class Own: factor = 3.0
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn, self.head = nn.Embedding(30, 16), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 4)
            def forward(self, batch, own, scale=1.0):
                h, _ = self.rnn(self.embed(batch["ids"])); y = self.head(h[:, -1])
                root = torch.sqrt((y[0, 0] * batch["on"]) ** 2)
                return (F.cross_entropy(F.dropout(y, 0.3, self.training), batch["labels"]) + root * 0) * own.factor * scale
        net = Net(); optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        for step in range(6):
            optimizer.zero_grad()
            for micro in range(2):
                on = 0.0 if step == 4 and micro == 1 else 1.0
                batch = {"ids": torch.randint(0, 30, (8, 7)), "labels": torch.randint(0, 4, (8,)), "on": torch.tensor(on)}
                net(batch, Own(), scale=0.5).backward()
            optimizer.step()
    """,
    # Two optimizers, of which the second's step goes wrong; what it trains on was made before the first one stepped.
    "two": """
        class G(nn.Module):
            def __init__(self): super().__init__(); self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 6)
            def forward(self, z): return self.b(F.dropout(torch.tanh(self.a(z)), 0.1, self.training))
        class D(nn.Module):
            def __init__(self): super().__init__(); self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 1)
            def forward(self, x): return self.b(torch.relu(self.a(x)))
        g, d = G(), D(); og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
        one, zero, bce = torch.ones(8, 1), torch.zeros(8, 1), nn.BCEWithLogitsLoss()
        for step in range(6):
            od.zero_grad(); fake = g(torch.randn(8, 4))
            (bce(d(torch.randn(8, 6)), one) + bce(d(fake.detach()), zero)).backward(); od.step()
            og.zero_grad(); far = torch.full((8, 6), float("inf") if step == 4 else 1.0)
            (bce(d(fake), one) + F.l1_loss(fake, far)).backward(); og.step()
    """,
    # The script looks itself, and raises before there are gradients.
    "raises": """
        net = nn.Linear(6, 3); optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(5):
            x = torch.randn(8, 6) / (0.0 if step == 3 else 1.0)
            loss = F.mse_loss(net(x), torch.randn(8, 3)); optimizer.zero_grad(); loss.backward()
            if not torch.isfinite(loss): raise FloatingPointError("not finite")
            optimizer.step()
    """,
}


def run(*arguments, **environment):
    return subprocess.run([*CLI, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TDBG_STRICT": "1", **environment})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """name -> (script, run), each trained once."""
    made = {}

    def of(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            script = folder / "train.py"
            script.write_text(PREAMBLE + textwrap.dedent(TRAININGS[name]))
            done = run("run", "--dir", folder / "run", "--", sys.executable, script, 1)
            made[name] = script, folder / "run", done
        return made[name]
    return of


@pytest.mark.parametrize("name, step", [("forward", 6), *(pytest.param(*case, marks=pytest.mark.long) for case in [("backward", 4), ("two", 4), ("raises", 3)])])
def test_a_process_with_another_seed_is_brought_back_to_the_bit(trained, name, step):
    script, directory, done = trained(name)
    assert "tdbg replay" in done.stderr
    replay = run("replay", directory, "--json", "--", sys.executable, script, 2)
    assert replay.returncode == 0, replay.stderr
    answer = json.loads(replay.stdout)
    assert answer["identical"] and answer["step"] == step
    assert all(loss["identical"] for loss in answer["losses"]) and answer["losses"]
    assert answer["gradients"]["identical"] == answer["gradients"]["of"] >= 2
    assert not answer["gradients"]["different"]
    assert answer["origin"]["sentence"] and answer["because"] == answer["origin"]["title"]


def test_a_replay_names_the_line_of_the_operation(trained):
    script, directory, _ = trained("backward")
    replay = run("replay", directory, "--", sys.executable, script, 2)
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "root = torch.sqrt(" in text)
    said = " ".join(replay.stderr.replace("tdbg:", "").split())
    assert "derivative of sqrt" in said and f"train.py:{line}, in `root = torch.sqrt((y[0, 0] * batch[\"on\"]) ** 2)`)" in said


def test_a_script_that_never_trains_the_model_is_told_so(trained):
    _, directory, _ = trained("forward")
    nothing = run("replay", directory, "--", sys.executable, "-c", "import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2))")
    assert nothing.returncode == 6 and "must build the same model" in nothing.stderr


def test_labels_that_nobody_saw_are_named_as_the_reason(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PREAMBLE + textwrap.dedent("""
        net = nn.Linear(6, 3); optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(4):
            scale = float("inf") if step == 2 else 1.0
            x, y = torch.randn(8, 6), torch.randn(8, 3)
            y[0, 0] *= scale
            loss = ((net(x) - y) ** 2).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    """))
    assert run("run", "--dir", tmp_path / "run", "--", sys.executable, script, 1).returncode == 0
    replay = run("replay", tmp_path / "run", "--", sys.executable, script, 2)
    assert replay.returncode == 1
    assert "labels were not seen" in replay.stderr and "not the same" in replay.stderr


def test_in_a_notebook(trained):
    _, directory, _ = trained("forward")
    (box,) = tdbg.open(str(directory)).black_boxes()
    assert box.step == 6 and "NaN" in box.because
    (x,), kwargs = box.arguments()
    assert x.shape == (16, 20) and x.isnan().sum() == 1 and kwargs == {}
    model = torch.nn.Sequential()
    with pytest.raises(ValueError, match="other parameters"):
        box.load(model)
    (name, labels), = box.targets
    assert name == "cross_entropy" and labels.shape == (16,)
    box.restore_random()
    first = torch.rand(3), np.random.rand(3).tolist(), random.random()
    box.restore_random()
    assert torch.equal(first[0], torch.rand(3)) and first[1:] == (np.random.rand(3).tolist(), random.random())
    assert {n for _, n, _ in box.gradients()} == {"l1.weight", "l1.bias", "norm.weight", "norm.bias", "l2.weight", "l2.bias"}


def test_the_debugger_stops_in_the_models_forward(trained):
    script, directory, _ = trained("forward")
    done = subprocess.run([*CLI, "replay", directory, "--debugger", "--", sys.executable, script, "2"], input="p int(x.isnan().sum())\nc\n",
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "h = self.drop" in done.stdout and "(Pdb) 1" in done.stdout


def test_anomaly_detection_says_where_the_operation_was_called(trained):
    script, directory, _ = trained("backward")
    done = run("replay", directory, "--anomaly", "--", sys.executable, script, 2)
    assert done.returncode == 0, done.stderr
    assert "torch.sqrt((y[0, 0]" in done.stderr and "anomaly detection: " in done.stderr


@pytest.mark.parametrize("size, kept", [("80KiB", "all"), ("50KiB", "some"), ("20KiB", "none"), (False, "nothing is held")])
def test_the_budget_leaves_out_what_is_beyond_it_and_false_holds_nothing(tmp_path, capfd, size, kept):
    model = torch.nn.Sequential(torch.nn.Linear(20, 100), torch.nn.Linear(100, 10))     # 12 kB, its gradients, Adam's 24 kB; states 15 kB
    optimizer = torch.optim.Adam(model.parameters())
    watched = tdbg.attach(model, config={"black_box": size, "rules": []}, dir=str(tmp_path / "run"))
    for step in range(3):
        x = torch.full((4, 20), float("nan") if step == 2 else 1.0)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), torch.ones(4, 10)).backward()
        optimizer.step()
    watched.close()
    boxes = tdbg.open(str(tmp_path / "run")).black_boxes()
    said = capfd.readouterr().err
    if kept in ("none", "nothing is held"):
        assert not boxes and ("no black box of step 2" in said) == (kept == "none")
        return
    (box,) = boxes
    assert sum(os.path.getsize(os.path.join(box.directory, n)) for n in os.listdir(box.directory)) < 2 * int(size[:-3]) << 10
    assert [bool(box.document["left_out"]), len(list(box.gradients()))] == [kept == "some", 4]
    assert kept == "all" or "the optimizer's state" in box.document["left_out"][0]
    other = torch.optim.Adam(model.parameters())
    assert box.load_optimizer(other, [model]) == (kept == "all")
    assert set(other.state[model[0].weight]) == ({"step", "exp_avg", "exp_avg_sq"} if kept == "all" else set())


def test_a_size_that_is_none_is_refused_before_training():
    refused = run("run", "--black-box", "much", "--", "true")
    assert refused.returncode == 2 and "--black-box" in refused.stderr and "much" in refused.stderr


def test_a_damaged_one_is_told_and_executes_nothing(trained):
    script, directory, _ = trained("forward")
    (box,) = tdbg.open(str(directory)).black_boxes()
    tensors, document = (pathlib.Path(box.directory, name) for name in (file.TENSORS, file.DOCUMENT))
    whole, text = tensors.read_bytes(), document.read_bytes()
    header = json.loads(whole[8:8 + int.from_bytes(whole[:8], "little")])
    header["parameter/0/l1.weight"]["data_offsets"] = [0, 1 << 40]
    longer = json.dumps(header).encode()
    damaged = {
        tensors: [b"", whole[:4], whole[:-1], b"\xff" * 16, len(longer).to_bytes(8, "little") + longer + whole[-40000:]],
        document: [b"", b"[1]", b"{}", text.replace(b'"major": 1', b'"major": 9'), text.replace(b'"forwards"', b'"backwards"')]}
    try:
        for path, versions in damaged.items():
            original = path.read_bytes()
            for bad in versions:
                path.write_bytes(bad)
                with pytest.raises(file.BlackBoxError):
                    tdbg.open(str(directory)).black_boxes()
            path.write_bytes(original)
        tensors.write_bytes(whole[:-1])
        done = run("replay", directory, "--", sys.executable, script, 2)
        assert done.returncode == 5 and "Traceback" not in done.stderr and "tensors.safetensors" in done.stderr
    finally:
        tensors.write_bytes(whole)
        document.write_bytes(text)


def test_states_are_taken_again_when_they_changed_and_only_then():
    taker = Taker()
    before = taker.take()
    assert taker.take().python is before.python and taker.take().numpy is before.numpy
    for draw in (random.random, random.getrandbits, lambda: random.gauss(0, 1), np.random.rand, lambda: np.random.randn(3),
                 lambda: np.random.shuffle([1, 2, 3]), lambda: torch.rand(2)):
        state = taker.take()
        first = draw(8) if draw is random.getrandbits else draw()
        after = taker.take()
        assert after.python != state.python or str(after.numpy) != str(state.numpy) or not torch.equal(after.torch, state.torch)
        restore(state)
        again = draw(8) if draw is random.getrandbits else draw()
        assert str(again) == str(first)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats() | st.text()
    | st.builds(lambda n, kind: torch.arange(n).to(kind), st.integers(0, 5),
                st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(values)
def test_what_a_model_was_called_with_comes_back(tmp_path_factory, value):
    kept = {}

    def add(tensor):
        kept[f"t{len(kept)}"] = tensor
        return f"t{len(kept) - 1}"
    encoded = Encoder(add).encode(value)
    folder = tmp_path_factory.mktemp("box")
    file.write(str(folder), "black_box/0", {"value": encoded}, kept)
    document, tensors = file.read(str(folder / "black_box" / "0"))
    assert _same(decode(document["value"], tensors.__getitem__), value)


def _same(a, b):
    if isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bytes(a.view(torch.uint8).tolist()) == bytes(b.view(torch.uint8).tolist()) \
            if b.numel() else a.numel() == 0
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in b)
    return type(a) is type(b) and (a == b or a != a and b != b)


def test_what_cannot_be_kept_comes_from_the_script():
    encoder = Encoder(lambda tensor: None)
    encoded = encoder.encode({"model": random, "x": [object(), 2]})
    assert len(encoder.absent) == 2
    assert decode(encoded, {}.__getitem__, {"model": "mine", "x": ["too", 9]}) == {"model": "mine", "x": ["too", 2]}
    assert decode(encoded, {}.__getitem__)["model"] is ABSENT


@pytest.mark.parametrize("large", ["batches", "labels"])
def test_batches_that_no_black_box_could_hold_are_let_go(tmp_path, capfd, large):
    """Micro-steps whose batches, or labels, are together more than may be written: the training has their memory back at once."""
    model = torch.nn.Linear(1000, 2) if large == "batches" else torch.nn.Linear(2, 1000)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watched = tdbg.attach(model, config={"black_box": "100KiB", "rules": []}, dir=str(tmp_path / "run"))
    for step in range(3):
        batches = [torch.full((4, 1000), float("nan") if step == 2 else 1.0) for _ in range(20)]   # 16 kB each
        alive = [weakref.ref(batch) for batch in batches]
        while batches:
            x = batches.pop()
            if large == "batches":
                torch.nn.functional.mse_loss(model([x][0]), torch.ones(4, 2)).backward()
            else:
                torch.nn.functional.mse_loss(model(torch.ones(4, 2)), [x][0]).backward()
            del x
        gc.collect()
        assert sum(ref() is not None for ref in alive) <= 1, step
        optimizer.step()
        optimizer.zero_grad()
    watched.close()
    assert not tdbg.open(str(tmp_path / "run")).black_boxes()
    said = capfd.readouterr().err
    assert said.count("no black box of this step") == 1 and "--black-box" in " ".join(said.split()), said


def test_labels_of_an_evaluation_between_two_micro_steps_are_not_the_steps(tmp_path):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watched = tdbg.attach(model, config={"rules": []}, dir=str(tmp_path / "run"))
    for value in (1.0, float("nan")):
        torch.nn.functional.mse_loss(model(torch.full((2, 4), value)), torch.ones(2, 2)).backward()
        with torch.no_grad():
            torch.nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 2))
    optimizer.step()
    watched.close()
    (box,) = tdbg.open(str(tmp_path / "run")).black_boxes()
    assert [float(target[0, 0]) for _, target in box.targets] == [1.0, 1.0]


def test_a_watch_that_gave_up_in_a_step_holds_nothing_of_it(watch):
    session = watch(plan={"black_box_bytes": 1 << 20})
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.ones(2, 4)
    alive, out = weakref.ref(x), model(x)
    session.disarm()
    del x, out, optimizer
    gc.collect()
    assert alive() is None


def test_a_black_box_that_cannot_be_written_is_said_once_and_capturing_goes_on(tmp_path, capfd, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(file, "_write_tensors", full)
    model = torch.nn.Linear(20, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watched = tdbg.attach(model, config={"rules": []}, dir=str(tmp_path / "run"))
    for step in range(30):
        optimizer.zero_grad()
        if step % 2 == 0:       # another cause each time
            bad = torch.full((), float("nan"))
            output = [torch.exp, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.sqrt, torch.abs, torch.neg, torch.erf,
                      torch.atan, torch.sinh, torch.cosh, torch.square, torch.expm1, torch.asinh][step // 2](model(torch.ones(2, 20)) * bad)
        else:
            output = model(torch.ones(2, 20))
        torch.nn.functional.mse_loss(output, torch.ones(2, 4)).backward()
        # Weights that are NaN would be the cause from here on: they are left as they were.
        for parameter in model.parameters():
            parameter.grad.nan_to_num_(0)
        optimizer.step()
    watched.close()
    trial = tdbg.open(str(tmp_path / "run"))
    said = capfd.readouterr().err
    assert len(trial.steps()) == 30 and not trial.black_boxes()
    assert said.count("no black box of step 0") == 1 and "No space left on device" in said, said
    assert "could not capture" not in said and "stops capturing" not in said, said
    assert not list((tmp_path / "run").rglob(".tmp-*"))


def test_numpy_with_another_generator_is_left_in_peace():
    """Whose state cannot be taken in the old form: a warning in somebody's training, and freed memory read."""
    own = np.random.get_bit_generator()
    taker = Taker()
    assert taker.take().numpy is not None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.random.set_bit_generator(np.random.PCG64(3))
            assert taker.take().numpy is None
            np.random.set_bit_generator(np.random.MT19937(5))
            states = taker.take()
            first = np.random.rand(3).tolist()
            restore(states)
            assert np.random.rand(3).tolist() == first
    finally:
        np.random.set_bit_generator(own)
