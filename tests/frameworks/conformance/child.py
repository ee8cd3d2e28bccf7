"""One training in a process of its own; it does not know of tdbg, and leaves behind what it saw itself.

    child.py MODULE:CLASS OUT SCENARIO      SCENARIO: train, fork, fork_train, fork_leave, fork_work, spawn
"""

import importlib
import multiprocessing
import os
import pathlib
import pickle
import sys

TESTS = str(pathlib.Path(__file__).resolve().parents[2])


def load(name):
    module, _, kind = name.partition(":")
    sys.path.insert(0, TESTS)
    return getattr(importlib.import_module(module), kind)()


def train(name, out):
    trained = load(name).train()
    with open(out, "wb") as file:
        pickle.dump(trained, file)


def forked(step, leave=sys.exit):
    """A child that leaves through the framework's frames and the interpreter's end, as a script's own child may."""
    if step != 1:
        return
    child = os.fork()
    if child == 0:
        leave(0)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("the forked child failed")


def joined(process):
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"the child process ended with {process.exitcode}")


def main(name, out, scenario):
    if scenario == "train":
        train(name, out)
        return
    framework = load(name)
    if scenario == "fork":
        trained = framework.train(after_step=forked)
    elif scenario == "fork_leave":
        trained = framework.train(after_step=lambda step: forked(step, os._exit))
    elif scenario in ("fork_train", "fork_work"):
        work = framework.train if scenario == "fork_train" else list
        trained = framework.train(after_step=lambda step: step == 1 and joined(
            multiprocessing.get_context("fork").Process(target=work)))
    elif scenario == "spawn":
        trained = framework.train()
        joined(multiprocessing.get_context("spawn").Process(target=train, args=(name, out + ".spawned")))
    with open(out, "wb") as file:
        pickle.dump(trained, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
