"""libtorch in the conformance suite: a program as ../cpp has one, against the torch wheel's libraries."""

import functools
import subprocess

from frameworks.cpp.framework import BUILD, ROOT, Cpp

PLACE = BUILD / "tests" / "frameworks" / "libtorch"


@functools.cache
def program():
    """Built where that was not done yet, or anything is newer."""
    import torch
    for command in (["cmake", "-S", str(ROOT / "tests" / "frameworks" / "libtorch"), "-B", str(PLACE), "-DCMAKE_CXX_FLAGS=-O0",
                     "-DCMAKE_BUILD_TYPE=Debug", f"-Dtdbg_DIR={BUILD}", f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"],
                    ["cmake", "--build", str(PLACE)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    return PLACE / "libtorch_conformance"


class Libtorch(Cpp):
    title = "C++, libtorch"

    def version(self):
        return subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def command(self, out, scenario):
        return [str(program()), out, scenario]
