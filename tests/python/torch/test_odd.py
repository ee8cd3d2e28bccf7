"""Tensors and moments that do not fit, and failures of our own: training goes on, losses are counted."""

import functools
import signal

import numpy as np
import pytest
import tdbg
import torch
from torch import nn


def one_step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()


def test_noncontiguous_parameter_and_gradient(watch):
    session = watch()
    model = nn.Linear(4, 3, bias=False)
    model.weight = nn.Parameter(torch.arange(24.0).reshape(4, 6)[:, ::2].t())
    assert not model.weight.is_contiguous()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    one_step(model, optimizer, torch.ones(2, 4))
    step = session.made[0].steps[0]
    assert np.array_equal(step["Linear_weight"], model.weight.detach().numpy())
    assert np.array_equal(step["gradient/Linear_weight"], model.weight.grad.numpy())


def test_gradient_that_the_script_expands(watch):
    session = watch()
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    one_step(model, optimizer, torch.ones(2, 4))
    model.weight.grad = torch.tensor([[2.0]]).expand(3, 4)
    optimizer.step()
    assert (session.made[0].steps[1]["gradient/Linear_weight"] == 2).all()


@pytest.mark.parametrize("large", [False, True])
def test_sparse_gradients_have_the_numbers_of_dense_ones(watch, monkeypatch, large):
    if large:
        monkeypatch.setattr("tdbg.adaptors.torch.params.SMALL", 39)
    session = watch()
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = None
    for at in range(3):
        one_step(model, optimizer, torch.tensor([1, 2, 1]))
        run = session.made[0]
        assert ("Embedding_weight", 0, 0) in run.steps[at].values
        if large:       # of an index that is there twice the sum, once
            values, elements = run.steps[at]["gradient/Embedding_weight"]
            assert values.tolist() == [2, 2, 1, 1] and elements == 10
        else:
            assert run.steps[at]["gradient/Embedding_weight"].tolist() == [[0, 0], [2, 2], [1, 1], [0, 0], [0, 0]]
    assert run.lost == [] and model.weight.grad.is_sparse


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc, lambda x: x.to_sparse_bsr((2, 2))],
                         ids=["places", "rows", "columns", "blocks of rows"])
def test_a_large_sparse_buffer_is_put_by_its_values(watch, monkeypatch, make):
    monkeypatch.setattr("tdbg.adaptors.torch.params.SMALL", 39)
    session = watch()
    model = nn.Linear(2, 1)
    model.register_buffer("adjacency", make(torch.eye(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        one_step(model, optimizer, torch.randn(3, 2))
    run = session.made[0]
    values, elements = run.steps[1]["Linear_adjacency"]
    assert elements == 16 and values.sum() == 4
    assert run.lost == []


def test_complex_and_half_parameters(watch):
    session = watch()
    model = nn.ParameterDict({"c": nn.Parameter(torch.ones(3, dtype=torch.complex64)),
                              "h": nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
                              "e": nn.Parameter(torch.zeros(0)), "s": nn.Parameter(torch.tensor(2.0))})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ((model["c"] * (1 + 2j)).abs().sum() + model["h"].float().sum() + model["e"].sum() + model["s"]).backward()
    optimizer.step()
    run = session.made[0]
    assert run.spec("ParameterDict_h")["dtype"] == "bfloat16" and run.spec("ParameterDict_c")["dtype"] == "complex64"
    assert run.steps[0]["ParameterDict_s"] == 2 and run.steps[0]["ParameterDict_c"][0] == 1


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(20, 20, dtype=torch.complex64))
        self.gain = nn.Parameter(torch.tensor(3 - 4j, dtype=torch.complex128))
        self.frozen = nn.Parameter(torch.randn(4, dtype=torch.complex64), requires_grad=False)
        self.register_buffer("rotation", torch.polar(torch.ones(300), torch.arange(300.0)))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.weight * self.gain).abs().square()


def train_spectral(steps=2):
    torch.manual_seed(3)
    model, seen = Spectral(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 20)).mean().backward()
        seen.append({**{k: v.detach().clone().numpy() for k, v in model.state_dict().items()},
                     "gradient/Spectral_weight": model.weight.grad.clone().numpy()})
        optimizer.step()
    return seen


