"""What adaptors share (adaptors/session.py), without a framework: a loop of our own writes a real run."""

import json
import os
import pathlib
import random
import subprocess

import numpy as np
import pytest

from tdbg._capture import Forecast, Run
from tdbg.adaptors.ranks import LAUNCHER, of_environment
from tdbg.adaptors.session import MODES, LoopSession
from tdbg.adaptors.steps import EVAL, GLOBAL, PREDICT, TRAIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("TDBG_CLI", str(ROOT / "build" / "tdbg"))
NAMES = {TRAIN: "train", EVAL: "eval", PREDICT: "predict", GLOBAL: "global"}


def plan(collections=(), **keys):
    return json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 2, "collections": list(collections), **keys})


class Loop(LoopSession):
    """A framework whose tensors are NumPy's."""

    def __init__(self, directory, plan_json):
        super().__init__("a loop", Run.open, {"directory": str(directory), "plan_json": plan_json})
        self.guard.strict = True

    def adaptor(self):
        return "loop 1"

    def rank(self):
        return 0, 1

    def record_value(self, name, tensor, collection):
        ident = self.own_id(name, collection, (name,), lambda: self.run.define(
            name, name, "", "", "float32", list(tensor.shape), True, -1, [], [collection]))
        if ident is not None:
            self.soon(lambda: self.port.put_array(ident, tensor))

    def step(self, mode=TRAIN):
        """What the run and what the forecast said of it."""
        foreseen = self.forecast.due(mode, self.next_step(mode))
        due = self.begin_step(mode)
        self.waiting.write()
        self.port.end_step()
        self.step_is_over()
        self.take_request()
        return due, foreseen

    def _last_words(self):
        self.begin_end()

    def disarm(self):
        self.state = "off"


@pytest.fixture
def loop(tmp_path):
    made = []

    def start(plan_json):
        made.append(Loop(tmp_path / "run", plan_json))
        assert made[-1].ensure_open()
        return made[-1]

    yield start
    for session in made:
        session.finish("completed")


@pytest.mark.parametrize("seed", range(8))
def test_what_is_foretold_is_what_the_run_says(loop, seed):
    chance = random.Random(seed)

    def schedule():
        return {"start": chance.choice([0, 3]), "end": chance.choice([-1, 9]), "interval": chance.choice([1, 2, 5, 500]),
                "steps": sorted(chance.sample(range(20), chance.randrange(3)))}

    collections = [{"name": f"c{n}", "keep": chance.random() < 0.8, "summaries": chance.random() < 0.5,
                    "raw": {NAMES[mode]: schedule() for mode in MODES if chance.random() < 0.6}} for n in range(3)]
    session = loop(plan(collections, summaries_every=chance.choice([0, 1, 2, 3])))
    for _ in range(60):
        due, foreseen = session.step(chance.choice(MODES))
        assert foreseen == due
    raw = Forecast(plan([{**c, "summaries": False} for c in collections], summaries_every=0))
    for mode in MODES:
        for step in range(20):
            assert raw.raw_due(mode, step) == raw.due(mode, step) == session.forecast.raw_due(mode, step)


def ask(directory, steps):
    subprocess.run([TOOL, "capture", str(directory), "--collect", "mine", "--steps", str(steps)], check=True)


def test_the_latest_request_for_more_detail_holds_as_it_does_in_the_run(loop):
    once = {"start": 0, "end": 1, "interval": 1}
    session = loop(plan([{"name": "mine", "keep": True, "raw": {"train": once}}], summaries_every=0))
    session.record_value("x", np.array([3], np.float32), "mine")
    assert [session.step() for _ in range(2)] == [(True, True), (False, False)] and all(session.idle.values())
    ask(session.run.directory, 50)
    told = [session.step() for _ in range(4)]
    assert told[-1] == (True, True) and not any(session.idle.values())
    ask(session.run.directory, 3)
    told += [session.step() for _ in range(10)]
    assert told[-1] == (False, False) and all(session.idle.values())
    assert all(due == foreseen for due, foreseen in told)


def test_a_step_taken_back_is_counted_once(loop):
    session = loop(plan([{"name": "mine", "keep": True}], summaries_every=2))
    session.begin_step(TRAIN)
    session.cancel_step()
    assert session.open_mode is None and session.next_step(TRAIN) == 0
    assert [session.step() for _ in range(3)] == [(True, True), (False, False), (True, True)]


def test_steps_of_a_script_that_says_no_mode_are_of_one(loop):
    session = loop(plan([{"name": "mine", "keep": True}], summaries_every=2))
    assert [session.step(GLOBAL) for _ in range(3)] == [(True, True), (False, False), (True, True)]


def test_what_the_script_records_between_steps_is_of_the_next_one(loop, capfd):
    session = loop(plan([{"name": "mine", "keep": True, "raw": {"train": {"interval": 1}}}]))
    session.record_value("x", np.array([3], np.float32), "mine")
    session.record_value("y", np.array([4], np.float32), "others")
    session.record_value("y", np.array([5], np.float32), "others")
    assert not session.run.counters()["raws"]
    session.step()
    assert session.run.counters()["raws"] == 1
    assert capfd.readouterr().err.count("does not keep the collection 'others'") == 1


def test_whose_worker_it_is(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "DMLC_WORKER_ID", "DMLC_NUM_WORKER"):
        monkeypatch.delenv(name, raising=False)
    pairs = LAUNCHER, ("DMLC_WORKER_ID", "DMLC_NUM_WORKER")
    assert of_environment(*pairs) is None
    monkeypatch.setenv("DMLC_WORKER_ID", "1")
    monkeypatch.setenv("DMLC_NUM_WORKER", "3")
    assert of_environment(*pairs) == (1, 3) and of_environment() is None
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert of_environment(*pairs) == (2, 4)
    monkeypatch.setenv("RANK", "first")
    assert of_environment(*pairs) is None
