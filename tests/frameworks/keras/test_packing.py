"""Small outputs of a compiled step leave it as one: the bytes are the tensors' own."""

import keras
import numpy as np
import pytest
from keras import layers

from tdbg.adaptors.keras import packing

from .test_fit import BACKEND, EVERYTHING, check_values, fit, recorded
from .trainings import Watch, data

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own")


def test_what_is_packed_comes_out_bit_for_bit():
    import tensorflow as tf
    from tdbg.adaptors.keras import backends
    rng = np.random.default_rng(5)
    patterns = rng.integers(0, 2**32, (7, 3), dtype=np.uint32)      # NaNs with payloads, subnormal numbers
    patterns[0] = 0x7FA00001, 0xFFC12345, 1
    given = {"a": patterns.view(np.float32), "count": np.int64(-(2**53) - 1), "one": np.float32(-0.0),
             "b": rng.random(5, dtype=np.float32), "counts": rng.integers(0, 2**60, 3), "half": np.float16([1, 2]),
             "large": rng.random((packing.LARGEST // 4 + 1,), dtype=np.float32), "empty": np.zeros((0, 3), np.float32)}
    backend, packer, outputs = backends.make("tensorflow"), packing.Packer(), []

    @tf.function
    def step():
        packed = packer.pack({name: tf.constant(value) for name, value in given.items()}, backend)
        outputs.append(sorted(packed))
        return packed

    found = packer.unpack(step(), backend)
    assert outputs == [["empty", "half", "large", packing.PACKED + "0"]]
    assert found.keys() == given.keys()
    for name, value in given.items():
        array = np.asarray(backend.numpy(found[name]))
        assert (array.dtype, array.shape, array.tobytes()) == (value.dtype, value.shape, value.tobytes()), name


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "compiled"])
def test_small_and_large_tensors_of_a_training(tmp_path, monkeypatch, jit):
    packed, pack = [], packing.Packer.pack

    def counting(self, tensors, backend):
        outputs = pack(self, tensors, backend)
        packed.append(len(tensors) - len(outputs))
        return outputs

    monkeypatch.setattr(packing.Packer, "pack", counting)
    make = lambda: keras.Sequential([keras.Input((8,)), layers.Dense(2000, activation="relu", name="hidden"),
                                     layers.Dense(3, name="scores")], name="net")
    watch = Watch()     # 72 rows: the last batch is another shape, and the step is traced again
    (model, state), trial = recorded(
        lambda: fit(make, watch=watch, inputs=lambda: data(72), jit_compile=jit), tmp_path / "run", EVERYTHING)
    assert packed and max(packed) > 4
    assert model.layers[0].kernel.shape == (8, 2000) and 8 * 2000 * 4 > packing.LARGEST
    check_values(trial, model, watch)
    for n, step in enumerate(s for s in trial.steps() if trial.mode(s).name == "TRAIN"):
        assert trial["context/optimizer_step/sgd"].value(step) == n
        assert trial["context/lr/sgd/0"].value(step) == np.float32(0.1)
    assert state == fit(make, inputs=lambda: data(72), jit_compile=jit)[1]
