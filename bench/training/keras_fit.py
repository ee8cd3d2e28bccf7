"""What watching a Keras `fit` costs: statistics at every step, against the same training unwatched.

One process per arrangement, all alive at once; they take turns, a block of steps each, so that whatever else the machine does
meets all of them. CPU time of the process (TensorFlow's threads included) and wall-clock time, medians of ratios by round.

    PYTHONPATH=<folder of the package tdbg> .venv-keras/bin/python bench/training/keras_fit.py [--rounds 15] [--seconds 200] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OFF = {"summaries": False}
#: Arrangement -> (configuration or None: unwatched, bar). Losses and metrics are kept in each.
ARRANGEMENTS = {
    "bare": (None, None),
    "gradients": ({"collections": {"weights": OFF, "biases": OFF}, "rules": []}, 1.08),
    "weights and gradients": ({}, 1.20),
    "layer outputs too": ({"collections": {"outputs": {"raw": False}}}, 1.30),
}


def worker(arrangement, steps, threads, batch):
    """Answers each line of standard input with [CPU seconds, wall seconds] of a block of steps."""
    sys.path.insert(0, str(ROOT / "examples" / "fashion_mnist"))
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras
    import keras_train
    keras.utils.set_random_seed(0)
    images, labels = keras_train.load(keras_train.PLACES[0], "train")
    model = keras_train.make_model()
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    data = tf.data.Dataset.from_tensor_slices((images[:batch * steps], labels[:batch * steps])).batch(batch)
    config = ARRANGEMENTS[arrangement][0]
    if config is not None:
        import tdbg
        watch = tdbg.attach(framework="keras", dir=os.path.join(tempfile.mkdtemp(dir=os.environ.get("OUT_RUNS")), "run"),
                            config=config)
    model.fit(data, verbose=0)
    if config is not None and watch.global_step + 1 != steps:
        raise SystemExit(f"bench: {watch.global_step + 1} steps were recorded, not {steps}")
    print("ready", flush=True)
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        model.fit(data, verbose=0)
        print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]), flush=True)
    if config is not None:
        directory = watch.directory
        watch.close()
        dropped = tdbg.open(directory).dropped()
        if dropped:
            raise SystemExit(f"bench: {arrangement}: a row of which something was dropped does not count: {dropped}")


def measure(arguments):
    with tempfile.TemporaryDirectory() as runs:
        processes = {}
        try:
            for name in ARRANGEMENTS:
                processes[name] = subprocess.Popen(
                    [sys.executable, __file__, "--worker", name, "--steps", str(arguments.steps), "--threads",
                     str(arguments.threads), "--batch", str(arguments.batch)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                    env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3",
                         "PYTHONWARNINGS": "ignore", "OUT_RUNS": runs})
            for name, process in processes.items():
                if process.stdout.readline().strip() != "ready":
                    raise SystemExit(f"bench: the training \"{name}\" did not start")
            return rounds(processes, arguments)
        finally:
            for name, process in processes.items():
                process.stdin.close()
                if process.wait() != 0:
                    raise SystemExit(f"bench: the training \"{name}\" failed")


def rounds(processes, arguments):
    ratios = {name: {"cpu": [], "wall": []} for name in processes}
    bare, begin = [], time.monotonic()
    names = list(processes)
    for n in range(arguments.rounds):
        if time.monotonic() - begin > arguments.seconds:
            break
        taken = {}
        for name in names[n % len(names):] + names[:n % len(names)]:
            processes[name].stdin.write("go\n")
            processes[name].stdin.flush()
            taken[name] = json.loads(processes[name].stdout.readline())
        bare.append(taken["bare"][0] / arguments.steps * 1e3)
        for name in names:
            ratios[name]["cpu"].append(taken[name][0] / taken["bare"][0])
            ratios[name]["wall"].append(taken[name][1] / taken["bare"][1])
    found = {"bare_ms_per_step": statistics.median(bare), "rounds": len(bare), "steps": arguments.steps, "ratios": {}}
    print(f"Keras fit, FashionMNIST CNN, batch {arguments.batch}, {arguments.threads} TensorFlow thread(s): "
          f"{found['bare_ms_per_step']:.2f} ms of CPU a step, {len(bare)} rounds of {arguments.steps} steps")
    for name, (_, bar) in ARRANGEMENTS.items():
        if bar is None:
            continue
        cpu, wall = (statistics.median(ratios[name][kind]) for kind in ("cpu", "wall"))
        quarter = statistics.quantiles(ratios[name]["cpu"], n=4) if len(bare) > 1 else [cpu] * 3
        found["ratios"][name] = {"cpu": cpu, "wall": wall, "cpu_quartiles": [quarter[0], quarter[2]], "bar": bar}
        print(f"  {name:24} CPU {cpu:.3f} ({quarter[0]:.3f} .. {quarter[2]:.3f})  wall {wall:.3f}  "
              f"bar {bar:.2f}  {'kept' if cpu <= bar else 'MISSED'}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--steps", type=int, default=60, help="per block")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.steps, arguments.threads, arguments.batch)
        return
    found = measure(arguments)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
