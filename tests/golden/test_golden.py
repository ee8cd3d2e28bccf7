"""The golden runs open with stock safetensors, and their recipe still gives the frozen bytes."""
import filecmp
import json
import pathlib

import numpy as np
import pytest

import make_golden

HERE = pathlib.Path(__file__).parent
every_minor = pytest.mark.parametrize("minor", make_golden.MINORS)


@every_minor
def test_the_recipe_gives_the_frozen_files(tmp_path, minor):
    make_golden.make(tmp_path, minor)
    for path in sorted(p for p in tmp_path.rglob("*") if p.is_file()):
        frozen = HERE / f"v1.{minor}" / path.relative_to(tmp_path)
        assert filecmp.cmp(path, frozen, shallow=False), path.name


@every_minor
def test_stock_safetensors_reads_the_segment(minor):
    safetensors = pytest.importorskip("safetensors")
    segment, = (HERE / f"v1.{minor}" / "0" / "worker_0" / "segments").iterdir()
    with safetensors.safe_open(segment, framework="np") as file:
        np.testing.assert_array_equal(file.get_tensor("gradient/Net_conv1.weight@0"), make_golden.gradient(0))
        np.testing.assert_array_equal(file.get_tensor("gradient/Net_conv1.weight@1"), make_golden.gradient(1))
        assert file.get_tensor("odd@name.5@0.1.after_clip").tobytes() == make_golden.COMPLEX.tobytes()
        np.testing.assert_array_equal(file.get_tensor("step/global"), [0, 1])
        tdbg = json.loads(file.metadata()["tdbg"])
    assert tdbg["format"] == {"major": 1, "minor": minor}


def test_own_hash_agrees_with_the_package():
    xxhash = pytest.importorskip("xxhash")
    from xxh3 import xxh3_64

    for n in [*range(260), 511, 1023, 1024, 1025, 1088, 5000]:
        data = bytes(i * 37 % 251 for i in range(n))
        assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data), n
