"""`keras.mixed_precision`: gradients are those that the update takes, and the training stays what it was, to the bit."""

import keras
import numpy as np
import pytest

from .test_fit import EVERYTHING, THIRD, check_values, fit, recorded
from .trainings import SGD, Watch, convolutional, dense, images


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def policy(request):
    """A model is made under it. The policy is forgotten by clear_session."""
    yield request.param
    keras.mixed_precision.set_global_policy("float32")


def under(policy, make):
    def made():
        keras.mixed_precision.set_global_policy(policy)
        return make()
    return made


def test_what_is_recorded_is_what_the_update_takes(tmp_path, policy):
    watch = Watch()
    optimizer = SGD(0.1)        # Keras puts a LossScaleOptimizer around it where the policy is mixed_float16
    watch_inner = lambda n: watch.gradients.__setitem__(n, [np.array(keras.ops.convert_to_numpy(v)) for v in optimizer.kept])
    watch.after = watch_inner
    (model, state), trial = recorded(
        lambda: fit(under(policy, dense), watch=watch, epochs=1, validate=False, optimizer=optimizer), tmp_path / "run", EVERYTHING)
    scaled = policy == "mixed_float16"
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == scaled
    check_values(trial, model, watch)
    assert all(np.abs(g).max() < 10 for step in watch.gradients for g in step), "unscaled; the scale is 2 ** 15"
    low, gradient = policy.removeprefix("mixed_"), "gradients/hidden/kernelGrad"
    assert str(trial[gradient].value(0).dtype) == "float32" and str(trial["hidden/outputs"].value(0).dtype) == low
    hidden = np.asarray(trial["hidden/outputs"].value(0), np.float32)
    w, b = watch.weights[0][:2]
    np.testing.assert_allclose(hidden, np.maximum(trial["inputs"].value(0) @ w + b, 0), rtol=0.02, atol=0.01)
    assert np.mean([trial["loss"].value(s) for s in range(4)]) == pytest.approx(watch.logs[3]["loss"], rel=1e-3), "unscaled"
    if scaled:
        assert trial["context/loss_scale"].value(0) == 2 ** 15
        assert trial["context/lr/loss_scale_optimizer/0"].value(0) == np.float32(0.1)
    else:
        assert "context/loss_scale" not in trial.tensor_names(regex="context/")
    assert "context/skipped" not in trial.tensor_names(regex="context/")


@pytest.mark.parametrize("config", [EVERYTHING, THIRD], ids=["everything", "outputs every third"])
def test_watched_or_not_the_training_is_the_same(tmp_path, policy, config):
    train = lambda: fit(under(policy, convolutional), inputs=images, batch_size=8, optimizer=keras.optimizers.Adam(0.01))[1]
    bare = train()
    watched, trial = recorded(train, tmp_path / "run", config)
    assert watched == bare
    assert trial.steps() == list(range(12)) if config is THIRD else trial.steps(kind="any") == list(range(12))
