"""What stands beside our callback in LightGBM's list."""

import lightgbm
import numpy as np

import tdbg


def test_a_callback_that_ends_the_training_comes_after_ours(tmp_path):
    def ends(env):
        if env.iteration == 2:
            raise lightgbm.callback.EarlyStopException(2, [])

    ends.order = -5     # as LightGBM leaves it where it was the first of five callbacks, in an earlier training
    data = lightgbm.Dataset(np.random.default_rng(0).random((100, 3)), np.arange(100) % 2)
    with tdbg.attach(framework="lightgbm", dir=str(tmp_path / "run"), config={"rules": []}):
        lightgbm.train({"objective": "binary", "verbose": -1, "num_threads": 1}, data, 10, callbacks=[ends])
    assert tdbg.open(str(tmp_path / "run")).steps() == [0, 1, 2]
