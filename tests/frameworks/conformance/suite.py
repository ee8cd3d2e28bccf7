"""The checks, one method each. A framework's test module is a subclass that names it.

Everything is recorded raw at every step and read back through the library; what it is compared with comes from the
training itself (framework.py). A check that a framework cannot have is run the other way round: nothing is there.
"""

import contextlib
import gc
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import weakref

import numpy as np
import pytest

from .framework import COLLECTIONS, Framework, Step

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
NOTHING = {"summaries": {"every": 0}, "context": False, "record_end": False, "rules": [],
           "collections": {c: {"summaries": False} for c in ("weights", "biases", "gradients", "losses", "metrics")}}
SECONDS = 240


def tool():
    """The `tdbg` program."""
    found = os.environ.get("TDBG_CLI") or os.environ.get("TDBG_BIN") or shutil.which("tdbg")
    built = ROOT / "build" / "tdbg"
    if not found and not built.exists():
        pytest.fail(f"no tdbg program: set TDBG_CLI, or build {built}")
    return found or str(built)


class OwnMistake(Exception):
    """Raised by a training's own code."""


class Conformance:
    framework = None
    #: Check -> why it fails today. It must fail: one that passes again fails the suite until it is taken out here.
    known: dict = {}

    @pytest.fixture(autouse=True)
    def _prepare(self, monkeypatch, tmp_path, request):
        if why := self.known.get(request.node.originalname):
            request.applymarker(pytest.mark.xfail(reason=why, strict=True))
        monkeypatch.setenv("TDBG_STRICT", "1")      # a failure of the adaptor's own is a failure here
        monkeypatch.setenv("TDBG_CLI", tool())
        for name in ("TDBG_RUN", "TDBG_ATTEMPT", "RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        self.directory = str(tmp_path / "run")

    # ---- helpers

    def config(self, collections=None):
        wanted = self.framework.names if collections is None else collections
        return {"rules": [], "collections": {c: {"save_interval": 1, "summaries": False} for c in wanted}}

    def recorded(self, train, config=None):
        """(what train() returned, the trial of what was recorded of it)."""
        import tdbg
        with self.framework.attached(self.directory, self.config() if config is None else config):
            trained = train()
        return trained, tdbg.open(self.directory)

    def runs(self):
        import tdbg
        places = [self.directory, *(f"{self.directory}-{n}" for n in range(2, 9))]
        return [tdbg.open(d) for d in places if os.path.isdir(d)]

    def tolerance(self, name):
        return next((t for pattern, t in self.framework.approximate.items() if re.search(pattern, name)), None)

    def difference(self, trial, steps, only=None):
        """None if the run holds exactly these steps with exactly these values, else what differs first."""
        if trial.dropped() or trial.damage():
            return f"dropped: {trial.dropped()} {trial.damage()}"
        if trial.steps() != list(range(len(steps))):
            return f"steps {trial.steps()}, the training made {len(steps)}"
        counts = {}
        for number, step in enumerate(steps):
            place = (trial.mode(number).name, trial.mode_step(number))
            if place != (step.mode, counts.setdefault(step.mode, 0)):
                return f"step {number} is {place}, the training's was {step.mode} {counts[step.mode]}"
            counts[step.mode] += 1
            for name, value in step.values.items():
                if only is not None and not only(name):
                    continue
                if name not in trial.tensor_names() or number not in trial[name].steps(kind="raw"):
                    return f"{name} is not there at step {number}"
                if said := different(trial[name].value(number), value, self.tolerance(name)):
                    return f"{name} at step {number}: {said}"
        expected = {(name, number) for number, step in enumerate(steps) for name in step.values}
        for name in {n for c in self.framework.names for n in trial.tensor_names(collection=c)}:
            more = [s for s in trial[name].steps(kind="raw") if (name, s) not in expected]
            if more and (only is None or only(name)):
                return f"{name} is recorded at steps {more}, where the training had none"
        return None

    @contextlib.contextmanager
    def unchanged(self):
        """What the adaptor replaces is, afterwards, what it was."""
        before = [getattr(owner, name) for owner, name in self.framework.replaced]
        assert not [f.__qualname__ for f in before if getattr(f, "_tdbg", False)], "an earlier watch has left them replaced"
        yield
        for (owner, name), original in zip(self.framework.replaced, before):
            assert getattr(owner, name) is original, f"{owner.__name__}.{name} was left replaced"

    def child(self, scenario, launched=True, **environment):
        """Trains in a process of its own, under `tdbg run` where `launched`; (what the training saw, stderr)."""
        out = self.directory + ".seen"
        command = self.framework.command(out, scenario)
        if launched:
            config = pathlib.Path(self.directory + ".json")
            config.write_text(json.dumps(self.config()))
            command = [tool(), "run", "--dir", self.directory, "--config", str(config), "--", *command]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD")}
        env.update(TDBG_HOME=HOME, TDBG_STRICT="1", **environment)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return self.framework.left(out), done.stderr

    # ---- checks

    def test_every_collection_is_accounted_for(self):
        names, absent = set(self.framework.names), set(self.framework.absent) & set(COLLECTIONS)
        assert names | absent == set(COLLECTIONS) and not names & absent
        assert set(self.framework.default) <= names
        assert self.framework.version()

    def test_the_adaptor_provides_what_one_must(self):
        if not self.framework.python:
            return
        from tdbg.adaptors import adaptor
        from tdbg.adaptors.attached import Attached
        from tdbg.adaptors.framework import Adaptor, Framework, LoopFramework
        assert isinstance(adaptor(self.framework.adaptor), Adaptor)
        with self.framework.attached(self.directory, self.config()) as run:
            assert isinstance(run._session, LoopFramework if isinstance(run, Attached) else Framework)

    def test_names_are_the_specified_ones(self):
        _, trial = self.recorded(self.framework.train)
        for collection, names in self.framework.names.items():
            assert trial.tensor_names(collection=collection) == sorted(names), collection

    @pytest.mark.smoke
    def test_values_modes_and_steps_are_the_trainings_own(self):
        trained, trial = self.recorded(self.framework.train)
        seen = {name for step in trained.steps for name in step.values}
        assert seen >= {n for names in self.framework.names.values() for n in names}, "the comparison is complete"
        assert not (found := self.difference(trial, trained.steps)), found

    def test_the_final_weights_are_those_after_the_last_update(self):
        trained, trial = self.recorded(self.framework.train)
        assert bool(trained.final) == ("weights" in self.framework.names)
        for name, value in trained.final.items():
            assert not (found := different(trial[name].final_value(), value, None)), f"{name}: {found}"

    def test_weights_without_a_gradient_have_a_row_at_every_step(self):
        import tdbg
        with self.framework.attached(self.directory, {}) as run:
            found = self.framework.train_untrained()
            repeats = run._session.run.counters()["repeats"] if found else None
        if found is None:
            assert self.framework.adaptor not in ("keras", "mxnet", "torch")
            return
        trial, (still, moved, *averages) = tdbg.open(self.directory), found
        assert repeats == len(found[still]) - 1 + len(found[moved]) - 2, "nothing is looked at that did not change"
        for name, arrays in found.items():
            for step, array in enumerate(arrays):
                row = trial[name].summary(step)
                counts = (row.count, row.pos_inf_count, row.zero_count)
                assert counts == (array.size, np.isposinf(array).sum(), (array == 0).sum()), (name, step)
                finite = array[np.isfinite(array)]
                assert (row.min, row.max) == (finite.min(), finite.max()), (name, step)
        assert trial[moved].summary(1).max != trial[moved].summary(2).max
        assert averages and set(averages) <= set(trial.tensor_names(collection="buffers"))
        assert any(trial[name].summary(2).pos_inf_count for name in averages)

    def test_by_default_the_default_collections_are_recorded_and_nothing_else(self):
        _, trial = self.recorded(self.framework.train, {})
        wanted = {n for c in self.framework.default for n in self.framework.names[c]}
        others = {n for names in self.framework.names.values() for n in names} - wanted
        assert wanted <= set(trial.tensor_names()) and not others & set(trial.tensor_names())
        assert all(trial[name].steps(kind="raw") == [] for name in wanted if trial[name].summary(trial[name].steps()[0]).count != 1)

    def test_what_it_cannot_have_is_not_there(self):
        cannot = [c for c in COLLECTIONS if c in self.framework.absent]
        bare = self.framework.train().result
        trained, trial = self.recorded(self.framework.train, self.config(cannot))
        assert {c: trial.tensor_names(collection=c) for c in cannot} == {c: [] for c in cannot}
        assert trained.result == bare and trial.state == "ended"

    def test_attached_or_not_the_result_is_the_same_bit_for_bit(self):
        bare = self.framework.train().result
        assert self.framework.train().result == bare, "the training itself repeats"
        with self.unchanged():
            trained, trial = self.recorded(self.framework.train)
        assert trial.steps() and trained.result == bare
        assert self.framework.train().result == bare, "and it does so after the watch"

    def test_nothing_captured_is_nothing_changed(self):
        bare = self.framework.train().result
        with self.unchanged():
            trained, trial = self.recorded(self.framework.train, NOTHING)
        assert trained.result == bare
        kept = [n for n in trial.tensor_names() if trial[n].steps()]
        assert kept == [] and trial.steps() == [] and trial.state == "ended"

    def test_an_exception_of_the_training_comes_out_as_it_is(self):
        mistake = OwnMistake("the script's own")

        def train():
            with pytest.raises(OwnMistake) as raised:
                self.framework.train(after_step=lambda step: exploding(step, mistake))
            assert raised.value is mistake

        with self.unchanged():
            _, trial = self.recorded(train)
        assert trial.steps() == [0, 1] and trial.state == "ended"
        bare = self.framework.train()
        assert not (found := self.difference(trial, bare.steps[:2])), found

    def test_a_second_training_in_the_same_process(self):
        expected, _ = self.recorded(self.framework.train_again)
        runs = self.runs()
        assert len(runs) == len(expected) == (1 if self.framework.second == "same run" else 2)
        for trial, trained in zip(runs, expected):
            assert not (found := self.difference(trial, trained.steps)), found

    def test_two_models(self):
        expected, _ = self.recorded(self.framework.train_two)
        runs = self.runs()
        assert len(runs) == len(expected)
        # Which of two trainings at once is the first is theirs to decide.
        orders = [[self.difference(trial, trained.steps, set().union(*(s.values for s in trained.steps)).__contains__)
                   for trial, trained in zip(order, expected)] for order in itertools.permutations(runs)]
        assert any(not any(order) for order in orders), orders

    @pytest.mark.parametrize("loop", ["train_around_a_teacher", "train_in_turns"])
    def test_loops_of_more_than_one_model(self, loop):
        """What is differentiated is TRAIN whatever runs beside it, and a step is an iteration whatever the first one was."""
        train = getattr(self.framework, loop)
        bare = train()
        if bare is None:
            assert getattr(type(self.framework), loop) is getattr(Framework, loop), "it has no such loop"
            return
        trained, trial = self.recorded(train)
        assert trained.result == bare.result
        names = set().union(*(s.values for s in trained.steps))
        assert not (found := self.difference(trial, trained.steps, names.__contains__)), found

    def test_attached_late_it_sees_the_rest(self):
        fresh = self.framework.train().steps
        trial = trained = None
        with contextlib.ExitStack() as stack:
            def attach(step):
                if step == 1:
                    stack.enter_context(self.framework.attached(self.directory, self.config()))

            trained = self.framework.train(after_step=attach)
            if self.framework.late == "training":
                assert not [trial for trial in self.runs() if trial.steps()], "nothing of a training that was under way"
                trained, rest = self.framework.train(), fresh
            else:
                rest = [Step(s.mode, dict(s.values)) for s in fresh[2:]]
                for name in [n for n in rest[0].values if re.search(self.framework.late_misses, n)]:
                    del rest[0].values[name]
        trial, = self.runs()
        assert trained.result == self.framework.train().result
        assert not (found := self.difference(trial, rest)), found

    def test_an_ended_watch_keeps_nothing_alive(self):
        if self.framework.model_class is None:
            assert not self.framework.python, "which class are its models of?"
            return

        def left(train):
            """How many models a training leaves behind where the script keeps none."""
            before = self.living()
            train()
            return len(self.living() - before)

        def watched():
            with self.framework.attached(self.directory, self.config()) as run:
                self.framework.train()
            kept.append(run)

        self.framework.train()                  # what a framework keeps from its first training on is no matter of ours
        kept = []
        bare = left(self.framework.train)
        assert left(watched) <= bare, "models, by what attach returned"
        session = weakref.ref(kept.pop()._session)
        gc.collect()
        assert session() is None

    def living(self):
        gc.collect()
        return {id(o) for o in gc.get_objects() if issubclass(type(o), self.framework.model_class)}

    # ---- in a process of its own

    def test_zero_code(self):
        trained, err = self.child("train")
        trial, = self.runs()
        assert "Traceback" not in err
        assert not (found := self.difference(trial, trained.steps)), found
        assert trial.state == "ended" and trained.result == self.framework.train().result

    @pytest.mark.parametrize("scenario", ["fork", "fork_train"])
    def test_forked_children_are_not_recorded(self, scenario):
        if "forked children" in self.framework.absent:
            scenario = {"fork": "fork_leave", "fork_train": "fork_work"}[scenario]
        # A forked process inherits an OpenMP pool without its threads, and waits for them: also without us.
        trained, err = self.child(scenario, OMP_NUM_THREADS="1")
        trial, = self.runs()
        assert "Traceback" not in err
        assert not (found := self.difference(trial, trained.steps)), found
        assert trial.state == "ended"

    def test_a_spawned_process_that_trains_disturbs_nobody(self):
        trained, err = self.child("spawn")
        assert "Traceback" not in err
        runs = self.runs()
        assert not (found := self.difference(runs[0], trained.steps)), found
        spawned = self.framework.left(self.directory + ".seen.spawned")
        assert spawned.result == trained.result
        for trial in runs[1:]:
            assert not (found := self.difference(trial, spawned.steps)), found


def exploding(step, mistake):
    if step == 1:
        raise mistake


def different(found, expected, tolerance):
    """None, or in what two arrays differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.kind in "UO" or found.dtype.kind in "UO":
        return None if found.tolist() == expected.tolist() else f"{found.tolist()}, expected {expected.tolist()}"
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if tolerance is not None:
        gap = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0)
        return None if gap <= tolerance else f"differs by {gap}"
    if found.dtype != expected.dtype:
        return f"{found.dtype}, expected {expected.dtype}"
    # Bytes and not values: a NaN is equal to itself here, and -0 is not 0.
    return None if found.tobytes() == expected.tobytes() else f"{found}, expected {expected}"