@pytest.mark.parametrize("raw", [False, True])
def test_statistics_of_complex_parameters_are_those_of_their_magnitudes(tmp_path, raw):
    config = {"rules": [], "collections": {name: {"save_interval": 1} for name in ("weights", "gradients")} if raw else {}}
    with tdbg.attach(dir=str(tmp_path / "run"), config=config):
        seen = train_spectral()
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.dropped() == []
    for step, values in enumerate(seen):
        for name, value in values.items():
            row, sizes = trial[name].summary(step), np.abs(value.astype(np.complex128))
            assert (row.count, row.zero_count, row.nan_count) == (value.size, (value == 0).sum(), 0), name
            for field, expected in (("min", sizes.min()), ("max", sizes.max()), ("mean", sizes.mean()),
                                    ("variance", sizes.var()), ("l2", np.sqrt((sizes ** 2).sum()))):
                assert getattr(row, field) == pytest.approx(expected, rel=1e-6, abs=1e-12), (name, field)
            assert trial[name].reduction_value(step, "l2") == pytest.approx(np.sqrt((sizes ** 2).sum()))
            assert trial[name].reduction_value(step, "mean", abs=True) == pytest.approx(sizes.mean())
            kept = raw and name != "rotation"
            assert trial[name].dtype == str(value.dtype)
            if kept:
                assert np.array_equal(trial[name].value(step), value), name
                assert trial[name].reduction_value(step, "mean") == pytest.approx(value.mean()), "of x, not of |x|"
            else:
                for ask in (lambda: trial[name].value(step), lambda: trial[name].reduction_value(step, "mean")):
                    with pytest.raises(tdbg.exceptions.TensorUnavailableForStep):
                        ask()
    assert trial["weight"].histogram(0).count.sum() == 400


def test_statistics_of_complex_parameters_on_a_device(watch):
    session = watch(force_lane=True)
    seen = train_spectral()
    session.finish("completed")
    run = session.made[0]
    assert run.lost == []
    for step, values in zip(run.steps, seen, strict=True):
        row, sizes = step.summaries["Spectral_weight", 0, 0], np.abs(values["weight"].astype(np.complex128))
        assert np.allclose(row[[0, 4, 5, 6, 7, 8]], [400, 0, sizes.min(), sizes.max(), sizes.mean(), sizes.var()])
        assert np.array_equal(step["Spectral_gain"], values["gain"]), "small ones travel as they are"
        assert np.array_equal(step["Spectral_frozen"], values["frozen"])


