"""What is missing to build tdbg is named at once, by the packages that bring it: pip shows it where no wheel fits."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake here")
def test_all_that_is_missing_is_named_by_its_package(tmp_path):
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DSKBUILD=ON", "-DTDBG_TESTS=OFF",
                           "-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON"],
                          capture_output=True, text=True, timeout=120)
    words = " ".join(done.stderr.split())
    assert done.returncode != 0 and "no wheel was given for this Python" in words
    assert "apt-get install libhwy-dev libcurl4-openssl-dev" in words
