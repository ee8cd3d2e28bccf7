"""A Gluon training under watch: what it did is what the run says, and it does the same with and without."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from frameworks.mxnet import gluon_training as gt

import tdbg

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "mxnet_gluon.py"
EVERYTHING = {"collections": {c: {"save_interval": 1} for c in ("weights", "biases", "gradients", "losses")}}
CONV0 = {"collections": {"conv0_tensors": {"include_regex": "conv0.*", "save_interval": 100}}}
CONV0_NAMES = ["conv0_bias", "conv0_input_0", "conv0_output_0", "conv0_relu_input_0", "conv0_relu_output_0",
               "conv0_weight", "gradient/conv0_bias", "gradient/conv0_weight"]


@pytest.fixture
def attach(tmp_path):
    """attach(config, model=None) records this process; the returned object's `trial()` ends it and opens the run."""
    made = []

    def start(config=EVERYTHING, model=None, **options):
        run = tdbg.attach(model, framework="mxnet", dir=str(tmp_path / "run"), config=config, **options)
        run.trial = lambda: (run.close(), tdbg.open(str(tmp_path / "run")))[1]
        made.append(run)
        return run

    yield start
    for run in made:
        run.close()


def launched(tmp_path, *command, flags=(), code=0):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD")}
    env.update(TDBG_HOME=os.environ.get("TDBG_HOME", str(ROOT / "python")), TDBG_STRICT="1")
    done = subprocess.run([os.environ["TDBG_CLI"], "run", "--dir", str(tmp_path / "run"), *flags, "--", sys.executable,
                           "-W", "ignore", *map(str, command)], env=env, capture_output=True, text=True, timeout=240,
                          cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return done


def test_values_are_the_trainings_own_to_the_last_bit(attach):
    run, seen = attach(), []
    gt.train(gt.convolutional(), seen=seen, evaluations=2, optimizer="adam")
    trial = run.trial()
    assert trial.dropped() == []
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * 4 + ["EVAL"] * 2
    for step, values in enumerate(seen):
        for name, value in values.items():
            np.testing.assert_array_equal(trial[name].value(step), value, err_msg=f"{name} at {step}")


def test_the_end_records_the_weights_after_the_last_update(attach):
    run = attach()
    net = gt.train(gt.convolutional())
    trial = run.trial()
    for name, parameter in net.collect_params().items():
        final, value = trial[name].final_summary(), parameter.data().asnumpy()
        assert (final.count, final.min, final.max) == (value.size, value.min(), value.max()), name


@pytest.mark.parametrize("hybridize", [{}, {"hybridize": True}, {"hybridize": True, "static_alloc": True, "static_shape": True}])
def test_with_and_without_the_weights_are_the_same_to_the_last_bit(attach, hybridize):
    bare = gt.weights(gt.train(gt.convolutional(**hybridize), momentum=0.9))
    everything = {"collections": {**EVERYTHING["collections"], "outputs": {"include_regex": ".*", "save_interval": 1}}}
    attach(everything)
    assert gt.weights(gt.train(gt.convolutional(**hybridize), momentum=0.9)) == bare


@pytest.mark.parametrize("flags", [[], ["--hybridize"]])
def test_a_collection_by_regex_has_exactly_the_eight_names_of_the_layer(tmp_path, flags):
    (tmp_path / "conv0.yaml").write_text(
        "collections:\n  conv0_tensors:\n    include_regex: conv0.*\n    save_interval: 100\n")
    launched(tmp_path, EXAMPLE, "--steps", "102", "--batch-size", "32", "--test-images", "32", *flags,
             flags=["--config", tmp_path / "conv0.yaml"])
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.dropped() == []
    assert trial.tensor_names(collection="conv0_tensors") == CONV0_NAMES
    assert "softmaxcrossentropyloss0_output_0" in trial.tensor_names()
    for name in CONV0_NAMES:
        assert trial[name].steps(mode="TRAIN", kind="raw") == [0, 100], name
    relu = trial["conv0_relu_input_0"].value(100), trial["conv0_output_0"].value(100)
    np.testing.assert_array_equal(np.maximum(relu[0], 0), relu[1])


@pytest.mark.parametrize("config", [EVERYTHING, {"collections": {"outputs": {"save_interval": 1}}}], ids=["plain", "outputs"])
def test_a_forward_after_the_last_update_is_no_step(attach, config):
    run, model, seen = attach(config), gt.convolutional(), []
    gt.train(model, seen=seen, evaluations=0)
    (images, _), = gt.batches(1)
    with gt.autograd.record():
        model(images).wait_to_read()
    trial = run.trial()
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * len(seen) and trial.dropped() == []
