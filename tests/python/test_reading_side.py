"""What the reading side promises of itself: an answer costs one call of the library, exceptions are the caller's, and what
a type checker is told is what there is."""

import ast
import doctest
import importlib
import os
import pathlib
import pkgutil
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tdbg._capture", reason="the extension modules are not built")
pytest.importorskip("tdbg._trial", reason="the extension modules are not built")

import tdbg  # noqa: E402
from tdbg import ModeKeys, _trial, create_trial, errors  # noqa: E402
from tdbg._capture import Run  # noqa: E402
from tdbg.compat.exceptions import SMDebugError  # noqa: E402
from tdbg.reading.summary import Column, Summary  # noqa: E402
from tdbg.reading.tensor import Tensor  # noqa: E402
from tdbg.rules import view  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "v1.2"
TRAIN, EVAL = 1, 2
# Raw weights at every second TRAIN step and at every EVAL step; statistics at every step; reductions of biases.
PLAN = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true, "raw": {"train": {"interval": 2}, "eval": {"interval": 1}}},
  {"name": "biases", "kinds": ["bias"], "keep": true},
  {"name": "losses", "kinds": ["loss"], "keep": true}]}"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """TRAIN 0 to 3, EVAL 4 and 5, in each a weight of 300 elements, a bias of 3, a complex tensor at step 1, and the loss."""
    directory = str(tmp_path_factory.mktemp("reading") / "run")
    writer = Run.open(directory=directory, plan_json=PLAN)
    weight = writer.define("Net_fc.weight", "fc.weight", "weight", "linear", "float32", [300])
    bias = writer.define("Net_fc.bias", "fc.bias", "bias", "linear", "float32", [3])
    loss = writer.define("Loss_output_0", "loss", "loss", "", "float32", [])
    odd = writer.define("odd", "odd", "weight", "", "complex64", [2])
    for step, mode in enumerate([TRAIN] * 4 + [EVAL] * 2):
        writer.begin_step(mode)
        writer.put_array(weight, np.random.default_rng(step).standard_normal(300).astype(np.float32))
        writer.put_array(bias, np.array([-1, 2, step], np.float32))
        writer.put_array(loss, np.array(1 / (step + 1), np.float32))
        if step == 2:
            writer.put_array(odd, np.array([1 + 1j, 3], np.complex64))
        writer.end_step()
    writer.end("done")
    return directory


class Counting:
    """The library's trial, and the names of what was asked of it."""

    def __init__(self, raw):
        self.raw, self.calls = raw, []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self.raw, name)


QUESTIONS = {
    "value": lambda t, *at: t("fc.weight").value(*at),
    "mapped": lambda t, *at: t("fc.weight").slice(at[0], np.s_[3:5], *at[1:]),
    "shape": lambda t, *at: t("fc.weight").shape(*at),
    "reduction": lambda t, *at: t("fc.weight").reduction_value(at[0], "mean", *at[1:]),
    "saved_reductions": lambda t, *at: t("fc.weight").reduction_values(*at),
    "summary": lambda t, *at: t("fc.weight").summary(*at),
    "histogram": lambda t, *at: t("fc.weight").histogram(*at),
    "scalar": lambda t, *at: t("loss").scalar(*at),
}


@pytest.mark.parametrize("at", [(0,), (0, ModeKeys.TRAIN)])
@pytest.mark.parametrize("opens", [tdbg.open, create_trial])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_there_costs_one_call(run, opens, at, question):
    trial = opens(run)
    tensors = {name: trial.tensor(name) for name in ("fc.weight", "loss")}
    counting = Counting(trial._raw)
    for tensor in tensors.values():
        tensor._raw = trial._raw = counting
    QUESTIONS[question](tensors.__getitem__, *at)
    assert counting.calls == [question]


def test_a_rules_view_costs_one_call_too_and_ends_at_its_step(run):
    for judged in (view.JudgedTrial, view.SmdebugJudgedTrial):
        counting = Counting(_trial.open(run, -1, 0))
        trial = judged(counting)
        trial.up_to.shown = 2
        tensor = trial.tensor("fc.weight")
        counting.calls.clear()
        tensor.value(2)
        assert counting.calls == ["value"]
        for question, ask in QUESTIONS.items():
            for at in ((4,), (0, ModeKeys.EVAL), (3, ModeKeys.TRAIN)):
                with pytest.raises(errors.StepNotYetAvailable):
                    ask(trial.tensor, *at)
                    pytest.fail(f"{question} of {at} looked beyond the judged step")
    assert set(QUESTIONS) | {"quantile", "statistic"} == set(view.OF_A_STEP)


