"""One training process of the overhead benchmark. Reads commands, answers in JSON lines, sleeps in between.

  run N      train N steps          -> {"wall": s, "cpu": s, "loss": last}
  verify     train one step, and say what NumPy makes of some tensors of it
                                    -> {"step": index, "tensors": {name: {mean, l2, min, max}}}
  memory     -> {"peak_kib": ...}
  quit       ends the process normally

The variant decides what else is attached; tdbg attaches by itself (the environment says so) and is not
mentioned here. Rivals are attached the way their documentation shows.
"""

import argparse
import json
import os
import random
import resource
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--variant", default="bare")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--out", default=".")
args = parser.parse_args()

import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(args.threads)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rivals  # noqa: E402
from models import Training  # noqa: E402

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever a tool prints must not look like an answer
training = Training(args.model)
rivals.attach(args.variant, training, args.out)
steps = 0


def statistics(x):
    x = x.detach().numpy().astype(np.float64)
    return {
        "mean": x.mean(),
        "l2": float(np.sqrt((x * x).sum())),
        "min": x.min(),
        "max": x.max(),
        "variance": x.var(),
    }


def verify():
    global steps
    training.forward_backward()
    named = list(training.model.named_parameters())
    root = type(training.model).__name__
    found = {}
    for name, parameter in random.Random(steps).sample(named, 3):
        found[f"{root}_{name}"] = statistics(parameter)
        found[f"gradient/{root}_{name}"] = statistics(parameter.grad)
    training.optimizer.step()
    steps += 1
    return {"step": steps - 1, "tensors": found}


for line in sys.stdin:
    command, *rest = line.split()
    if command == "run":
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(rest[0])):
            last = training.step()
        steps += int(rest[0])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps({"wall": wall, "cpu": cpu, "loss": last.item(), "steps": steps}), file=answers)
    elif command == "verify":
        print(json.dumps(verify()), file=answers)
    elif command == "memory":
        print(json.dumps({"peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), file=answers)
    elif command == "quit":
        break
