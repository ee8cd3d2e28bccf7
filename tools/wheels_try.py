#!/usr/bin/env python3
"""Records a step with the installed wheel and reads it: `wheels_try.py DIRECTORY`. Wants numpy and tdbg, nothing else."""

import os
import platform
import subprocess
import sys

import numpy as np

import tdbg
from tdbg._capture import Run

directory = sys.argv[1]
values = np.arange(300, dtype=np.float32)
run = Run.open(directory=directory)
weight = run.define("w", "w", "weight", "", "float32", [300])
run.begin_step(1)
run.put_array(weight, values)
run.end_step()
run.end("completed")
summary = tdbg.open(directory).tensor("w").summary(0)
assert summary.mean == values.mean() and summary.count == 300, summary
program = os.path.join(os.path.dirname(tdbg.__file__), "bin", "tdbg")
subprocess.run([program, "status", directory], check=True, stdout=subprocess.DEVNULL)
# Those beside it find the libraries that were packed for them: 127 is the loader's, a signal is negative.
for name in sorted(os.listdir(os.path.dirname(program))):
    beside = subprocess.run([os.path.join(os.path.dirname(program), name), "--help"], stdin=subprocess.DEVNULL,
                            capture_output=True, timeout=60)
    assert 0 <= beside.returncode < 126, (name, beside)
print(f"wheels: Python {platform.python_version()} records and reads with {os.path.basename(tdbg._capture.__file__)}")
