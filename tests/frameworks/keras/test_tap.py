"""On TensorFlow a train function's tensors are recorded where they are computed, by an operation in the graph."""

import keras
import numpy as np
import pytest

import tdbg
from tdbg import _capture

from .test_fit import BACKEND, EVERYTHING, check_values, fit, recorded
from .trainings import Watch, compiled, data, dense, digest, fresh

PLAN = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
    {"name": "mine", "keep": true, "raw": {"train": {"interval": 1}}}]}"""

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own")

@pytest.fixture
def rests(monkeypatch):
    """What is left to be an output, of each trace of a train function."""
    from tdbg.adaptors.keras.tap import Tap
    found, rest = [], Tap.rest

    def watched(self, tensors):
        left = rest(self, tensors)
        found.append((set(tensors), set(left)))
        return left

    monkeypatch.setattr(Tap, "rest", watched)
    return found


def test_nothing_is_left_to_be_an_output(tmp_path, rests):
    watch = Watch()
    (model, state), trial = recorded(lambda: fit(watch=watch), tmp_path / "run", EVERYTHING)
    assert rests and all(left == set() for _, left in rests)
    assert {"loss", "accuracy", "gradients/hidden/kernelGrad", "hidden/weights/hidden/kernel:0", "context/batch",
            "hidden/outputs"} <= rests[0][0] | rests[1][0]
    check_values(trial, model, watch)
    assert state == fit()[1]


def contents(trial):
    """Everything that is recorded: (name, step) -> bytes."""
    found = {}
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for step in tensor.steps(kind="raw") or tensor.steps():
            found[name, step] = np.asarray(tensor.value(step)).tobytes()
    return found


@pytest.mark.parametrize("optimizer", [
    lambda: keras.optimizers.Adam(0.01), lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)], ids=["Adam", "clipped", "scaled", "accumulated"])
def test_outputs_of_the_step_would_have_been_the_same(tmp_path, monkeypatch, rests, optimizer):
    from tdbg.adaptors.tensorflow import operation
    (_, with_operations), tapped = recorded(lambda: fit(optimizer=optimizer()), tmp_path / "tapped", EVERYTHING)
    count = len(rests)
    monkeypatch.setattr(operation, "why_not", lambda: "this is a test")
    (_, with_outputs), outputs = recorded(lambda: fit(optimizer=optimizer()), tmp_path / "outputs", EVERYTHING)
    assert len(rests) == count, "the second training has no operations"
    assert (count > 0) == (getattr(optimizer(), "gradient_accumulation_steps", None) is None)
    assert contents(tapped) == contents(outputs)
    assert with_operations == with_outputs == fit(optimizer=optimizer())[1]


def test_an_operation_that_cannot_be_made_is_replaced_by_outputs(tmp_path, monkeypatch, capfd):
    from tdbg.adaptors.tensorflow import operation
    operation.why_not()         # has been tried before it breaks

    def broken(*_):
        raise RuntimeError("moved")

    monkeypatch.setattr(operation, "record", broken)
    watch = Watch()
    (model, state), trial = recorded(lambda: fit(watch=watch), tmp_path / "run", EVERYTHING)
    check_values(trial, model, watch)
    assert state == fit()[1]
    assert capfd.readouterr().err.count("takes no operation of ours here (RuntimeError: moved)") == 1


@pytest.mark.parametrize("method", ["begin", "end", "cancel_step"])
def test_a_failure_of_ours_around_the_function_stays_ours(tmp_path, monkeypatch, capfd, method):
    from tdbg.adaptors.keras.session import Session
    from tdbg.adaptors.keras.tap import Tap

    def broken(*_):
        raise RuntimeError("ours")

    def train():
        """Its data end without a word: the last call of each epoch has none."""
        import tensorflow as tf
        fresh()
        model = compiled(dense())
        x, y = data()
        batches = tf.data.Dataset.from_generator(lambda: iter([(x[:16], y[:16]), (x[16:], y[16:])]), output_signature=(
            tf.TensorSpec((None, 8), tf.float32), tf.TensorSpec((None,), tf.int32)))
        return digest(model, model.fit(batches, epochs=2, verbose=0))

    bare = train()
    monkeypatch.delenv("TDBG_STRICT", raising=False)
    monkeypatch.setattr(Session if method == "cancel_step" else Tap, method, broken)
    with tdbg.attach(framework="keras", dir=str(tmp_path / "run"), config={"rules": []}):
        watched = train()
    assert watched == bare
    assert "RuntimeError: ours); training goes on" in capfd.readouterr().err


def test_what_led_to_a_failure_in_the_graph_is_kept(tmp_path):
    """A check that the script makes fails behind the update: the gradients of the fatal batch are there."""
    import tensorflow as tf

    class Checked(keras.Sequential):
        def train_step(self, batch):
            logs = super().train_step(batch)
            updated = tf.convert_to_tensor(self.layers[-1].kernel.value)
            with tf.control_dependencies([updated]):
                fine = tf.debugging.assert_less(tf.reduce_max(batch[0]), 2.0)
            with tf.control_dependencies([fine]):
                return {k: tf.identity(v) for k, v in logs.items()}

    fresh()
    model = compiled(Checked(dense().layers), keras.optimizers.SGD(0.1))
    inputs, labels = data(64)
    inputs[48:] = 100
    with tdbg.attach(framework="keras", dir=str(tmp_path / "run"), config={"rules": []}) as run:
        with pytest.raises(tf.errors.InvalidArgumentError):
            model.fit(inputs, labels, batch_size=16, shuffle=False, verbose=0)
        assert run.global_step == 3
        model.fit(inputs[:16], labels[:16], batch_size=16, verbose=0)
        assert run.global_step == 4
    trial = tdbg.open(tmp_path / "run")
    assert trial.steps() == [0, 1, 2, 3, 4]
    gradients = [trial["gradients/net/scores/kernelGrad"].summary(step).abs_max for step in trial.steps()]
    assert gradients[3] > 20 * max(gradients[:3] + gradients[4:]), gradients


def test_every_dtype_is_recorded_as_it_is(tmp_path):
    import tensorflow as tf
    from tdbg.adaptors.tensorflow import operation
    assert operation.why_not() == ""
    run = _capture.Run.open(directory=str(tmp_path / "run"), plan_json=PLAN)
    capture, passed = _capture.GraphCapture(run), []
    values = {t: tf.cast([[1, 0, 3], [5, 1, 100]], t) for t in operation.DTYPES}
    slots = {t: (capture.tensor(t.name, t.name, "", "", False, -1, ["mine"]), capture.number(run.define_scalar("number/" + t.name)))
             for t in values}

    @tf.function
    def step(given):
        for t, value in zip(values, given):
            passed.append(operation.record(value, slots[t][0]).shape)
            operation.record(value[1, 2], slots[t][1])
        return operation.record(given[0], capture.batch())  # noqa: F821 - deleted below

    given = list(values.values())
    step(given)                 # no step is open: nothing of this is recorded
    assert capture.end() is None
    run.begin_step(1)
    capture.begin()
    result = step(given)
    mark, dtype, shape = capture.end()
    run.end_step()
    run.end("completed")
    assert set(map(tuple, passed)) == {(2, 3)}, "the shape is known behind it"
    assert result.numpy().tolist() == given[0].numpy().tolist()
    assert (dtype, shape) == (given[0].dtype.name, [2, 3]) and mark == _capture.fingerprint(
        given[0].numpy().__array_interface__["data"][0], given[0].numpy().nbytes)
    trial = tdbg.open(tmp_path / "run")
    for t, value in values.items():
        assert trial["number/" + t.name].value(0) == float(tf.cast(value[1, 2], tf.float64)), t
        found = trial[t.name].value(0)
        assert (found.shape, found.astype(np.float64).tolist()) == ((2, 3), tf.cast(value, tf.float64).numpy().tolist()), t
    del capture
    assert step(given).numpy().tolist() == given[0].numpy().tolist(), "the graph outlives what recorded it"



def test_functions_that_run_eagerly_for_a_while(tmp_path, rests):
    """tf.config.run_functions_eagerly: no graph then, and one again behind it."""
    import tensorflow as tf
    from tdbg.adaptors.tensorflow import operation
    operation.why_not.cache_clear()
    states = [fit(validate=False)[1]]
    for eagerly in (True, False):
        tf.config.run_functions_eagerly(eagerly)
        try:
            watch = Watch()
            (model, state), trial = recorded(lambda: fit(watch=watch, validate=False), tmp_path / str(eagerly), EVERYTHING)
        finally:
            tf.config.run_functions_eagerly(False)
        check_values(trial, model, watch)
        assert bool(rests) is not eagerly
        states.append(state)
    assert states[2] == states[0]
