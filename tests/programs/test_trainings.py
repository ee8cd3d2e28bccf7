"""Programs that people train with, bare and under `tdbg run`: the same to the last digit, and the run says what they say."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from table import ALL, FITS, MAIN, SEARCHES, Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TDBG_BIN", str(ROOT / "build" / "tdbg"))
HERE = pathlib.Path(sys.prefix).name.removeprefix(".venv").removeprefix("-")
SECONDS = 300
#: What wrappers put into a parameter's path; `module` alone is many a layer's own word for what is inside it.
WRAPPED = re.compile(r"_module\.|_orig_mod\.|_wrapped_module\.")


pytest.importorskip("tdbg._capture", reason="the extension modules are not built")


@dataclasses.dataclass
class Outcome:
    program: Program
    bare: list[str]
    watched: list[str]
    told: list[str]
    folder: pathlib.Path
    run: object

    def said(self, what: str) -> list[float]:
        return [float(line.split()[1]) for line in self.bare if line.startswith(what + " ")]

    def series(self, name: str, mode: str) -> list[float]:
        if not self.run.has_tensor(name):
            return []
        tensor = self.run.tensor(name)
        return [float(tensor.value(n, mode=mode)) for n in tensor.steps(mode=mode, kind="any")]


def lines(done: subprocess.CompletedProcess) -> list[str]:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [line for line in done.stdout.splitlines() if line.startswith(("loss ", "evaluated ", "steps ", "weights "))]


def start(script: str, arguments: tuple[str, ...], folder: pathlib.Path, *before: str, **environment: str) -> subprocess.Popen:
    own = folder / "own"
    own.mkdir(parents=True)
    arguments = tuple(str(own) if a == "FOLDER" else a for a in arguments)
    script = str(ROOT / "tests" / "programs" / "trainings" / (script + ".py"))
    known = {k: v for k, v in os.environ.items() if k not in ("TDBG_RUN", "TDBG_ATTEMPT")}
    return subprocess.Popen([*before, sys.executable, script, *arguments], cwd=own, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**known, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(own / "hf"),
                                 "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "", **environment})


def end(process: subprocess.Popen) -> subprocess.CompletedProcess:
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def bare_and_watched(script: str, arguments: tuple[str, ...], folder: pathlib.Path) -> list[subprocess.CompletedProcess]:
    """Beside each other: most of their time they import."""
    both = [start(script, arguments, folder / "bare"),
            start(script, arguments, folder / "watched", BINARY, "run", "--dir", str(folder / "run"), "--", TDBG_STRICT="1",
                  PROGRAM_PORT="29534")]
    try:
        return [end(process) for process in both]
    finally:
        for process in both:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module", params=[p for p in ALL if HERE in p.where], ids=lambda p: p.name)
def outcome(request, tmp_path_factory):
    import tdbg
    program, folder = request.param, tmp_path_factory.mktemp("program")
    bare, watched = bare_and_watched(program.script, program.arguments, folder)
    told = [line for line in watched.stderr.splitlines() if line.startswith("tdbg: ")]
    return Outcome(program, lines(bare), lines(watched), told, folder, tdbg.open(str(folder / "run")))


def test_what_it_says_is_the_same_watched_or_not(outcome):
    assert len(outcome.bare) > 1 and outcome.bare == outcome.watched


def test_a_step_is_an_update(outcome):
    assert len(outcome.run.steps(mode="TRAIN", kind="any")) == outcome.said("steps")[-1]


def assert_agree(program, recorded, said):
    np.testing.assert_allclose(recorded, said, rtol=0 if program.exact else 2e-6, atol=0 if program.exact else 2e-7)


def test_losses_are_those_that_it_says(outcome):
    program, said = outcome.program, outcome.said("loss")
    if not program.train:
        assert not said
        return
    recorded = outcome.series(program.train, "TRAIN")
    assert len(recorded) == len(said)
    assert_agree(program, recorded, said)


def test_evaluations_are_those_that_it_says(outcome):
    program, said = outcome.program, outcome.said("evaluated")
    if not program.evaluated:
        assert not said
        return
    recorded = outcome.series(program.evaluated, "EVAL")
    assert recorded and len(recorded) % len(said) == 0
    # Of several batches the program says the mean.
    recorded = np.reshape(recorded, (len(said), -1)).mean(axis=1)
    assert_agree(program, recorded, said)


def test_nothing_is_lost(outcome):
    assert outcome.run.dropped() == [] and outcome.run.damage() == []
    assert not [line for line in outcome.told if "dropped" in line or "not captured" in line]


def test_parameters_have_the_models_names(outcome):
    run, roots = outcome.run, outcome.program.roots
    parameters = {name for kind in ("weights", "biases") for name in run.tensor_names(collection=kind)}
    gradients = {name.removeprefix("gradient/") for name in run.tensor_names(collection="gradients")}
    assert gradients and parameters
    assert not [name for name in parameters | gradients if WRAPPED.search(name)]
    assert not [name for name in parameters | gradients if not name.startswith(roots)]
    assert gradients <= parameters
    if not outcome.program.frozen:
        assert gradients == parameters


def test_losses_are_losses(outcome):
    names = outcome.run.tensor_names(collection="losses")
    assert names
    assert not [name for name in names if not re.fullmatch(r"\w*Loss_output_\d+|backward_loss(_\d+)?", name)]


def test_a_healthy_program_is_no_finding(outcome):
    done = subprocess.run([BINARY, "check", str(outcome.folder / "run"), "--rule", "recommended", "--json"],
                          capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    found = {rule["rule"]: rule["StatusDetails"] for rule in answer["rules"] if rule["RuleEvaluationStatus"] != "NoIssuesFound"}
    assert len(answer["rules"]) > 1 and not found and done.returncode == 0, done.stderr


@pytest.mark.parametrize("library", [pytest.param(name, marks=pytest.mark.long) if at else name for at, name in enumerate(SEARCHES)]
                         if HERE == MAIN else ())
def test_each_fit_of_a_search_is_a_run(library, tmp_path):
    import tdbg
    pytest.importorskip(library)
    bare, watched = bare_and_watched("sklearn_search", (library,), tmp_path)
    assert len(lines(bare)) > 2 and lines(bare) == lines(watched)
    folders = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("run"))
    assert folders == ["run", *(f"run-{n}" for n in range(2, FITS + 1))]
    runs = [tdbg.open(str(tmp_path / name)) for name in folders]
    said = [float(line.split()[1]) for line in lines(bare) if line.startswith("loss ")]
    recorded = []
    for run in runs:
        # Of the evaluation set; LightGBM has its own name for one that is the training data.
        name, = (n for n in run.tensor_names() if n.endswith("-" + SEARCHES[library]))
        tensor = run.tensor(name)
        assert len(run.steps(mode="TRAIN", kind="any")) == len(said) and run.dropped() == [] and not run.damage()
        recorded.append([tensor.value(n, mode="TRAIN").item() for n in tensor.steps(mode="TRAIN", kind="any")])
    assert said in recorded


def test_every_program_has_a_row():
    names = [program.name for program in ALL]
    assert len(names) == len(set(names)) and all(program.where for program in ALL)
    there = {path.stem for path in (ROOT / "tests" / "programs" / "trainings").glob("*.py")}
    assert there - {"said", "language"} == {program.script for program in ALL} | {"sklearn_search"}
