"""A run for Prometheus: what node_exporter's textfile collector would take, and what it would refuse."""

import collections
import os
import re
import sys

#: The first attempt fails after some steps; the next one goes on behind them.
TRAINING = """
import os, pathlib, sys
import numpy as np
from tdbg._capture import Run
attempt = int(os.environ["TDBG_ATTEMPT"])
run = Run.open(step_base=10 * attempt, step_base_from="script")
ident, rate = run.define("Loss_output_0", "loss", "loss", "", "float32", []), run.define_scalar("lr/0")
for step in range(10):
    run.begin_step(1)
    run.put_array(ident, np.array(1.0 + attempt, np.float32))
    run.put_scalars([rate], [0.25 * (1 + attempt)])
    run.end_step()
if attempt == 0:
    os._exit(1)
run.end("completed")
"""
SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$')


def samples(text):
    """[(name and labels, value)]; every line that is no comment is a sample."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [SAMPLE.match(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return [((match[1], match[2]), float(match[3])) for match in found]


def test_a_run_that_was_started_again_is_one_that_prometheus_takes(tdbg):
    """Of two samples with the same labels it refuses all of the file."""
    (tdbg.directory / "t.py").write_text(TRAINING)
    done = tdbg("run", "--dir", "r", "--max-restarts", "1", "--prometheus", "a.prom", "--", sys.executable, "t.py",
                env={"PYTHONPATH": tdbg.env["TDBG_HOME"]})
    assert done.returncode == 0, done.stderr
    text = (tdbg.directory / "a.prom").read_text()
    for of in (text, tdbg.ok("metrics", "r").stdout):
        found = samples(of)
        twice = [key for key, count in collections.Counter(key for key, _ in found).items() if count > 1]
        assert not twice, twice
        values = {(name, label): value for (name, labels), value in found for label in re.findall(r'name="([^"]*)"', labels)}
        assert values["tdbg_value", "Loss_output_0"] == 2 and values["tdbg_value", "lr/0"] == 0.5, "of the latest attempt"
        assert dict((name, value) for (name, _), value in found)["tdbg_attempt"] == 1
    assert [path.name for path in tdbg.directory.glob("a.prom*")] == ["a.prom"]
    umask = os.umask(0)
    os.umask(umask)
    assert (tdbg.directory / "a.prom").stat().st_mode & 0o777 == 0o666 & ~umask, "node_exporter is another user"
