"""smdebug's hook for sessions of TensorFlow 1: names, steps, modes and values, and that the training is the same."""

import json
import logging

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own")
tf = pytest.importorskip("tensorflow")

from . import hooks  # noqa: E402, I001: before smdebug, which it makes importable

import smdebug.tensorflow as smd  # noqa: E402
from smdebug.exceptions import InvalidCollectionConfiguration, SMDebugNotImplementedError, SMDebugTypeError  # noqa: E402
from smdebug.trials import create_trial  # noqa: E402

import tdbg  # noqa: E402

v1 = tf.compat.v1
EACH = smd.SaveConfig(save_interval=1)
RUNS = 5
GRADIENT = "gradients/MatMul_grad/tuple/control_dependency_1:0"


@pytest.fixture
def hook(tmp_path):
    yield from hooks.maker(smd.SessionHook, tmp_path / "run")


def batch(n):
    generator = np.random.default_rng(n)
    return generator.normal(size=(16, 8)).astype(np.float32), generator.normal(size=(16, 1)).astype(np.float32)


def raw_session(session):
    """Whose runs no hook sees."""
    return session.run_step_fn(lambda step_context: step_context.session)


class Graph:
    """A small network with what a debugger must not disturb: dropout, a dataset, a placeholder that nobody feeds, a branch
    that is not taken, an assertion."""

    def __init__(self, hook=None, use_resource=True):
        self.hook = hook
        with tf.Graph().as_default() as self.graph:
            v1.set_random_seed(3)
            self.x = v1.placeholder(tf.float32, [None, 8], name="x")
            self.y = v1.placeholder(tf.float32, [None, 1], name="y")
            unfed = v1.placeholder(tf.float32, [None, 8], name="unfed")
            element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
            with v1.variable_scope("layer", use_resource=use_resource):
                self.weight = v1.get_variable("w", [8, 1], initializer=v1.random_uniform_initializer(-1, 1, seed=2))
                self.bias = v1.get_variable("bias", [1], initializer=v1.zeros_initializer())
            self.outputs = tf.nn.dropout(tf.matmul(self.x, self.weight) + self.bias, rate=0.2, seed=5, name="drop")
            tf.matmul(unfed, self.weight, name="never")
            tf.cast(element, tf.float32, name="element")
            v1.debugging.check_numerics(self.x / 0.0, "on purpose", name="raises")
            v1.Print(self.x, [self.x], name="prints")
            off, on = tf.raw_ops.Switch(data=self.x, pred=tf.constant(True), name="switch")
            tf.identity(off, name="dead")
            tf.raw_ops.Merge(inputs=[off, on], name="alive")
            self.loss = v1.losses.mean_squared_error(self.y, self.outputs)
            self.error = tf.reduce_mean(tf.abs(self.y - self.outputs), name="error")
            v1.summary.scalar("summary", self.error)
            self.optimizer = v1.train.MomentumOptimizer(0.1, 0.9, name="Momentum")
            if hook:
                assert hook.wrap_optimizer(self.optimizer) is self.optimizer
            self.pairs = self.optimizer.compute_gradients(self.loss)
            self.update = self.optimizer.apply_gradients(self.pairs)
            self.slot = self.optimizer.get_slot(self.weight, "momentum")

    def train(self, runs=RUNS, evaluate=0):
        """[(weight, slot before the run; gradient, loss, error of the run)], and what is left afterwards."""
        seen = []
        with self.graph.as_default(), v1.train.MonitoredSession(hooks=[self.hook] if self.hook else None) as session:
            raw = raw_session(session)
            for n in range(runs):
                self.mode("TRAIN", evaluate)
                x, y = batch(n)
                before = raw.run([self.weight, self.slot])
                seen.append((*before, *session.run([self.pairs[0][0], self.loss, self.error, self.update],
                                                   {self.x: x, self.y: y})[:3]))
                self.mode("EVAL", evaluate)
                for k in range(evaluate):
                    session.run(self.error, {"x:0": x, self.y: y})
            left = raw.run([self.weight, self.bias, self.slot, "element:0"])
        return seen, b"".join(np.asarray(part).tobytes() for part in left)

    def mode(self, name, wanted):
        if wanted and self.hook:
            self.hook.set_mode(getattr(smd.modes, name))