def test_a_rules_view_lets_no_question_about_a_step_pass_unseen():
    tree = ast.parse((ROOT / "python" / "tdbg" / "_trial.pyi").read_text())
    trial = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Trial")
    about_steps = {method.name for method in trial.body if isinstance(method, ast.FunctionDef)
                   and {"step", "global_step", "mode_step", "filter", "asked"} & {a.arg for a in method.args.args}}
    assert {"value", "mapped", "statistic", "step_workers", "steps", "frame", "global_step"} <= about_steps
    assert about_steps - set(vars(view.UpTo)) == set()


def _told(ask):
    try:
        return repr(ask())
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error}"


@pytest.mark.parametrize("opens", [tdbg.open, create_trial, lambda path: create_trial(path, range_steps=(1, 5))])
def test_one_call_says_what_the_single_questions_say(run, opens, monkeypatch):
    trial = opens(run)

    def answers():
        told = {}
        for name in ("fc.weight", "fc.bias", "loss", "odd"):
            tensor = trial.tensor(name)
            for worker in (None, "worker_0", "worker_9"):
                for mode in ("global", "train", "eval", "predict"):
                    for step in range(-1, 8):
                        for call in ("value", "slice", "scalar", "summary", "reduction_values", "histogram", "shape"):
                            arguments = {"mode": mode, "worker": worker}
                            told[name, worker, mode, step, call] = _told(
                                lambda: getattr(tensor, call)(step, **arguments))  # noqa: B023 - called at once
                        for of in ("max", "prod", "nonsense"):
                            told[name, worker, mode, step, of] = _told(
                                lambda: tensor.reduction_value(step, of, mode, worker))  # noqa: B023
        return told

    at_once = answers()
    monkeypatch.setattr(Tensor, "_at_once", lambda *unused: None)
    one_by_one = answers()
    assert {key: (at_once[key], one_by_one[key]) for key in at_once if at_once[key] != one_by_one[key]} == {}
    assert len({answer.split(":")[0] for answer in at_once.values()}) > 6     # many kinds of answers were compared


def test_exceptions_are_tdbgs_own_unless_the_trial_is_smdebugs(run):
    native, compatible = tdbg.open(run), create_trial(run)
    asks = [
        (lambda t: t.tensor("nothing"), errors.TensorUnavailable),
        (lambda t: t.tensor("fc.weight").value(77), errors.StepUnavailable),
        (lambda t: t.tensor("fc.bias").value(2), errors.TensorUnavailableForStep),
        (lambda t: t.tensor("fc.weight").value(0, worker="worker_9"), errors.InvalidWorker),
        (lambda t: t.tensor("fc.weight").workers(77), errors.TensorUnavailableForStep),
        (lambda t: t.tensor("fc.weight").reduction_value(0, "nonsense"), errors.InvalidArgumentError),
        (lambda t: t.wait_for_steps([77]), errors.NoMoreData),
        (lambda t: t.tensor_names(regex="a", collection="weights"), ValueError),
        (lambda t: t.tensor_names(regex=7), TypeError),
        (lambda t: t.frame("weights", regex="a"), ValueError),
    ]
    for ask, expected in asks:
        with pytest.raises(expected) as raised:
            ask(native)
        assert isinstance(raised.value, errors.TdbgError) and not isinstance(raised.value, SMDebugError), raised.value
        with pytest.raises(expected) as compat:
            ask(compatible)
        assert isinstance(compat.value, SMDebugError), compat.value


def test_a_traceback_shows_one_reason(run):
    with pytest.raises(errors.StepUnavailable) as raised:
        tdbg.open(run).tensor("fc.weight").value(77)
    assert raised.value.__context__ is None


