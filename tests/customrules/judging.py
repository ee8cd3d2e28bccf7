"""Runs written through the extension, judged by the real binary with rules of the user's own."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TDBG_BIN", ROOT / "build" / "tdbg"))
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
STEPS = 20
sys.path.insert(0, HOME)


def write_run(directory, steps=STEPS, raw_every=5, seconds=0.0):
    """A training of `steps` steps: gradient/a grows by 1 a step, gradient/b stays. Raw values every `raw_every`."""
    import time

    from tdbg._capture import Run

    plan = {"kind": "tdbg.plan", "major": 1, "minor": 0,
            "collections": [{"name": "gradients", "kinds": ["gradient"], "keep": True, "summaries": True,
                             "raw": {"train": {"interval": raw_every, "start": 0, "end": -1, "steps": []}}}]}
    run = Run.open(directory=str(directory), plan_json=json.dumps(plan))
    names = ("gradient/a", "gradient/b")
    ids = [run.define(name, name, "gradient", "", "float32", [4]) for name in names]
    for step in range(steps):
        run.begin_step(1)
        for ident, level in zip(ids, (step, 1)):
            run.put_array(ident, np.full(4, level, np.float32))
        run.end_step()
        time.sleep(seconds)
    run.end("completed")


class Judge:
    def __init__(self, directory, run):
        self.directory, self.run = directory, run
        self.env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD") and k != "PYTHONPATH"}
        self.env |= {"TDBG_HOME": HOME, "TDBG_PYTHON": sys.executable}

    def __call__(self, *args, run=None, env=None, timeout=120):
        return subprocess.run([str(BINARY), *map(str, args)], cwd=self.directory, env=self.env | (env or {}),
                              capture_output=True, text=True, timeout=timeout)

    def file(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def check(self, *rules, **kwargs):
        """Statuses by name, of `tdbg check` with these words behind it."""
        done = self("check", self.run, *rules, "--json", **kwargs)
        assert done.returncode in (0, 1, 8), done.stderr
        return {rule["RuleConfigurationName"]: rule for rule in json.loads(done.stdout)["rules"]}

    def refused(self, *rules):
        done = self("check", self.run, *rules)
        assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        return done.stderr