BUILT_IN = ["weights", "biases", "gradients", "optimizer_variables"]


@pytest.mark.parametrize("use_resource", [True, False])
def test_values_are_the_sessions_own_and_the_training_is_the_same(hook, tmp_path, use_resource):
    h = hook(include_collections=BUILT_IN, save_config=EACH)
    seen, left = Graph(h, use_resource).train()
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps() == list(range(RUNS)) and left == Graph(None, use_resource).train()[1]
    assert trial.tensor_names(collection="weights") == ["layer/w:0"]
    assert trial.tensor_names(collection="biases") == ["layer/bias:0"]
    assert trial.tensor_names(collection="optimizer_variables") == ["layer/bias/Momentum:0", "layer/w/Momentum:0"]
    assert trial.tensor_names(collection="gradients") == [GRADIENT, "gradients/add_grad/tuple/control_dependency_1:0"]
    assert trial.tensor_names(collection="losses") == ["mean_squared_error/value:0"]
    for step, values in enumerate(seen):
        for name, value in zip(["layer/w:0", "layer/w/Momentum:0", GRADIENT, "mean_squared_error/value:0"], values):
            np.testing.assert_array_equal(trial.tensor(name).value(step), value)


def test_by_default_losses_every_500_runs(hook, tmp_path):
    h = hook()
    assert h.has_default_hook_configuration() and smd.get_hook() is h and smd.get_hook("session") is h
    Graph(h).train()
    assert h.step == RUNS, "smdebug's hook counts a run when it has ended"
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.tensor_names() == ["mean_squared_error/value:0"] and trial.steps() == [0]


def test_modes_have_schedules_and_steps_of_their_own(hook, tmp_path):
    h = hook(include_collections=["weights", "gradients"], save_config={
        smd.modes.TRAIN: smd.SaveConfigMode(save_interval=2), smd.modes.EVAL: smd.SaveConfigMode(save_interval=3)})
    h.get_collection("losses").add("no tensor")         # a warning
    Graph(h).train(evaluate=2)
    assert h.mode_steps[smd.modes.TRAIN] == RUNS and h.mode_steps[smd.modes.EVAL] == 2 * RUNS
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    weight, gradient = trial.tensor("layer/w:0"), trial.tensor(GRADIENT)
    assert weight.steps(mode=smd.modes.TRAIN) == gradient.steps(mode=smd.modes.TRAIN) == [0, 2, 4]
    assert weight.steps(mode=smd.modes.EVAL) == [0, 3, 6, 9] and gradient.steps(mode=smd.modes.EVAL) == []
    assert trial.global_step(mode=smd.modes.EVAL, mode_step=3) == 5


@pytest.mark.parametrize("use_resource", [True, False])
def test_everything_leaves_out_what_would_change_the_run(hook, tmp_path, use_resource):
    h = hook(save_all=True, save_config=EACH)
    seen, left = Graph(h, use_resource).train()
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert left == Graph(None, use_resource).train()[1], "no element taken, nothing drawn, nothing assigned"
    names = set(trial.tensor_names())
    assert {"x:0", "y:0", "alive:0", "drop/random_uniform/RandomUniform:0", "layer/w:0", "error:0", GRADIENT} <= names
    assert not {"unfed:0", "never:0", "element:0", "raises:0", "prints:0", "dead:0", "switch:0", "switch:1"} & names
    assert not {n for n in names if n.startswith("layer/w/Initializer/random_uniform/RandomUniform")}
    assert "layer/w/read:0" not in names, "that is layer/w:0"
    assert not any("Assign" in n for n in names if n.startswith("layer/"))
    for step, values in enumerate(seen):
        np.testing.assert_array_equal(trial.tensor("x:0").value(step), batch(step)[0])
        assert trial.tensor("error:0").value(step) == values[4]
    assert trial.tensor_names(collection="biases") == ["layer/bias:0"]


