"""What a framework itself has at the moment at which tdbg takes it, and how it is compared with the run."""

import numpy as np

# Every value, at every step: compared bit for bit.
EVERYTHING = {"collections": {name: {"raw": True, "save_interval": 1} for name in ("weights", "biases", "gradients", "losses")}}


def snapshot(model, root):
    """{tensor name: copy} of the weights and gradients of `model`, an instance of the class `root`."""
    values = {}
    for name, parameter in model.named_parameters():
        values[f"{root}_{name}"] = parameter.detach().numpy().copy()
        if parameter.grad is not None:
            values[f"gradient/{root}_{name}"] = parameter.grad.numpy().copy()
    return values


def assert_same(run, snapshots):
    """The n-th TRAIN step of `run` holds exactly what the n-th of `snapshots` holds."""
    assert len(run.steps(mode="TRAIN")) == len(snapshots)
    for n, values in enumerate(snapshots):
        assert len(values) > 4
        for name, value in values.items():
            np.testing.assert_array_equal(run.tensor(name).value(n, mode="TRAIN"), value, err_msg=f"{name}, TRAIN step {n}")


def series(run, name, mode):
    tensor = run.tensor(name)
    return [float(tensor.value(n, mode=mode)) for n in tensor.steps(mode=mode, kind="any")]
