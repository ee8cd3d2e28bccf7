"""Writes runs with the real smdebug's writer: modes, several workers, partial steps, reductions, shapes, texts.

    python write_with_smdebug.py DIRECTORY      # makes DIRECTORY/<name> for each of them
"""

import os
import pathlib
import sys

import numpy as np
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.reductions import get_reduction_tensor_name
from smdebug.core.writer import FileWriter


def collections(path, workers, **more):
    manager = CollectionManager()
    for name, (regexes, names) in {"weights": (["^(?!gradient).*weight"], ["fc.weight"]), "gradients": (["^gradient"], []),
                                   "losses": (["^loss"], []), "default": ([], []), **more}.items():
        manager.add(name)
        manager.get(name).include(regexes)
        for tensor in names:
            manager.get(name).add_tensor_name(tensor)
    manager.set_num_workers(len(workers))
    for worker in workers:
        manager.export(str(path), f"{worker}_collections.json")


def step(path, number, mode, mode_step, worker="worker_0", tensors=None, reductions=None, shapes=None):
    rank = int(worker[-1])
    generator = np.random.default_rng(1000 * rank + number)
    if tensors is None:
        tensors = {"fc.weight": generator.standard_normal(12).astype(np.float32),
                   "gradient/fc.weight": generator.standard_normal(7),
                   "loss": np.array([1 / (number + 1)], np.float32)}
    writer = FileWriter(trial_dir=str(path), step=number, worker=worker)
    for name, value in tensors.items():
        writer.write_tensor(tdata=value, tname=name, mode=mode, mode_step=mode_step)
    for (name, reduction, absolute), value in (reductions or {}).items():
        writer.write_tensor(tdata=np.array(value, np.float32), mode=mode, mode_step=mode_step,
                            tname=get_reduction_tensor_name(name, reduction, absolute, remove_colon_index=True))
    for name, shape in (shapes or {}).items():
        writer.write_shape(name, shape, mode, mode_step)
    writer.close()


def end(path):
    (path / "training_job_end.ts").touch()


def modes(path):
    """One worker, TRAIN and EVAL steps that are not all saved."""
    collections(path, ["worker_0"])
    train = evaluation = 0
    for number in range(0, 20, 2):
        if number % 8 == 6:
            step(path, number, ModeKeys.EVAL, evaluation)
            evaluation += 3
        else:
            step(path, number, ModeKeys.TRAIN, train)
            train += 2
    end(path)


def workers(path):
    """Three workers; the last steps are worker_0's and worker_2's only, one is nobody's."""
    names = ["worker_0", "worker_1", "worker_2"]
    collections(path, names)
    for number in (0, 1, 2, 4, 5, 6):
        for name in names:
            if number < 4 or number == 6 or name != "worker_1":
                step(path, number, ModeKeys.TRAIN, number, name)
    end(path)


def partial(path):
    """Three workers, still running: worker_1 stopped at step 2."""
    names = ["worker_0", "worker_1", "worker_2"]
    collections(path, names)
    for number in range(5):
        for name in names:
            if number < 3 or name != "worker_1":
                step(path, number, ModeKeys.TRAIN, number, name)


def reductions(path):
    """Saved reductions beside values and instead of them, shapes instead of values, a step without either."""
    collections(path, ["worker_0"])
    for number in range(3):
        step(path, number, ModeKeys.TRAIN, number,
             tensors={"loss": np.array([2.0], np.float32)} if number != 1 else {"fc.weight": np.arange(4, dtype=np.float64)},
             reductions={("fc.weight", "mean", False): 0.25 * number, ("fc.weight", "l2", True): 3.0,
                         ("gradient/fc.weight", "max", True): 7.0},
             shapes={"gradient/fc.weight": (3, 4)} if number == 2 else None)
    end(path)


def types(path):
    """Texts, halves, booleans, integers, scalars, complex numbers."""
    collections(path, ["worker_0"])
    step(path, 0, ModeKeys.GLOBAL, 0, tensors={
        "text": np.array(["a", "longer", "é"]), "half": np.arange(6, dtype=np.float16).reshape(2, 3),
        "bool": np.array([[True, False]]), "int": np.arange(-3, 3), "int32": np.arange(3, dtype=np.int32),
        "uint8": np.arange(5, dtype=np.uint8), "scalar": np.array(2.5), "nan": np.array([1, np.nan, np.inf]),
        "complex": np.array([1 + 2j, -3j])})
    end(path)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    for make in (modes, workers, partial, reductions, types):
        path = out / make.__name__
        os.makedirs(path)
        make(path)