def test_collections_of_ones_own(hook, tmp_path):
    h = hook(save_config=EACH, include_regex="^layer/w", include_collections=["mine", "tensorflow_summaries"],
             reduction_config=smd.ReductionConfig(reductions=["max"], save_raw_tensor=True))
    training = Graph(h)
    h.add_to_collection("mine", {training.outputs})
    mine = h.get_collection("mine")
    mine.reduction_config = smd.ReductionConfig(norms=["l2"])
    mine.save_config = smd.SaveConfig(save_interval=2)
    h.get_collection("losses").add(training.error)
    h.save_scalar("before", 2.5)
    seen, _ = training.train()
    h.save_tensor("late", np.arange(3))
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    outputs = trial.tensor("drop/SelectV2:0")
    assert trial.tensor_names(collection="mine") == ["drop/SelectV2:0"] and outputs.steps() == [0, 2, 4]
    assert outputs.reduction_value(2, "l2") > 0
    assert trial.tensor("error:0").value(1) == seen[1][4] and "error:0" in trial.tensor_names(collection="losses")
    assert trial.tensor_names(collection="tensorflow_summaries") == ["error:0"]
    assert "layer/w:0" in trial.tensor_names(collection="default")
    assert trial.tensor("layer/w:0").reduction_value(1, "max") == seen[1][0].max()
    assert trial.tensor("scalar/before").steps() == [0] and trial.tensor("late").steps() == [RUNS]


def test_gradients_are_of_runs_that_compute_them(hook, tmp_path):
    h = hook(include_collections=["gradients"], save_config=EACH)
    training = Graph(h)
    training.train(2)
    with training.graph.as_default(), v1.train.MonitoredSession(hooks=[h]) as session:
        session.run(training.error, dict(zip((training.x, training.y), batch(0))))
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.tensor(GRADIENT).steps() == [0, 1] and trial.tensor("mean_squared_error/value:0").steps() == [0, 1, 2]


@pytest.mark.parametrize("launched", [False, True])
def test_the_example_with_the_lines_of_hook_code(tmp_path, launched):
    out = hooks.run_example("session_train_hook.py", tmp_path, launched)
    trial = create_trial(str(out))
    gradient = trial.tensor("gradients/fc2/MatMul_grad/tuple/control_dependency_1:0")
    assert gradient.steps(mode=smd.modes.TRAIN) == [0, 4] and gradient.steps(mode=smd.modes.EVAL) == []
    assert trial.tensor("conv1/weights:0").steps(mode=smd.modes.EVAL) == [0]
    assert len(list(tmp_path.glob("run*"))) == launched, "one run: what needs no code stood down"
    if launched:
        every = tdbg.open(str(tmp_path / "run"))
        assert len(every["conv1/weights:0"].steps(kind="any")) == 9, "each once"


def test_a_run_that_fails_is_no_step(hook, tmp_path):
    h = hook(include_collections=["weights"], save_config=EACH)
    with tf.Graph().as_default():
        w = v1.get_variable("w", [2], initializer=v1.zeros_initializer())
        elements = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(tf.ones([2])).repeat(3))
        update = v1.assign_add(w, elements.get_next())
        with v1.train.MonitoredSession(hooks=[h]) as session:
            for epoch in range(2):
                raw_session(session).run(elements.initializer)
                h.set_mode(smd.modes.TRAIN)
                with pytest.raises(tf.errors.OutOfRangeError):
                    while True:
                        session.run(update)
                h.set_mode(smd.modes.EVAL)
                session.run(w)
            h.set_mode(smd.modes.TRAIN)
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(update)
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=smd.modes.TRAIN) == list(range(6)) and trial.steps(mode=smd.modes.EVAL) == [0, 1]
    assert trial.steps() == list(range(8)) and h.step == 8
    np.testing.assert_array_equal(trial.tensor("w:0").value(5, mode=smd.modes.TRAIN), [5, 5])