def test_lazy_modules(watch):
    session = watch()
    model = nn.Sequential(nn.LazyLinear(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(model, optimizer, torch.ones(2, 4))
    assert session.made[0].spec("Sequential_0.weight")["shape"] == (3, 4)


def test_optimizer_state_on_request(watch):
    session = watch(kinds=("weight", "bias", "gradient", "loss", "optimizer"))
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        one_step(model, optimizer, torch.ones(2, 4))
    step = session.made[0].steps[1]
    assert {"optimizer/Linear_weight/exp_avg", "optimizer/Linear_bias/step"} <= {k[0] for k in step.values}


@pytest.mark.parametrize("fused", [False, True])
def test_scaler_skip_is_a_step_that_says_so(watch, fused):
    session = watch()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for n in range(3):
        optimizer.zero_grad()
        x = torch.full((2, 4), float("inf") if n == 1 else 1.0)
        loss = nn.functional.mse_loss(model(x), torch.zeros(2, 3))
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        grad = model.weight.grad / scale
        scaler.step(optimizer)
        scaler.update()
        step = session.made[0].steps[n]
        assert step.skipped is (n == 1)
        assert step.scalars["context/loss_scale", 0] == scale == (4 if n == 2 else 8)
        if n != 1:
            assert step["MSELoss_output_0"] == pytest.approx(loss.item())
            assert step.scalars["backward_loss", 0] == pytest.approx(loss.item()), "unscaled"
            assert np.allclose(step["gradient/Linear_weight"], grad.numpy()), "unscaled"
    assert len(session.made[0].steps) == 3


def test_our_failure_is_counted_said_once_and_does_not_reach_training(watch, capsys):
    session = watch(strict=False)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(model, optimizer, torch.ones(2, 4))
    run = session.made[0]

    def broken(*args):
        raise RuntimeError("broken")

    run.put_many = broken
    for _ in range(12):
        one_step(model, optimizer, torch.ones(2, 4))
    said = capsys.readouterr().err
    assert said.count("could not capture") == 1 and "training goes on" in said
    assert [cause for cause, _, _ in run.lost] == ["adaptor_error"] * 10
    assert not session.listening, "disarmed after ten"
    assert not hasattr(torch.autograd.backward, "_tdbg")


class Lazy(dict):
    """What a model may return: its values are made when they are asked for, and cannot be made."""

    def values(self):
        raise KeyError("not loaded")


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(output=x)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.odd, self.fc = Returns(Lazy), nn.Linear(4, 3)

    def forward(self, x):
        self.odd(x)
        return self.fc(x)


def test_a_module_whose_outputs_cannot_be_captured_costs_only_itself(watch, capsys):
    session = watch(strict=False, kinds=("output",))
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(13):
        one_step(model, optimizer, torch.ones(2, 4))
    run = session.made[0]
    assert capsys.readouterr().err.count("tdbg: ") == 1 and session.listening
    assert [cause for cause, _, _ in run.lost] == ["adaptor_error"] * 11
    assert run.lost[-1][2] == "output of odd: given up after 10 failures"
    assert all(step["fc_output_0"].shape == (2, 3) for step in run.steps)


class Late(Exception):
    pass


class Alarm:
    def __call__(self, signum, frame):
        raise Late

    def method(self, signum, frame):
        raise Late


def _late(message, signum, frame):
    raise Late(message)


@pytest.mark.parametrize("handler", [lambda signum, frame: _late("", signum, frame), Alarm(), Alarm().method,
                                     functools.partial(_late, "too long")],
                         ids=["function", "object", "method", "partial"])
def test_what_a_signal_handler_of_the_training_raises_inside_our_code_reaches_the_training(watch, capsys, handler):
    session = watch(strict=False)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(model, optimizer, torch.ones(2, 4))
    run, before = session.made[0], signal.signal(signal.SIGUSR2, handler)
    put_many = run.put_many

    def interrupted(*args):
        signal.raise_signal(signal.SIGUSR2)
        return put_many(*args)

    try:
        run.put_many = interrupted
        with pytest.raises(Late):
            one_step(model, optimizer, torch.ones(2, 4))
    finally:
        run.put_many = put_many
        signal.signal(signal.SIGUSR2, before)
    one_step(model, optimizer, torch.ones(2, 4))
    assert "could not capture" not in capsys.readouterr().err and session.listening
    assert [(cause, "own exception: Late" in text) for cause, _, text in run.lost] == [("adaptor_error", True)]


def test_run_that_cannot_be_opened_is_said_once(capsys):
    from tdbg.adaptors.torch.session import Session

    def refuse(**options):
        raise RuntimeError("no room")

    session = Session(refuse)
    session.guard.strict = False
    session.install()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        one_step(model, optimizer, torch.ones(2, 4))
    assert capsys.readouterr().err.count("no room") == 1


def test_no_optimizer_no_run(watch):
    session = watch()
    model = nn.Linear(4, 3)
    nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
    model.eval()(torch.ones(2, 4))
    assert session.made == []
