#!/usr/bin/env python3
"""What does being watched cost a training step? Question, workload, baseline:

Question   time per step with tdbg (and with its rivals) over the time per step without, same training, same run.
Workload   the models of models.py, one and two torch threads.
Baseline   `bare`: the same process with nothing attached. `bare again` is a second such process: its ratio
           is the noise of this machine, read the others against it.

All processes of a table live at the same time and take turns: block i of every variant runs within a second or
two of block i of bare, so a slow minute of the machine hits them all. A ratio is the median over blocks of
(variant's block / bare's block); the range is the middle half. CPU is process time (all threads of it).

  .venv/bin/python bench/training/overhead.py [--models cnn,mlp] [--threads 1,2] [--rounds 30] [--only default]
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = pathlib.Path(__file__).with_name("worker.py")
# Trainings whose loop is a framework's: (worker, environment)
DRIVEN = {name: (WORKER.with_name("driven.py"), "hf") for name in ("hf", "lightning")}

# variant -> (environment, flags for `tdbg run`, or None where tdbg is not in the process, what it is)
DEFAULT = ["--rule", "vanishing_gradient", "--rule", "loss_not_decreasing"]
CHANGES = ["--rule", "weight_update_ratio", "--rule", "unchanged_tensor", "collection_names=weights"]
ALL = {
    "bare": ("", None, "nothing attached"),
    "bare again": ("", None, "the same, to show the noise"),
    "idle": ("", ["--config", "idle.yaml"], "tdbg attached, nothing due, context off"),
    "default": ("", DEFAULT, "tdbg: statistics, losses, context; histograms at every tenth step; two rules watching"),
    "histograms": ("", DEFAULT + ["--histograms", "1"], "the same with a histogram of every tensor at every step"),
    "outputs": ("", DEFAULT + ["--config", "outputs.yaml"], "the same and every module's outputs"),
    "blocks": ("", DEFAULT + ["--config", "blocks.yaml"], "the same and the outputs of three blocks"),
    "raw": (
        "",
        DEFAULT + ["--when-full", "block"]
        + [a for c in ("weights", "biases", "gradients", "losses", "relu_output") for a in ("--collect", c + ":1")],
        "the same and raw weights, biases, gradients, losses, relu outputs, every step, policy block",
    ),
    "units": (
        "", ["--rule", "dead_relu", "--rule", "saturated_activation"],
        "tdbg: statistics, losses, context; DeadRelu and SaturatedActivation, every step; no raw values",
    ),
    "changes": (
        "", ["--summaries", "off", *CHANGES],
        "tdbg: WeightUpdateRatio and UnchangedTensor at their interval, and nothing that they do not need",
    ),
    "changes too": ("", DEFAULT + CHANGES, "the default, and the same two rules: read it against the default"),
    "smdebug_raw": ("smdebug", None, "smdebug 1.0.34: the same raw tensors, every step"),
    "smdebug_parameters": ("smdebug", None, "smdebug 1.0.34: raw parameters and gradients, every step"),
    "hand_rolled": ("", None, "mean, std, norm, abs-max by torch and .item()"),
    "wandb": ("rivals", None, 'wandb.watch(log="all", log_freq=1), offline'),
    "tensorboard": ("rivals", None, "add_histogram of parameters and gradients"),
    "trainscope": ("rivals", None, "trainscope 1.8.1, its defaults (a sample of steps)"),
    "trainscope_every_step": ("rivals", None, "trainscope 1.8.1, every step"),
}
TABLES = {
    "cnn": [
        "bare", "bare again", "idle", "default", "histograms", "outputs", "raw", "smdebug_raw", "hand_rolled", "wandb",
        "tensorboard", "trainscope", "trainscope_every_step",
    ],
    "units": ["bare", "bare again", "default", "units", "changes", "changes too"],
    "transformer": ["bare", "bare again", "idle", "default", "histograms", "outputs", "hand_rolled", "wandb", "trainscope_every_step"],
    "hf": ["bare", "bare again", "default"],
    "lightning": ["bare", "bare again", "default"],
    "compiled": ["bare", "bare again", "default", "blocks"],
    "mlp": ["bare", "bare again", "idle", "default", "smdebug_parameters", "hand_rolled", "wandb"],
}  # fmt: skip
# (model, variant) -> bar on the ratio to bare, as the project promises it
BARS = {
    ("cnn", "default"): 1.02, ("transformer", "default"): 1.02,
    ("cnn", "histograms"): 1.05, ("transformer", "histograms"): 1.05, ("mlp", "default"): 1.05,
    ("units", "units"): 1.08, ("units", "changes"): 1.02,
    ("hf", "default"): 1.03, ("lightning", "default"): 1.03,
    ("compiled", "default"): 1.03, ("compiled", "blocks"): 1.05,
    ("cnn", "outputs"): 1.08, ("transformer", "outputs"): 1.10, ("cnn", "raw"): 1.20,
}  # fmt: skip
CONFIGS = {
    "idle.yaml": "summaries: {every: 0}\ncontext: false\nrecord_end: false\nrules: []\n",
    "outputs.yaml": "collections:\n  - name: outputs\n    raw: false\n",
    "blocks.yaml": "collections:\n  blocks: {include_regex: ['^encoder.layers.[0-2]_output_0$'], raw: false}\n",
}


class Process:
    """A training that runs a block of steps when told to and sleeps otherwise."""

    def __init__(self, variant, model, threads, folder):
        self.variant, self.folder = variant, folder
        folder.mkdir(parents=True)
        environment, flags, _ = ALL[variant]
        worker, framework = DRIVEN.get(model, (WORKER, ""))
        environment = environment or framework
        python = ROOT / (f".venv-{environment}" if environment else ".venv") / "bin" / "python"
        command = [str(python), str(worker), "--model", model, "--threads", str(threads), "--out", str(folder)]
        command += ["--variant", variant]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.run = folder / "run" if flags is not None else None
        if flags is not None:
            flags = [str(folder / f) if f in CONFIGS else f for f in flags]
            for name, text in CONFIGS.items():
                (folder / name).write_text(text)
            command = [tdbg(), "run", "--quiet", "--dir", str(self.run), *flags, "--", *command]
        self.log = open(folder / "log.txt", "w")
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env, cwd=folder
        )

    def ask(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
            answer = self.child.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"bench: {self.variant} died; see below\n" + (self.folder / "log.txt").read_text()[-2000:])
        return json.loads(answer)

    def end(self):
        self.child.stdin.write("quit\n")
        self.child.stdin.close()
        self.child.wait(timeout=120)
        self.log.close()


def tdbg():
    return os.environ.get("TDBG_BIN", str(ROOT / ".venv" / "bin" / "tdbg"))


def verify(run, expected):
    """Are the statistics in the run those that NumPy found in the process? Returns (rows, worst relative error, what was dropped)."""
    import tdbg as library

    trial = library.open(str(run))
    worst, compared, names = 0.0, 0, set(trial.tensor_names())
    for want in expected:
        step = trial.steps()[want["step"]] if want["step"] < len(trial.steps()) else None
        for name, numbers in want["tensors"].items():
            if step is None or name not in names:
                continue
            summary = trial.tensor(name).summary(step)
            for field, value in numbers.items():
                scale = max(abs(value), numbers["l2"] * 1e-6, 1e-30)
                worst = max(worst, abs(getattr(summary, field) - value) / scale)
                compared += 1
    rows = sum(len(trial.tensor(n).steps(kind="summary")) for n in trial.tensor_names())
    return rows, len(trial.steps()), compared, worst, trial.dropped()


def measure(model, threads, variants, rounds, seconds, block_seconds, scratch):
    folder = scratch / f"{model}-{threads}"
    processes = {v: Process(v, model, threads, folder / v.replace(" ", "_")) for v in variants}
    for process in processes.values():
        process.ask("run 5")        # they start side by side; this waits for each
    # A block of every variant takes about as long: a slow rival gets fewer steps in it, not more time.
    steps = {v: max(3, int(block_seconds / (p.ask("run 5")["wall"] / 5))) for v, p in processes.items()}
    walls, cpus = {v: [] for v in variants}, {v: [] for v in variants}
    order = list(variants)
    deadline = time.monotonic() + seconds
    for i in range(rounds):
        if time.monotonic() > deadline and i >= 3:
            break
        order = order[1:] + order[:1]
        for v in order:
            answer = processes[v].ask(f"run {steps[v]}")
            walls[v].append(answer["wall"] / steps[v])
            cpus[v].append(answer["cpu"] / steps[v])
        print(f"\rbench: {model}, {threads} thread(s): round {i + 1} of {rounds}", end="", file=sys.stderr)
    print(file=sys.stderr)
    expected = {v: [processes[v].ask("verify") for _ in range(3)] for v in variants if ALL[v][1] is not None}
    memory = {v: processes[v].ask("memory")["peak_kib"] / 1024 for v in variants}
    for process in processes.values():
        process.end()
    rows = []
    for v in variants:
        ratios = sorted(a / b for a, b in zip(walls[v], walls["bare"]))
        cpu = statistics.median(a / b for a, b in zip(cpus[v], cpus["bare"]))
        row = {
            "model": model, "threads": threads, "variant": v, "what": ALL[v][2],
            "ms": statistics.median(walls[v]) * 1e3, "ratio": statistics.median(ratios),
            "quarter": ratios[len(ratios) // 4], "three_quarters": ratios[3 * len(ratios) // 4], "cpu": cpu,
            "added_ms": statistics.median(a - b for a, b in zip(walls[v], walls["bare"])) * 1e3,
            "peak_mib_added": memory[v] - memory["bare"], "bar": BARS.get((model, v)),
        }  # fmt: skip
        if processes[v].run is not None and v != "idle":
            summaries, seen, compared, worst, dropped = verify(processes[v].run, expected[v])
            row.update(rows=summaries, steps=seen, compared=compared, worst=worst, dropped=dropped)
        rows.append(row)
    return rows


def show(rows):
    head = f"{'':23}{'ms/step':>9}{'ratio':>8}{'middle half':>15}{'cpu':>7}{'added ms':>10}{'MiB':>6}  bar"
    print(f"\n{rows[0]['model']}, {rows[0]['threads']} torch thread(s)\n{head}")
    for r in rows:
        bar = ""
        if r["bar"]:
            bar = f"{r['bar']:.2f} {'met' if r['ratio'] <= r['bar'] else 'MISSED'}"
        spread = f"{r['quarter']:.3f}-{r['three_quarters']:.3f}"
        print(
            f"{r['variant']:23}{r['ms']:9.2f}{r['ratio']:8.3f}{spread:>15}{r['cpu']:7.2f}"
            f"{r['added_ms']:10.3f}{r['peak_mib_added']:6.0f}  {bar}"
        )
        if "rows" in r:
            dropped = ", ".join(f"{x['count']} {x['kind']} ({x['cause']})" for x in r["dropped"]) or "none"
            print(
                f"{'':9}{r['rows']} summaries over {r['steps']} steps; dropped: {dropped}; "
                f"{r['compared']} numbers against NumPy, worst off by {r['worst']:.1e}"
            )
    by_name = {r["variant"]: r for r in rows}
    for ours, theirs, limit in (("raw", "smdebug_raw", 1 / 3), ("default", "smdebug_parameters", 1 / 50)):
        if ours in by_name and theirs in by_name:
            share = by_name[ours]["added_ms"] / by_name[theirs]["added_ms"]
            print(f"{ours} adds {share:.3f} of what {theirs} adds (bar {limit:.3f}: {'met' if share <= limit else 'MISSED'})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="cnn,transformer,mlp")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=600, help="no further round of a table after this time")
    parser.add_argument("--block-seconds", type=float, default=0.35)
    parser.add_argument("--only", default="", help="comma list of variants beside bare")
    parser.add_argument("--scratch", default="", help="where the runs lie; default: a temporary folder in bench/out")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    scratch = pathlib.Path(args.scratch or ROOT / "bench" / "out" / time.strftime("%Y%m%d-%H%M%S"))
    scratch.mkdir(parents=True, exist_ok=True)
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, page {os.sysconf('SC_PAGESIZE')} B, transparent huge pages "
        + pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
        + f", runs on {subprocess.run(['stat', '-f', '-c', '%T', scratch], capture_output=True, text=True).stdout.strip()}"
    )
    everything = []
    for model in args.models.split(","):
        for threads in map(int, args.threads.split(",")):
            variants = TABLES[model]
            if args.only:
                wanted = set(args.only.split(",")) | {"bare"}
                variants = [v for v in variants if v in wanted]
            missing = [v for v in variants if ALL[v][0] and not (ROOT / f".venv-{ALL[v][0]}" / ".complete").exists()]
            if missing:
                print(f"bench: without {', '.join(missing)}: bench/setup_rivals.sh was not run", file=sys.stderr)
                variants = [v for v in variants if v not in missing]
            rows = measure(model, threads, variants, args.rounds, args.seconds, args.block_seconds, scratch)
            show(rows)
            everything += rows
            shutil.rmtree(scratch / f"{model}-{threads}", ignore_errors=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