def test_two_sessions_in_a_row_are_one_run(hook, tmp_path):
    h = hook(include_collections=["weights"], save_config=EACH)
    first, second = (Graph(h).train()[0] for _ in range(2))
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps() == list(range(2 * RUNS))
    np.testing.assert_array_equal(trial.tensor("layer/w:0").value(RUNS + 1), second[1][0])


def test_a_keras_optimizer_is_not_wrapped_and_gradients_can_be_named(hook, tmp_path, caplog):
    h = hook(include_collections=["gradients", "optimizer_variables"], save_config=EACH)
    with caplog.at_level(logging.WARNING, "smdebug"):
        h.wrap_optimizer(keras.optimizers.SGD())
    assert "set_gradients" in caplog.text
    training = Graph()
    training.hook = h
    h.set_gradients(gradients_and_variables=training.pairs)
    h.set_optimizer_variables([training.slot])
    seen, _ = training.train(2)
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    np.testing.assert_array_equal(trial.tensor(GRADIENT).value(1), seen[1][2])
    np.testing.assert_array_equal(trial.tensor("layer/w/Momentum:0").value(1), seen[1][1])


def test_what_can_mean_nothing_is_said_before_the_first_run(hook):
    h = hook(include_collections=["empty"])
    h.get_collection("empty")       # without this it is a name that means nothing: a warning, here as with smdebug
    with pytest.raises(InvalidCollectionConfiguration):
        Graph(h).train(1)
    with pytest.raises(SMDebugTypeError, match="fetch it"):
        h.save_tensor("x", Graph().x)


def test_from_the_configuration_file(tmp_path, monkeypatch):
    (tmp_path / "hook.json").write_text(json.dumps({
        "LocalPath": str(tmp_path / "run"), "HookParameters": {"save_interval": "2"},
        "CollectionConfigurations": [{"CollectionName": "gradients"},
                                     {"CollectionName": "mine", "CollectionParameters": {"include_regex": "^error"}}]}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "hook.json"))
    smd.del_hook()
    assert smd.get_hook("session") is None
    h = smd.get_hook(hook_type="session", create_if_not_exists=True)
    try:
        assert isinstance(h, v1.train.SessionRunHook) and isinstance(h, smd.SessionHook) and smd.get_hook() is h
        Graph(h).train()
    finally:
        h.close()
        smd.del_hook()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.tensor(GRADIENT).steps() == trial.tensor("error:0").steps() == [0, 2, 4]
    with pytest.raises(ValueError, match="keras, session, estimator"):
        smd.get_hook(create_if_not_exists=True)


def test_a_job_that_is_started_again_goes_on(tmp_path, monkeypatch):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"LocalPath": str(tmp_path / "checkpoints")}))
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(tmp_path / "config.json"))
    for start in (0, 1):
        h = smd.SessionHook(str(tmp_path / f"run{start}"), save_config=EACH)
        assert h.step == 3 * start
        training = Graph(h)
        with training.graph.as_default(), v1.train.MonitoredSession(hooks=[h]) as session:
            for n in range(4):
                if n == 3:
                    (tmp_path / "checkpoints" / f"model-{start}").write_text("saved")
                session.run(training.error, dict(zip((training.x, training.y), batch(n))))
        h.close()
        smd.del_hook()
    assert create_trial(str(tmp_path / "run1")).steps() == [3, 4, 5, 6]


def test_an_estimators_hook_says_what_became_of_estimators(tmp_path, monkeypatch):
    (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": str(tmp_path / "run")}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "hook.json"))
    for make in (smd.EstimatorHook, lambda _: smd.get_hook("estimator", create_if_not_exists=True)):
        with pytest.raises(SMDebugNotImplementedError, match="removed from TensorFlow in 2.16.*MonitoredSession"):
            make(str(tmp_path / "run"))
