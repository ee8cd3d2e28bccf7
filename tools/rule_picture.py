"""Draws the picture of a rule's page from a run that trips it: src/rules/builtin/<rule>/picture.svg.

    python tools/rule_picture.py RULE RUN [--beside RUN]

RUN is a run of examples/faults (or examples/xgboost) that was captured with the rule. Everything drawn is read by the tdbg
program ($TDBG_BIN). Needs matplotlib.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
TDBG = os.environ.get("TDBG_BIN", str(ROOT / "build" / "tdbg"))
INK, DIM, HIT, CALM = "#1b1f24", "#8b95a0", "#c8442b", "#2f6fb3"


def ask(*words):
    return json.loads(subprocess.run([TDBG, *map(str, words), "--json"], check=True, capture_output=True, text=True).stdout)


class Run:
    def __init__(self, path, rule):
        self.path = path
        statuses = ask("status", path)["rules"]
        self.status = next((s for s in statuses if s["RuleConfigurationName"].lower() == rule.replace("_", "")), None)
        self.findings = self.status["findings"] if self.status else []

    def tensors(self, regex="", collection=None):
        flags = ["--collection", collection] if collection else []
        return [t["name"] for t in ask("tensors", self.path, *([regex] if regex else []), *flags)]

    def series(self, tensor, field):
        pairs = ask("show", self.path, tensor, "--field", field)["series"]
        return [p[0] for p in pairs], [float(p[1]) for p in pairs]

    def values(self, tensor):
        """[(step, flat list)] of the raw values kept."""
        def flat(value):
            return [x for item in value for x in flat(item)] if isinstance(value, list) else [float(value)]

        return [(v["global_step"], flat(v["values"])) for v in ask("show", self.path, tensor, "--raw", "--steps", "0:")["values"]]


def lines(ax, run, tensors, field, bad=(), scale=lambda s, v: v):
    for name in tensors:
        steps, values = run.series(name, field)
        hit = name in bad
        ax.plot(steps, scale(steps, values), color=HIT if hit else CALM, lw=1.8 if hit else 0.9,
                alpha=1 if hit else 0.45, zorder=3 if hit else 2)
    return ax


def threshold(ax, value, text):
    ax.axhline(value, color=INK, lw=1, ls=(0, (4, 3)))
    ax.annotate(text, (1, value), xycoords=("axes fraction", "data"), xytext=(-2, 3), textcoords="offset points",
                ha="right", fontsize=8, color=INK)


def mark(ax, run):
    if run.findings:
        step = run.findings[0]["global_step"]
        ax.axvline(step, color=HIT, lw=0.8, alpha=0.7)
        ax.annotate(f"hit at step {step}", (step, 1), xycoords=("data", "axes fraction"), xytext=(4, -10),
                    textcoords="offset points", fontsize=8, color=HIT)


def bad(run):
    return {f["tensor"] for f in run.findings}


def vanishing_gradient(ax, run):
    lines(ax, run, run.tensors("weight$", "gradients"), "mean_abs", bad(run))
    ax.set_yscale("log")
    threshold(ax, 1e-7, "threshold 1e-7")
    ax.set_ylabel("mean |gradient|, each layer")


def exploding_tensor(ax, run):
    for name in run.tensors("weight", "gradients"):
        steps, counts = run.series(name, "nonfinite_count")
        ax.plot(steps[:8], [100 * n / c for n, c in zip(counts, run.series(name, "count")[1])][:8], "o-", ms=3,
                color=HIT if name in bad(run) else CALM, lw=1.2)
    ax.set_ylabel("NaN or infinite, % of each gradient")


def unchanged_tensor(ax, run):
    lines(ax, run, run.tensors("", "weights"), "l2", bad(run), lambda s, v: [x / v[0] for x in v])
    ax.set_ylabel("norm of each weight over its first")


def loss_of(run):
    return run.tensors("", "losses")[0]


def overfit(ax, run):
    modes = {s["global_step"]: s["mode"] for s in ask("show", run.path, loss_of(run))["steps"]}
    steps, values = run.series(loss_of(run), "value")
    for mode, colour, text in (("TRAIN", CALM, "TRAIN"), ("EVAL", HIT, "EVAL")):
        points = [(s, v) for s, v in zip(steps, values) if modes[s] == mode]
        ax.plot(*zip(*points), ".", ms=3, color=colour, label=text)
    ax.legend(frameon=False, fontsize=8)
    ax.set_ylabel("loss")


def _interval_means(ax, run, interval):
    steps, values = run.series(loss_of(run), "value")
    ax.plot(steps, values, color=CALM, lw=0.8, alpha=0.6, label="loss")
    for begin in range(0, len(values) - interval + 1, interval):
        mean = sum(values[begin:begin + interval]) / interval
        ax.plot([steps[begin], steps[begin + interval - 1]], [mean, mean], color=HIT, lw=2,
                label="means that are compared" if begin == 0 else None)
    ax.legend(frameon=False, fontsize=8)
    ax.set_ylabel("loss")


def loss_not_decreasing(ax, run):
    _interval_means(ax, run, 40)


def overtraining(ax, run):
    _interval_means(ax, run, 20)


def weight_update_ratio(ax, run):
    for name in run.tensors("weight$", "weights"):
        kept = run.values(name)
        points = []
        for (_, a), (step, b) in zip(kept, kept[1:]):
            change = sum(abs(x - y) for x, y in zip(b, a)) / len(a)
            points.append((step, change / (sum(abs(x) for x in a) / len(a) + 1e-9)))
        ax.plot([step for step, _ in points], [max(ratio, 1e-12) for _, ratio in points], "o-", ms=3, color=HIT)
    ax.set_yscale("log")
    ax.set_ylim(1e-13, 1)
    threshold(ax, 1e-8, "small_threshold 1e-8")
    ax.set_ylabel("mean |change| / mean |weight|")


def poor_weight_initialization(ax, run):
    lines(ax, run, run.tensors("relu.*_input"), "variance", bad(run))
    ax.set_yscale("log")
    ax.set_ylabel("variance of each ReLU's input")


def tensor_variance(ax, run):
    poor_weight_initialization(ax, run)
    threshold(ax, 0.01, "min_threshold 0.01")


def all_zero(ax, run):
    for name in run.tensors("weight$", "gradients"):
        steps, zeros = run.series(name, "zero_count")
        _, counts = run.series(name, "count")
        hit = name in bad(run)
        ax.plot(steps, [100 * z / c for z, c in zip(zeros, counts)], color=HIT if hit else CALM, lw=1.8 if hit else 1)
    threshold(ax, 100, "threshold 100 %")
    ax.set_ylabel("zeros in each gradient, %")


def class_imbalance(ax, run):
    counts = {}
    for _, labels in run.values("loss_input_1"):
        for label in labels:
            counts[int(label)] = counts.get(int(label), 0) + 1
    largest = max(counts.values())
    ax.bar(list(counts), list(counts.values()), color=[HIT if n == largest else CALM for n in counts.values()])
    threshold(ax, largest / 10, "a tenth of the largest")
    ax.set_ylabel("labels seen")


def stalled_training_rule(ax, run):
    seconds = [0.5 * i for i in range(8)] + [8 + 0.5 * i for i in range(5)]
    del run
    ax.step(seconds, range(len(seconds)), where="post", color=CALM)
    ax.axvspan(3.5, 8, color=HIT, alpha=0.15, lw=0)
    ax.annotate("no heartbeat", (5.75, 4), ha="center", fontsize=8, color=HIT)
    ax.set_ylabel("step")


def similar_across_runs(ax, run, beside):
    for which, colour, width in ((run, HIT, 3.5), (beside, INK, 1)):
        steps, values = which.series(loss_of(which), "value")
        ax.plot(steps, values, color=colour, lw=width, alpha=0.5 if width > 1 else 1)
    ax.set_ylabel("loss of both runs")


def confusion(ax, run):
    (_, labels), (_, scores) = run.values("labels")[0], run.values("predictions")[0]
    grid = [[0, 0], [0, 0]]
    for label, score in zip(labels, scores):
        grid[int(label)][int(score > 0.5)] += 1
    shares = [[n / sum(row) for n in row] for row in grid]
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.3)
    for row in (0, 1):
        for column in (0, 1):
            share = shares[row][column]
            hit = share < 0.9 if row == column else share > 0.1
            ax.annotate(f"{share:.2f}", (column, row), ha="center", va="center", color=HIT if hit else INK)
    ax.set_xticks([0, 1])
    ax.set_yticks([0, 1])
    ax.set_ylabel("label")


def feature_importance_overweight(ax, run):
    by_step = {}
    for name in run.tensors("feature_importance/gain/"):
        steps, values = run.series(name, "value")
        ax.plot(steps, values, color=CALM, lw=0.9, alpha=0.45)
        for step, value in zip(steps, values):
            by_step.setdefault(step, []).append(value)
    sums = {step: sum(sorted(values)[-3:]) / sum(values) for step, values in sorted(by_step.items())}
    ax.plot(list(sums), list(sums.values()), color=HIT, lw=1.8)
    threshold(ax, 0.8, "threshold 0.8")
    ax.set_ylabel("gain; red: three largest")


def tree_depth(ax, run):
    depths = []
    columns = [ask("show", run.path, f"trees/{c}", "--raw", "--steps", "0:")["values"] for c in ("ID", "Yes", "No")]
    for ids, yes, no in zip(*columns):
        children = {i: (y, n) for i, y, n in zip(ids["values"], yes["values"], no["values"])}
        depth, level = 0, [ids["values"][0]]
        while level := [c for node in level for c in children[node] if c in children]:
            depth += 1
        depths.append((ids["global_step"], depth))
    ax.bar([s for s, _ in depths], [d for _, d in depths], width=3, color=[HIT if d > 4 else CALM for _, d in depths])
    threshold(ax, 4, "depth 4")
    ax.set_ylabel("depth of the round's tree")


X_LABELS = {"class_imbalance": "class", "stalled_training_rule": "time", "confusion": "prediction"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rule")
    parser.add_argument("run")
    parser.add_argument("--beside", help="the other run of similar_across_runs")
    given = parser.parse_args()
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": given.rule, "font.size": 9, "axes.edgecolor": DIM,
                         "axes.spines.top": False, "axes.spines.right": False, "path.simplify_threshold": 0.5})
    figure, ax = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
    run = Run(given.run, given.rule)
    others = [Run(given.beside, given.rule)] if given.beside else []
    globals()[given.rule](ax, run, *others)
    if given.rule not in X_LABELS:
        mark(ax, run)
    ax.set_xlabel(X_LABELS.get(given.rule, "step"))
    path = ROOT / "src" / "rules" / "builtin" / given.rule / "picture.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")
    # Digits beyond a hundredth of a point are bytes for nobody.
    text = re.sub(r"(\d+\.\d\d)\d+", r"\1", path.read_text())
    path.write_text(re.sub(r"[ \t]+\n", "\n", text))
    print(path.relative_to(ROOT), path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
