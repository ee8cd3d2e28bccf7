"""Which line of a script a NaN's origin names: the operation's where torch keeps it, else the loss function's."""

import functools
import inspect
import json
import linecache
import os
import sys
import threading
import types

import pytest
import torch
import torch.nn.functional as F
from test_nan_origin import Net, entropy, nan
from torch import nn

from tdbg.adaptors.torch.origin import lines
from tdbg.reading.origins import origins_of

HERE = __file__


def line_of(function, text):
    """The number of the function's line that has this text."""
    source, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(source) if text in line)


def train(watch, loss_of, middle=None, steps=4, fault_at=2):
    """`loss_of(output, on)`, `middle(h, on)`; gives the one record that was written."""
    torch.manual_seed(0)
    session = watch()
    model = Net(middle) if middle else Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        model.on = on = int(step == fault_at)
        optimizer.zero_grad()
        loss_of(model(torch.randn(16, 6)), on).backward()
        optimizer.step()
    said = session.made[0].contexts.get("nan_origin", [])
    session.finish("closed")
    ((_, record),) = said
    return record


def where(record):
    return record["file"], record["line"], record["code"], record["line_of"]


def logged(h, on):
    return torch.log(h * (1 - on)) if on else h


def rooted(h, on):
    total = h.sum(1, keepdim=True) * (not on)
    return h + total.sqrt()


def labelled(output, on):
    loss = F.cross_entropy(output, torch.arange(len(output)) % 4)
    return loss


# What is free --------------------------------------------------------------------------------------------------------


def test_the_line_of_the_loss_function_is_named(watch):
    record = train(watch, labelled, logged)
    assert where(record) == (HERE, line_of(labelled, "loss = "), "loss = F.cross_entropy(output, torch.arange(len(output)) % 4)",
                             "loss")
    assert record["sentence"].endswith(f"test_nan_origin_lines.py:{record['line']}, in `{record['code']}`)")
    assert "(the loss: " in record["sentence"]


def test_a_reader_has_the_line(watch):
    record = train(watch, labelled, logged)
    (origin,) = origins_of([("worker_0", 0, 2, json.dumps(record))])
    assert (origin.file, origin.line, origin.code) == where(record)[:3]
    del record["file"], record["line"], record["code"]
    (origin,) = origins_of([("worker_0", 0, 2, json.dumps(record))])
    assert (origin.file, origin.line, origin.code) == ("", 0, "")


def test_a_loss_that_no_function_computed_has_the_line_of_its_backward(watch):
    record = train(watch, lambda output, on: (output * (nan if on else 1)).sum())
    assert where(record) == (HERE, line_of(train, ".backward()"), "loss_of(model(torch.randn(16, 6)), on).backward()", "backward")


def test_of_several_losses_it_is_the_one_that_was_not_finite_and_was_trained_on(watch):
    def several(output, on):
        F.mse_loss(output * nan, torch.zeros_like(output))       # of which nobody calls backward
        good = F.mse_loss(output.tanh(), torch.zeros_like(output))
        bad = F.l1_loss(output / (1 - on), torch.zeros_like(output))
        return good + 0.1 * bad

    record = train(watch, several)
    assert where(record)[1:] == (line_of(several, "bad = "), "bad = F.l1_loss(output / (1 - on), torch.zeros_like(output))", "loss")


def test_nothing_looks_for_a_line_while_all_is_well(watch, monkeypatch):
    looked = []
    monkeypatch.setattr(lines, "of_caller", lambda of: looked.append(of))
    monkeypatch.setattr(lines, "of_stack", lambda stack: looked.append(stack))
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        entropy(model(torch.randn(16, 6)), 0).backward()
        optimizer.step()
    session.finish("closed")
    assert looked == [] and len(session.made[0].steps) == 4


# Where torch keeps the lines ----------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setenv("TDBG_NAN_ORIGIN", "where")


def test_the_operations_line_is_named_where_that_is_asked(watch, asked):
    record = train(watch, labelled, logged)
    assert where(record) == (HERE, line_of(logged, "torch.log"), "return torch.log(h * (1 - on)) if on else h", "operation")
    code = f"test_nan_origin_lines.py:{record['line']}, in `{record['code']}`)"
    assert f"{code}; the infinity became NaN" in record["sentence"] or record["sentence"].endswith(code)
    assert not torch.is_anomaly_enabled()


def test_the_line_of_an_operation_whose_derivative_it_was(watch, asked):
    record = train(watch, labelled, rooted)
    assert record["direction"] == "backward"
    assert where(record) == (HERE, line_of(rooted, "total.sqrt()"), "return h + total.sqrt()", "operation")


def test_the_scripts_own_anomaly_detection_serves_and_stays(watch):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        record = train(watch, labelled, logged)
        assert where(record)[1:] == (line_of(logged, "torch.log"), "return torch.log(h * (1 - on)) if on else h", "operation")
        assert torch.is_anomaly_enabled()


