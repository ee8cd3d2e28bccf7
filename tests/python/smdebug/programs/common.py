"""What the programs share. Every line runs under the real smdebug as under ours."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import torch
from torch import nn

OUT = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.relu = nn.ReLU()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(self.relu(self.body(self.relu(self.fc1(x)))))


def batch(n=4):
    return torch.randn(n, 6), torch.randint(0, 3, (n,))


def tell(what):
    sys.stdout.write("\nRESULT " + json.dumps(what) + "\n")


def run_example(path, *arguments):
    """A script of examples/ in a process of its own, under this environment's smdebug."""
    example = pathlib.Path(__file__).resolve().parents[4] / "examples" / path
    code = "import sys, runpy; sys.path.insert(0, sys.argv.pop(1)); import xgboost_for_real; del sys.argv[0]; "
    code += "sys.path.insert(0, sys.argv[0].rpartition('/')[0]); runpy.run_path(sys.argv[0], run_name='__main__')"
    tests = pathlib.Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tests), str(example), *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def values_of(tensor, modes):
    found = {}
    for mode in modes:
        for step in tensor.steps(mode=mode):
            try:
                value = np.asarray(tensor.value(step, mode=mode))
            except Exception as error:
                found[f"{mode.name} {step}"] = type(error).__name__
                continue
            found[f"{mode.name} {step}"] = [str(value.dtype), list(value.shape), value.reshape(-1).astype("f8").tolist()]
    return found


def describe(trial, modes, collections=()):
    return {
        "names": trial.tensor_names(),
        "modes": sorted(mode.name for mode in trial.modes()),
        "steps": {mode.name: trial.steps(mode=mode) for mode in modes},
        "workers": trial.workers(),
        "collections": {name: sorted(trial.tensor_names(collection=name)) for name in collections},
        "tensors": {name: values_of(trial.tensor(name), modes) for name in trial.tensor_names()},
    }


def config_file(document):
    path = os.path.join(os.path.dirname(OUT), "hook.json")
    with open(path, "w") as file:
        json.dump(document, file)
    return path
