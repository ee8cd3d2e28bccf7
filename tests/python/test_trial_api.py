"""smdebug's trial API over our own runs: which call sees which steps, several workers, waiting, reductions, frames."""

import logging
import math
import multiprocessing
import os
import pickle
import re
import threading
import time
import urllib.parse

import numpy as np
import pytest

pytest.importorskip("tdbg._capture", reason="the extension modules are not built")
pytest.importorskip("tdbg._trial", reason="the extension modules are not built")

import tdbg  # noqa: E402
from tdbg import ModeKeys, StepState, create_trial, errors, exceptions, no_refresh, refresh  # noqa: E402
from tdbg._capture import Run  # noqa: E402

TRAIN, EVAL = 1, 2
# Raw weights at every third TRAIN step and second EVAL step; statistics at every step; two reductions of biases.
PLAN = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true, "raw": {"train": {"interval": 3}, "eval": {"interval": 2}}},
  {"name": "biases", "kinds": ["bias"], "keep": true},
  {"name": "losses", "kinds": ["loss"], "keep": true}]}"""
STATISTICS_ONLY = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true}]}"""
EVERY_STEP = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true, "raw": {"train": {"interval": 1}}}]}"""


class Worker:
    """One rank: weight w (4 x 5), bias b (3), loss."""

    def __init__(self, directory, plan=PLAN, rank=0, world_size=1, **options):
        self.rank = rank
        self.run = Run.open(directory=str(directory), plan_json=plan, rank=rank, world_size=world_size, **options)
        self.weight = self.run.define("Net_fc.weight", "fc.weight", "weight", "linear", "float32", [4, 5])
        self.bias = self.run.define("Net_fc.bias", "fc.bias", "bias", "linear", "float32", [3])
        self.loss = self.run.define("Loss_output_0", "loss", "loss", "", "float32", [])
        self.count = 0

    @staticmethod
    def value(step, rank=0):
        return np.random.default_rng(100 * rank + step).standard_normal((4, 5)).astype(np.float32)

    def steps(self, n, mode=TRAIN, without_weight=()):
        for _ in range(n):
            self.run.begin_step(mode)
            if self.count not in without_weight:
                self.run.put_array(self.weight, self.value(self.count, self.rank))
            self.run.put_array(self.bias, np.array([-1, 2, self.count], np.float32))
            self.run.put_array(self.loss, np.array(1 / (self.count + 1), np.float32))
            self.run.end_step()
            self.count += 1
        return self

    def end(self):
        self.run.end("done")
        return self


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run"


def test_smdebugs_calls_see_what_a_save_config_made_due_and_native_ones_everything(path):
    Worker(path).steps(7).steps(3, EVAL).end()
    native, compatible = tdbg.open(path), create_trial(path)
    assert native.steps() == list(range(10))
    assert native.steps(kind="raw") == [0, 3, 6, 7, 9]
    assert native.steps(kind="summary") == list(range(10))
    assert compatible.steps() == native.steps(kind="saved") == [0, 3, 6, 7, 9]
    assert compatible.steps(mode=ModeKeys.TRAIN) == [0, 3, 6] and compatible.steps(mode=ModeKeys.EVAL) == [0, 2]
    weight = compatible.tensor("Net_fc.weight")
    assert weight.steps() == [0, 3, 6, 7, 9] and weight.steps(mode=ModeKeys.EVAL) == [0, 2]
    assert native.tensor("fc.weight").steps() == list(range(10))
    np.testing.assert_array_equal(weight.value(2, mode=ModeKeys.EVAL), Worker.value(9))
    assert list(weight.values()) == [0, 3, 6, 7, 9] and list(weight.values(mode=ModeKeys.EVAL)) == [0, 2]
    mine = weight.value(0)
    mine -= mine.mean()     # smdebug's arrays are the caller's own
    np.testing.assert_array_equal(weight.value(0), Worker.value(0))
    assert not native.tensor("fc.weight").value(0).flags.writeable
    assert pickle.loads(pickle.dumps(weight.shape)) == (4, 5)
    assert list(native.tensor("loss").values()) == list(range(10))      # a single number is its own statistics
    assert native.tensor("loss").values(mode=ModeKeys.EVAL) == {0: 1 / 8, 1: pytest.approx(1 / 9), 2: pytest.approx(0.1)}
    with pytest.raises(exceptions.StepUnavailable):
        weight.value(4)
    # A saved step, of which this tensor has statistics only; smdebug's programs look into the exception.
    with pytest.raises(exceptions.TensorUnavailableForStep) as raised:
        compatible.tensor("Net_fc.bias").value(3)
    assert raised.value.has_reductions and (raised.value.tname, raised.value.step) == ("Net_fc.bias", 3)
    with pytest.raises(exceptions.TensorUnavailableForStep, match="its summary is there"):
        native.tensor("Net_fc.bias").value(3)


def test_a_run_without_a_save_config_shows_every_step_to_smdebugs_calls(path):
    Worker(path, STATISTICS_ONLY).steps(4).end()
    trial = create_trial(path)
    assert trial.steps() == [0, 1, 2, 3] and trial.tensor("fc.weight").steps() == [0, 1, 2, 3]
    x = Worker.value(2).astype(np.float64)
    assert trial.tensor("fc.weight").reduction_value(2, "mean") == pytest.approx(x.mean(), rel=1e-6)
    with pytest.raises(exceptions.TensorUnavailableForStep):
        trial.tensor("fc.weight").value(2)


@pytest.mark.parametrize("name, of", [
    ("min", np.min), ("max", np.max), ("mean", np.mean), ("std", np.std), ("variance", np.var), ("sum", np.sum),
    ("prod", np.prod), ("l1", lambda x: np.abs(x).sum()), ("l2", lambda x: np.sqrt((x * x).sum()))])
@pytest.mark.parametrize("absolute", [False, True])
def test_reductions_are_numpys(path, name, of, absolute):
    Worker(path).steps(1).end()
    x = Worker.value(0).astype(np.float64)
    got = create_trial(path).tensor("fc.weight").reduction_value(0, name, abs=absolute)
    assert got == pytest.approx(of(np.abs(x) if absolute else x), rel=1e-5)


def test_reductions_of_what_is_not_finite_are_numpys(path):
    worker = Worker(path, STATISTICS_ONLY)
    for x in ([1, math.inf, 2], [1, math.nan, -math.inf]):
        worker.run.begin_step(TRAIN)
        worker.run.put_array(worker.weight, np.resize(np.array(x, np.float32), (4, 5)))
        worker.run.end_step()
    tensor = create_trial(path).tensor("fc.weight")
    assert tensor.reduction_value(0, "max") == math.inf and tensor.reduction_value(0, "min") == 1
    assert tensor.reduction_value(0, "sum") == math.inf and tensor.reduction_value(0, "max", abs=True) == math.inf
    for name in ("min", "max", "mean", "sum", "l2"):
        assert math.isnan(tensor.reduction_value(1, name)), name
    worker.end()


def test_what_is_wrong_with_a_question_is_an_exception_of_smdebugs(path):
    Worker(path).steps(4).end()
    trial = create_trial(path)
    with pytest.raises(exceptions.TensorUnavailable, match="did you mean 'Net_fc.weight'"):
        trial.tensor("Net_fc.wieght")
    tensor = trial.tensor("Net_fc.weight")
    with pytest.raises(exceptions.SMDebugValueError, match="did you mean 'mean'"):
        tensor.reduction_value(0, "maen")
    with pytest.raises(exceptions.StepUnavailable):
        tensor.value(50)
    with pytest.raises(exceptions.StepUnavailable):
        tensor.value(0, mode=ModeKeys.EVAL)
    with pytest.raises(exceptions.InvalidWorker, match="worker_0"):
        tensor.value(0, worker="worker_7")
    with pytest.raises(exceptions.SMDebugNotImplementedError):
        tensor.step(0)
    with pytest.raises(exceptions.SMDebugNotImplementedError):
        create_trial(path, profiler=True)
    with pytest.raises(ValueError):
        trial.tensor_names(regex="a", collection="weights")
    with pytest.raises(TypeError):
        trial.tensor_names(collection=7)
    with pytest.raises(TypeError):
        trial.tensor_names(regex=7)
    assert not trial.has_tensor("nothing") and trial.has_tensor("Net_fc.weight")


def test_names_by_step_mode_regex_and_collection(path):
    Worker(path, PLAN).steps(4, without_weight=(0,)).steps(1, EVAL).end()
    trial = tdbg.open(path)
    everything = ["Loss_output_0", "Net_fc.bias", "Net_fc.weight"]
    assert trial.tensor_names() == everything
    assert trial.tensor_names(step=0) == everything[:2] and trial.tensor_names(step=3) == everything
    assert trial.tensor_names(step=99) == [] and trial.tensor_names(step=0, mode=ModeKeys.PREDICT) == []
    assert trial.tensor_names(mode=ModeKeys.PREDICT) == [] and trial.tensor_names(mode="eval") == everything
    assert trial.tensor_names(regex=["^Loss", ["bias$"]]) == everything[:2] and trial.tensor_names(regex=[]) == []
    assert trial.tensor_names(collection="weights") == ["Net_fc.weight"] == trial.tensor_names(
        collection=trial.collection("weights"))
    own = tdbg.collection.Collection("mine", include_regex=["bias"], tensor_names=["Net_fc.weight", "gone"])
    assert trial.tensor_names(collection=own) == everything[1:]
    assert create_trial(path).tensor_names(step=3) == ["Net_fc.weight"]


def test_collections_say_what_was_to_be_saved(path):
    Worker(path).steps(1).end()
    trial = tdbg.open(path)
    weights = trial.collections()["weights"]
    assert weights.tensor_names == {"Net_fc.weight"} and weights.reduction_config.save_raw_tensor
    assert weights.save_config[ModeKeys.TRAIN].save_interval == 3
    assert [s for s in range(9) if weights.save_config[ModeKeys.TRAIN].should_save_step(s)] == [0, 3, 6]
    assert ModeKeys.PREDICT not in weights.save_config
    assert trial.collection("never heard of").tensor_names == set()


def test_shapes_previous_steps_and_numbered_tensors(path):
    run = Run.open(directory=str(path), plan_json="""{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
        {"name": "inputs", "kinds": ["input"], "keep": true, "raw": {"train": {"interval": 1}, "eval": {"interval": 1}}},
        {"name": "labels", "kinds": ["label"], "keep": true, "raw": {"train": {"interval": 1}, "eval": {"interval": 1}}}]}""")
    ids = [run.define(f"Net_input_{i}", "", "input", "", "float32", [2], variable_shape=True) for i in (10, 9)]
    label = run.define("labels_0", "", "label", "", "int64", [2], variable_shape=True)
    for s, mode in enumerate([TRAIN, TRAIN, EVAL]):
        run.begin_step(mode)
        for n, i in enumerate(ids):
            run.put_array(i, np.full(2 + s, 10 * s + n, np.float32))
        run.put_array(label, np.arange(s + 1))
        run.end_step()
    run.end("done")
    trial = create_trial(path)
    # By the number at the end, and the value of the mode's own step: smdebug takes it for a global one.
    assert [x.tolist() for x in trial.inputs(0, mode=ModeKeys.EVAL)] == [[21, 21, 21, 21], [20, 20, 20, 20]]
    assert trial.labels(0, mode=ModeKeys.EVAL)[0].tolist() == [0, 1, 2] and trial.predictions(0) == []
    tensor = trial.tensor("Net_input_9")
    assert [tensor.shape(s) for s in range(3)] == [(2,), (3,), (4,)] and tensor.shape(0, mode=ModeKeys.EVAL) == (4,)
    assert tensor.shapes() == {0: (2,), 1: (3,), 2: (4,)} and tensor.shape == (2,)
    assert tensor.prev_steps(1) == [0, 1] and tensor.prev_steps(9, 2) == [1, 2] and tensor.prev_steps(-1, 3) == []
    assert tensor.workers(0) == ["worker_0"] and tensor.reduction_values(0) == {}


def _write_worker(path, rank, world, count, go):
    worker = Worker(path, EVERY_STEP, rank, world).steps(count)  # noqa: F841 - without it the run would end
    go.wait(60)
    os._exit(0)  # without a goodbye: dead


class Ranks:
    """Workers in processes of their own: each takes its steps, then lives on until it is told to go."""

    def __init__(self, path, steps):
        context = multiprocessing.get_context("fork")
        self.go = [context.Event() for _ in steps]
        self.processes = []
        for rank, count in enumerate(steps):
            process = context.Process(target=_write_worker, daemon=True,
                                      args=(path, rank, len(steps), count, self.go[rank]))
            process.start()
            self.processes.append(process)

    def release(self, rank):
        self.go[rank].set()
        self.processes[rank].join(30)


def _until(condition, trial, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, trial
        time.sleep(0.05)
        trial.refresh()


def test_a_step_is_there_when_every_worker_has_it_or_cannot_have_it_any_more(path):
    ranks = Ranks(path, [5, 3])
    trial = create_trial(path, timeout=30)
    _until(lambda: trial.num_workers == 2 and trial.steps(show_incomplete_steps=True) == [0, 1, 2, 3, 4]
           and trial.last_complete_step == 2, trial)
    assert trial.steps() == [0, 1, 2] and trial.workers() == ["worker_0", "worker_1"]
    tensor = trial.tensor("fc.weight")
    assert tensor.steps() == [0, 1, 2] and tensor.steps(show_incomplete_steps=True) == [0, 1, 2, 3, 4]
    states = [trial.has_passed_step(step) for step in (0, 2, 3, 4, 9)]
    assert states == [StepState.AVAILABLE] * 2 + [StepState.NOT_YET_AVAILABLE] * 3
    assert trial.missing_workers(3) == ["worker_1"] and trial.missing_workers(2) == []
    # What is there of an incomplete step can be read.
    assert tensor.workers(3) == ["worker_0"] and tensor.workers(2) == ["worker_0", "worker_1"]
    np.testing.assert_array_equal(tensor.value(3), Worker.value(3))
    np.testing.assert_array_equal(tensor.value(2, worker="worker_1"), Worker.value(2, rank=1))
    with pytest.raises(exceptions.InvalidWorker, match="it is there of: worker_0"):
        tensor.value(3, worker="worker_1")
    with pytest.raises(exceptions.StepNotYetAvailable):
        tensor.value(5)
    with pytest.raises(errors.DeadlineExceededError):
        trial.wait_for_steps([3], timeout=0.3)
    # worker_1 dies: nobody waits for it any longer.
    ranks.release(1)
    trial.wait_for_steps([3, 4], timeout=30)
    assert trial.steps() == [0, 1, 2, 3, 4] and not trial.loaded_all_steps
    ranks.release(0)
    with pytest.raises(exceptions.NoMoreData) as raised:
        trial.wait_for_steps([4, 5], timeout=30)
    assert (raised.value.step, raised.value.last_step) == (5, 4)
    assert trial.loaded_all_steps and trial.state == "crashed"
    frame = trial.frame("weights", ["l1"], worker="*")
    assert [(int(s), w) for s, w in zip(frame["step"], frame["worker"])] == [
        (0, "worker_0"), (0, "worker_1"), (1, "worker_0"), (1, "worker_1"), (2, "worker_0"), (2, "worker_1"),
        (3, "worker_0"), (4, "worker_0")]


def test_states_of_steps_that_a_save_config_left_out(path):
    worker = Worker(path).steps(5)
    trial = create_trial(path)
    # Step 1 was not due; 4 is not either; 5 may come. Not waiting for the next saved one is better than smdebug.
    assert [trial.has_passed_step(s).value for s in (0, 1, 3, 4, 5)] == [1, 0, 1, 0, 2]
    assert trial.has_passed_step(0, ModeKeys.EVAL) == StepState.NOT_YET_AVAILABLE
    with pytest.raises(exceptions.StepUnavailable):
        trial.wait_for_steps([0, 1])
    worker.end()
    assert [trial.has_passed_step(s).value for s in (3, 5)] == [1, 0]
    with pytest.raises(exceptions.StepUnavailable):  # before the last saved one
        trial.wait_for_steps([1])
    with pytest.raises(exceptions.NoMoreData):
        trial.wait_for_steps([9])
    with pytest.raises(exceptions.NoMoreData):
        trial.wait_for_steps([0], mode=ModeKeys.EVAL)


def test_waiting_and_refreshing_leave_a_trial_as_they_found_it(path):
    worker = Worker(path).steps(1)
    trial, other = create_trial(path), create_trial(path)
    assert trial.dynamic_refresh
    trial.wait_for_steps([0])
    assert trial.dynamic_refresh  # smdebug switches it off here
    with no_refresh([trial, other]):
        worker.steps(3)
        assert trial.steps() == other.steps() == [0]
        with refresh(trial):
            assert trial.steps() == [0, 3]
        assert not trial.dynamic_refresh and not other.dynamic_refresh
    assert trial.dynamic_refresh
    with pytest.raises(KeyError), no_refresh(trial):
        raise KeyError
    assert trial.dynamic_refresh
    frozen = tdbg.open(path)
    worker.steps(3)
    assert frozen.steps(kind="raw") == [0, 3]
    frozen.wait_for_steps([6])
    assert frozen.steps(kind="raw") == [0, 3, 6] and not frozen.dynamic_refresh
    worker.end()


def test_a_trial_waits_for_its_run_and_says_so(path, caplog, monkeypatch):
    monkeypatch.setattr("tdbg.compat.trial._SAY_SECONDS", 0.2)
    caplog.set_level(logging.INFO, "smdebug")

    def later():
        time.sleep(0.7)
        Worker(path).steps(2).end()

    thread = threading.Thread(target=later)
    thread.start()
    trial = create_trial(f"  {path} ")
    thread.join()
    _until(lambda: trial.loaded_all_steps, trial)
    assert trial.steps() == [0] and trial.name == "run"
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"Loading trial run at path {path}"
    assert any(re.match(f"Waiting for the training to write to {re.escape(str(path))}, which does not exist yet", line)
               for line in lines)
    assert lines[-2:] == ["Training has ended, will refresh one final time in 1 sec.", "Loaded all steps"]
    assert trial.steps() == [0] and len(caplog.records) == len(lines)  # said once


def test_a_trial_gives_up_after_its_timeout_or_when_the_job_has_ended(path):
    with pytest.raises(TimeoutError, match="within 0.3 s"):
        create_trial(path, timeout=0.3)
    path.mkdir()
    (path / "training_job_end.ts").touch()
    with pytest.raises(exceptions.MissingCollectionFiles):
        create_trial(path)


def test_a_requeued_job_is_seen_by_a_trial_that_had_loaded_all_steps(path, monkeypatch):
    monkeypatch.setattr("tdbg.reading.trial._AFTER_THE_END_SECONDS", 0)
    Worker(path, EVERY_STEP).steps(2).end()
    trial = create_trial(path)
    assert trial.steps() == [0, 1] and trial.loaded_all_steps
    again = Worker(path, EVERY_STEP, attempt=1, step_base=2).steps(3)
    assert trial.steps() == [0, 1, 2, 3, 4] and not trial.loaded_all_steps
    again.end()


@pytest.mark.parametrize("opens", [tdbg.open, create_trial])
def test_what_is_no_directory_is_refused_and_not_waited_for(opens):
    with pytest.raises(NotImplementedError, match="gcloud storage rsync -r gs://bucket/run DIRECTORY"):
        opens(" gs://bucket/run")
    with pytest.raises(NotImplementedError, match="copy it to a directory"):
        opens("https://host/run")
    for url in ("file://otherhost/run", "file://localhost", "file://"):
        with pytest.raises(ValueError, match="file:///absolute/path"):
            opens(url)


@pytest.mark.parametrize("opens", [tdbg.open, create_trial])
def test_a_file_url_is_its_directory(opens, tmp_path):
    directory = str(tmp_path / "a run, 100% own")
    Worker(directory).steps(3).end()
    for host in ("", "localhost"):
        trial = opens(f"file://{host}{urllib.parse.quote(directory)}")
        assert trial.path == directory and trial.steps(kind="any") == [0, 1, 2]


def test_a_range_of_steps_hides_the_others(path):
    Worker(path).steps(10).end()
    trial = create_trial(path, name="mine", range_steps=(3, 9))
    assert trial.name == "mine" and trial.steps() == [3, 6] == trial.tensor("fc.weight").steps()
    assert trial.has_passed_step(0) == trial.has_passed_step(9) == StepState.UNAVAILABLE
    with pytest.raises(exceptions.StepUnavailable):
        trial.tensor("fc.weight").value(0)
    assert trial.tensor_names(step=0) == [] and create_trial(path, range_steps=(None, 1)).steps() == [0]
    for wrong in [(3, 3), (5, 2), (-1, None), ("a", None)]:
        with pytest.raises(AssertionError):
            create_trial(path, range_steps=wrong)


@pytest.mark.parametrize("key", [(), 2, np.s_[1:3], np.s_[::-1, 1:4:2], np.s_[..., -1], np.s_[2:2], ([0, 3], 1)])
def test_slices_are_slices_of_the_value(path, key):
    Worker(path).steps(1).end()
    tensor = create_trial(path).tensor("fc.weight")
    np.testing.assert_array_equal(tensor.slice(0, key), Worker.value(0)[key])
    assert tensor.slice(0, np.s_[1:]).base is not None  # a view


def test_a_frame_is_the_series_of_all_its_tensors(path):
    Worker(path).steps(6).steps(2, EVAL).end()
    trial = tdbg.open(path)
    frame = trial.frame(["fc.weight", "fc.bias"], ["mean_abs", "nan_count"])
    assert frame.names == ["Net_fc.bias", "Net_fc.weight"] and len(frame) == 16
    for name in frame.names:
        rows = frame["tensor"] == name
        for field in frame.fields:
            steps, values = trial.tensor(name).series(field)
            np.testing.assert_array_equal(frame["step"][rows], steps)
            np.testing.assert_array_equal(frame[field][rows], values)
    assert set(frame["mode"][frame["step"] >= 6]) == {"EVAL"}
    assert frame["mode_step"][frame["step"] == 7].tolist() == [1, 1]
    names, steps, matrix = frame.pivot("mean_abs")
    assert names == frame.names and steps.tolist() == list(range(8)) and matrix.shape == (2, 8)
    assert trial.frame("weights", "l2", mode="EVAL")["step"].tolist() == [6, 7]
    assert trial.frame("weights", "l2", steps=(2, 4))["step"].tolist() == [2, 3]
    assert trial.frame("losses", "value")["value"].tolist() == [np.float32(1 / (s + 1)) for s in range(8)]
    assert create_trial(path).frame("weights")["step"].tolist() == list(range(8))
    with pytest.raises(errors.InvalidArgumentError, match="did you mean 'mean_abs'"):
        trial.frame("weights", ["mean_asb"])
    with pytest.raises(errors.NotFoundError, match="collections:.*weights"):
        trial.frame("wieghts")
    with pytest.raises(errors.NotFoundError, match="no worker"):
        trial.frame("weights", worker="worker_9")


def test_a_frame_as_pandas_and_arrow(path):
    Worker(path).steps(3).end()
    frame = tdbg.open(path).frame("weights", ["mean_abs", "l2"])
    pandas = pytest.importorskip("pandas")
    table = frame.pandas()
    assert list(table.columns) == ["tensor", "worker", "step", "mode", "mode_step", "mean_abs", "l2"]
    assert table["tensor"].dtype == "category" and set(table["tensor"]) == {"Net_fc.weight"}
    assert table.pivot(index="step", columns="tensor", values="l2").shape == (3, 1)
    assert isinstance(table, pandas.DataFrame) and set(table["mode"]) == {"TRAIN"}
    pytest.importorskip("pyarrow")
    arrow = frame.arrow()
    assert arrow.column_names == list(table.columns) and arrow.num_rows == 3
    assert arrow.to_pydict()["mode"] == ["TRAIN"] * 3
    np.testing.assert_array_equal(arrow["l2"].to_numpy(), frame["l2"])


def test_what_is_not_installed_is_said(path, monkeypatch):
    Worker(path).steps(1).end()
    frame = tdbg.open(path).frame("weights")
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        frame.pandas()