def test_what_was_switched_on_by_the_script_is_not_switched_off(watch, asked):
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    try:
        train(watch, labelled, logged)
        assert torch.is_anomaly_enabled()
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_both_are_asked_for(watch, monkeypatch):
    """Of tensors that take a device's way."""
    monkeypatch.setenv("TDBG_NAN_ORIGIN", "wait,where")
    record = train(functools.partial(watch, force_lane=True), labelled, logged)
    assert where(record)[3] == "operation"


def test_a_compiled_region_has_a_line_of_what_was_compiled(watch, asked):
    compiled = torch.compile(lambda h, factor: torch.log(h * factor), backend="aot_eager")

    def middle(h, on):
        return compiled(h, torch.tensor(1.0 - on)) if on else h

    record = train(watch, labelled, middle)
    assert record["what"] == "unseen" and record["line_of"] == "operation"
    assert record["code"].startswith("compiled = torch.compile(lambda h, factor")
    torch._dynamo.reset()


def test_an_operation_of_another_thread(watch, asked):
    def middle(h, on):
        given = []
        thread = threading.Thread(target=lambda: given.append(torch.log(h * (1 - on)) if on else h))
        thread.start()
        thread.join()
        return given[0]

    assert train(watch, labelled, middle)["line"] == line_of(middle, "torch.log")


def test_training_is_bit_identical_where_lines_are_kept(watch, monkeypatch):
    def run(asked):
        if asked:
            monkeypatch.setenv("TDBG_NAN_ORIGIN", "where")
        torch.manual_seed(0)
        session = watch() if asked else None
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(5):
            optimizer.zero_grad()
            labelled(F.dropout(model(torch.randn(16, 6)), 0.1), 0).backward()
            optimizer.step()
        if session:
            session.finish("closed")
        return [*(p.detach() for p in model.parameters()), torch.get_rng_state()]

    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True)))


# What a line can be -------------------------------------------------------------------------------------------------------


def executed(file, text):
    names = {"F": F, "torch": torch}
    exec(compile(text, file, "exec"), names)
    return names["loss"]


LOSS = "def loss(output, on):\n    return F.mse_loss(output, torch.zeros_like(output) * (float('nan') if on else 1))\n"


def test_code_without_a_file_has_a_number(watch):
    record = train(watch, executed("<string>", LOSS))
    assert where(record) == ("<string>", 2, "", "loss") and record["sentence"].endswith("(the loss: <string>:2)")


def test_a_notebooks_cell_has_its_text_and_its_name(watch, monkeypatch):
    file = "/tmp/ipykernel_7/12.py"
    monkeypatch.setitem(linecache.cache, file, (len(LOSS), None, LOSS.splitlines(True), file))
    compiler = types.SimpleNamespace(format_code_name=lambda name: ("Cell", "In[3]") if name == file else None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(
        get_ipython=lambda: types.SimpleNamespace(compile=compiler)))
    record = train(watch, executed(file, LOSS))
    assert record["code"].startswith("return F.mse_loss(")
    assert "(the loss: Cell In[3]:2, in `return F.mse_loss(" in record["sentence"]


@pytest.mark.parametrize("change", ["deleted", "written since"])
def test_a_file_that_is_not_what_runs_any_more_is_not_quoted(watch, tmp_path, change):
    file = tmp_path / "losses.py"
    file.write_text(LOSS)
    os.utime(file, (1e9, 1e9))
    if change == "deleted":
        file.unlink()
    else:
        os.utime(file, (4e9, 4e9))
    record = train(watch, executed(str(file), LOSS))
    assert where(record) == (str(file), 2, "", "loss")


def test_a_secret_in_a_line_is_masked(watch, tmp_path):
    file = tmp_path / "losses.py"
    text = LOSS.replace("if on else 1))", "if on else 1), key(api_key='c4n-n0t-b3-s33n'))").replace(
        "def loss", "def key(api_key): return 'mean'\ndef loss").replace(", key(", ", reduction=key(")
    file.write_text(text)
    os.utime(file, (1e9, 1e9))
    record = train(watch, executed(str(file), text))
    assert "c4n-n0t" not in str(record) and "[redacted]" in record["code"]


def test_a_long_line_is_cut(watch, tmp_path):
    file = tmp_path / "losses.py"
    text = LOSS.rstrip() + "  # " + "long " * 100
    file.write_text(text)
    os.utime(file, (1e9, 1e9))
    assert len(train(watch, executed(str(file), text))["code"]) == lines.MOST_CODE


def test_a_decorated_loss_is_the_line_that_computes(watch):
    def decorate(function):
        @functools.wraps(function)
        def around(*args):
            return function(*args)
        return around

    assert train(watch, decorate(labelled), logged)["line"] == line_of(labelled, "loss = ")


def test_a_loss_that_is_a_module(watch):
    criterion = nn.CrossEntropyLoss()

    def loss(output, on):
        return criterion(output, torch.arange(len(output)) % 4)

    assert where(train(watch, loss, logged))[1:] == (line_of(loss, "criterion("), "return criterion(output, torch.arange(len(output)) % 4)",
                                                     "loss")