def test_the_fields_of_a_summary_are_the_columns_that_are_stored():
    reported = [name for name in vars(_trial.Summary) if not name.startswith("_")]
    assert reported[:len(Summary.FIELDS)] == list(Summary.FIELDS)
    assert reported == [name for name, field in vars(Summary).items() if isinstance(field, Column)]
    assert [name for name, _, says in _trial.summary_columns() if says] == list(Summary.FIELDS)
    hints = set(view.Statistics.__annotations__) - {"tensor", "worker"}
    assert hints == {*Summary.FIELDS, "mean_abs", "std", "nonfinite_count", "value"} == set(view._COLUMNS)


def test_reading_loads_neither_the_capturing_side_nor_what_only_pictures_need():
    code = ("import sys, tdbg.reading.trial, tdbg.compat.trial, tdbg.rules.view\n"
            "print([name for name in sys.modules if name.startswith(('tdbg._capture', 'tdbg.adaptors', 'matplotlib', 'pandas'))])")
    home = str(pathlib.Path(tdbg.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": home})
    assert done.stdout.strip() == "[]"


def test_a_type_checker_is_told_of_the_names_that_there_are():
    told = {}
    tree = ast.parse(pathlib.Path(tdbg.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    for node in block.body:
        for alias in node.names:
            assert alias.name == alias.asname    # it is exported
            told[alias.name] = f".{node.module}" if node.module else None
    assert told == {**tdbg._WHERE, **dict.fromkeys(tdbg._MODULES)}
    for name in told:
        assert getattr(tdbg, name) is not None


@pytest.mark.parametrize("name", ["_capture", "_trial"])
def test_the_stubs_of_the_extension_modules_are_current(name, monkeypatch):
    nanobind = pytest.importorskip("nanobind")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    stubs = importlib.import_module("stubs")
    kept = (ROOT / "python" / "tdbg" / f"{name}.pyi").read_text()
    if f"nanobind {nanobind.__version__}." not in kept.splitlines()[0]:
        pytest.skip("another version of nanobind than tools/requirements.txt names")
    assert stubs.stub(name) == kept, "run tools/stubs.py"
    assert (pathlib.Path(tdbg.__file__).parent / "py.typed").exists()    # the wheel has them, too
    assert (pathlib.Path(tdbg.__file__).parent / f"{name}.pyi").exists()


def _modules():
    found = []
    for package in ("tdbg.reading", "tdbg.compat", "tdbg.rules"):
        for info in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
            found.append(info.name)
    return found + ["tdbg.errors", "tdbg.modes", "tdbg.places", "tdbg.words", "tdbg.checkpoint", "tdbg.program"]


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings_run_over_a_golden_run(name):
    module = importlib.import_module(name)
    names = {"trial": tdbg.open(GOLDEN), "tdbg": tdbg, "np": np}
    results = doctest.testmod(module, extraglobs=names, optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS)
    assert results.failed == 0


def test_every_public_name_of_the_reading_side_says_what_it_is():
    silent = []
    for name in _modules():
        module = importlib.import_module(name)
        for key, value in vars(module).items():
            if key.startswith("_") or value is view.UpTo or getattr(value, "__module__", None) != name or not callable(value):
                continue
            if not value.__doc__:
                silent.append(f"{name}.{key}")
            if isinstance(value, type):
                silent += [f"{name}.{key}.{member}" for member, of in vars(value).items()
                           if not member.startswith("_") and (callable(of) or isinstance(of, property)) and not of.__doc__]
    assert silent == []


def test_a_run_is_opened_by_what_the_command_line_calls_it(tmp_path, monkeypatch):
    tool = os.environ.get("TDBG_CLI", str(ROOT / "build" / "tdbg"))
    if not os.path.exists(tool):
        pytest.skip("the command line is not built")
    monkeypatch.setenv("TDBG_CLI", tool)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "tdbg-runs" / "a"
    shutil.copytree(GOLDEN, there)
    for word in ("last", "a"):
        assert tdbg.open(word).path == str(there)
    shutil.copytree(GOLDEN, tmp_path / "a")
    assert os.path.samefile(tdbg.open("a").path, tmp_path / "a"), "a directory that is there comes first"
    with pytest.raises(errors.NotFoundError, match="nobody"):
        tdbg.open("nobody")
    monkeypatch.setenv("TDBG_CLI", "/nowhere/tdbg")  # then only paths are runs
    with pytest.raises(errors.NotFoundError, match="last"):
        tdbg.open("last")
