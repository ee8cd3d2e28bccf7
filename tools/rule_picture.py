"""Draws the picture of a rule's page from a real run that trips it: src/rules/builtin/<rule>/picture.svg.

    python tools/rule_picture.py RULE ... | all

Makes the run first: a script of examples/faults or tools/picture_runs, captured and judged with the rule by the tdbg program
($TDBG_BIN). What is drawn is read back by that program. Needs matplotlib, torch, xgboost. A run takes some seconds.
"""

import argparse
import datetime
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
TDBG = os.environ.get("TDBG_BIN", str(ROOT / "build" / "tdbg"))
INK, DIM, HIT, CALM = "#1b1f24", "#8b95a0", "#c8442b", "#2f6fb3"
FAULTS, OWN = ROOT / "examples" / "faults", ROOT / "tools" / "picture_runs"

#: Rule -> (script, the rule's parameters and further flags).
RUNS = {
    "vanishing_gradient": (FAULTS / "vanishing.py", []),
    "exploding_tensor": (FAULTS / "exploding.py", []),
    "unchanged_tensor": (FAULTS / "unchanged.py", ["collection_names=weights", "interval=10"]),
    "overfit": (FAULTS / "overfit.py", []),
    "loss_not_decreasing": (FAULTS / "plateau.py", ["interval=40"]),
    "overtraining": (FAULTS / "plateau.py", ["interval=20"]),
    "weight_update_ratio": (FAULTS / "plateau.py", ["interval=20"]),
    "poor_weight_initialization": (FAULTS / "initialisation.py", []),
    "tensor_variance": (FAULTS / "initialisation.py", ["collection_names=relu_input", "min_threshold=0.01"]),
    "class_imbalance": (FAULTS / "imbalance.py", []),
    "all_zero": (FAULTS / "cut_off.py", ["collection_names=gradients"]),
    "dead_relu": (FAULTS / "dead_relu.py", []),
    "saturated_activation": (FAULTS / "saturated.py", []),
    "check_input_images": (FAULTS / "pixels.py", []),
    "nlp_sequence_ratio": (FAULTS / "padding.py", []),
    "stalled_training_rule": (OWN / "stalled.py", ["threshold=2"]),
    "similar_across_runs": (OWN / "same_seed.py", ["other_trials=beside", "collection_names=losses"]),
    "confusion": (OWN / "boosting.py", []),
    "feature_importance_overweight": (OWN / "boosting.py", ["tensor_regex=feature_importance/gain"]),
    "tree_depth": (OWN / "boosting.py", []),
    "create_xgboost_report": (OWN / "boosting.py", []),
}


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

    def derived(self, statistic):
        """{tensor: [(step, elements, samples, values)]} of a derived statistic."""
        found = {}
        for entry in ask("tensors", self.path, "--all"):
            name = entry["name"]
            if name.startswith(f"statistic/{statistic}("):
                found[name.split("/", 2)[2]] = [(step, v[0], v[1], v[2:]) for step, v in self.values(name)]
        return found

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
        ax.annotate(f"hit at step {step}", (step, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
                    textcoords="offset points", fontsize=8, color=HIT, va="bottom", ha="center")


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
    for name in run.tensors("", "weights"):
        kept = run.values(name)
        # Of every element: so many tolerances did it move. Nothing at all has no place on a logarithmic axis.
        points = [(step, max(max(abs(x - y) / (1e-8 + 1e-5 * abs(x)) for x, y in zip(b, a)), 1e-2))
                  for (_, a), (step, b) in zip(kept, kept[1:])]
        hit = name in bad(run)
        ax.plot(*zip(*points), "o-", ms=3, color=HIT if hit else CALM, lw=1.6 if hit else 0.9, alpha=1 if hit else 0.6,
                zorder=3 if hit else 2)
    ax.set_yscale("log")
    threshold(ax, 1, "atol + rtol |w|")
    ax.set_ylabel("largest change, in tolerances")


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
    inputs = {name: run.series(name, "variance") for name in run.tensors("relu.*_input")}
    least = [min(values) for values in zip(*(v for _, v in inputs.values()))]
    for steps, values in inputs.values():
        ratios = [v / low for v, low in zip(values, least)][:40]
        ax.plot(steps[:40], ratios, color=HIT if max(ratios) > 10 else CALM, lw=1.6)
    ax.set_yscale("log")
    threshold(ax, 10, "threshold 10")
    ax.set_ylabel("variance of each ReLU's input\nover the smallest one")


def tensor_variance(ax, run):
    lines(ax, run, run.tensors("relu.*_input"), "variance", bad(run))
    ax.set_yscale("log")
    threshold(ax, 0.01, "min_threshold 0.01")
    ax.set_ylabel("variance of each ReLU's input")


def _inactive_units(ax, run, statistic, what):
    for name, rows in run.derived(statistic).items():
        shares = [100 * sum(100 * count < elements for count in counts) / len(counts) for _, elements, _, counts in rows]
        hit = name in bad(run)
        ax.plot([step for step, *_ in rows], shares, color=HIT if hit else CALM, lw=1.8 if hit else 1, label=name)
    ax.set_ylim(-4, 104)
    threshold(ax, 50, "threshold_layer 50 %")
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    ax.set_ylabel(what)


def dead_relu(ax, run):
    _inactive_units(ax, run, "count_above", "dead units of each layer, %")


def saturated_activation(ax, run):
    _inactive_units(ax, run, "count_within", "saturated units, %")


def check_input_images(ax, run):
    (_, rows), = run.derived("sums").items()
    sums, elements, means, images = [0.0] * len(rows[0][3]), 0, [], []
    for _, count, samples, values in rows[:20]:
        elements += count
        sums = [a + b for a, b in zip(sums, values)]
        images.append((images or [0])[-1] + samples)
        means.append([abs(s / elements) for s in sums])
    for channel in zip(*means):
        ax.plot(images, channel, "o-", ms=3, color=HIT if channel[-1] > 0.2 else CALM)
    ax.set_ylim(0, max(map(max, means)) * 1.2)
    ax.axvline(500, color=DIM, lw=0.8)
    ax.annotate("judged from here", (500, 1), xycoords=("data", "axes fraction"), xytext=(4, -10),
                textcoords="offset points", fontsize=8, color=DIM)
    threshold(ax, 0.2, "threshold_mean 0.2")
    ax.set_ylabel("|mean of a channel|")


def nlp_sequence_ratio(ax, run):
    (_, rows), = run.derived("value_counts").items()
    seen = tokens = 0
    points = []
    for step, count, _, values in rows:
        tokens, seen = tokens + count, seen + values[0]
        points.append((step, 100 * seen / tokens))
    ax.plot(*zip(*points), "o-", ms=3, color=HIT)
    ax.set_ylim(0, 100)
    threshold(ax, 50, "threshold 50 %")
    ax.set_ylabel("token 0 among all tokens so far, %")


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
    for _, labels in run.values("CrossEntropyLoss_labels_0"):
        for label in labels:
            counts[int(label)] = counts.get(int(label), 0) + 1
    largest = max(counts.values())
    ax.bar(list(counts), list(counts.values()), color=[HIT if 10 * n < largest else CALM for n in counts.values()])
    ax.set_xticks(sorted(counts))
    threshold(ax, largest / 10, "a tenth of the largest class")
    ax.set_ylabel("labels seen")


def stalled_training_rule(ax, run):
    steps = ask("steps", run.path)["steps"]
    times = [datetime.datetime.fromisoformat(s["time"].replace("Z", "+00:00")) for s in steps]
    seconds = [(time - times[0]).total_seconds() for time in times]
    ax.step(seconds, [s["global_step"] for s in steps], where="post", color=CALM)
    pause, at = max((b - a, i) for i, (a, b) in enumerate(zip(seconds, seconds[1:])))
    ax.axvspan(seconds[at], seconds[at + 1], color=HIT, alpha=0.15, lw=0)
    ax.annotate(f"no heartbeat for {pause:.1f} s\nthreshold 2 s", ((seconds[at] + seconds[at + 1]) / 2, steps[-1]["global_step"] / 4),
                ha="center", fontsize=8, color=HIT)
    ax.set_ylabel("step")


def similar_across_runs(ax, run, beside):
    for which, colour, width in ((run, HIT, 3.5), (beside, INK, 1)):
        steps, values = which.series(loss_of(which), "value")
        ax.plot(steps, values, color=colour, lw=width, alpha=0.5 if width > 1 else 1)
    ax.set_ylabel("loss of both runs")


def confusion(ax, run):
    step = run.findings[0]["global_step"]
    labels, scores = (dict(run.values(name))[step] for name in ("labels", "predictions"))
    grid = [[0, 0], [0, 0]]
    for label, score in zip(labels, scores):
        grid[int(label)][int(score > 0.5)] += 1
    shares = [[n / sum(row) for n in row] for row in grid]
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.8)
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


def of_report(run):
    """The first picture with a line of the report that the rule wrote, with the report's style."""
    report = (pathlib.Path(run.path) / "rule-output" / "CreateXgboostReport" / "xgboost_report.html").read_text()
    style = re.search(r"<style>(.*?)</style>", report, re.S)[1]
    # Not every viewer of pictures knows custom properties, or a dark page: the light one's colours, written out.
    colours = dict(re.findall(r"(--[\w-]+):\s*([^;}]+)", style[:style.find("@media")]))
    rules = "".join(f"{name}{{{body}}}" for name, body in re.findall(r"([^{}@]*)\{([^{}]*)\}", style)
                    if re.match(r"\s*(svg text|\.)", name))
    style = "<style>" + re.sub(r"var\((--[\w-]+)\)", lambda m: colours[m[1]], rules) + "</style>"
    head, rest = next(re.match(r"(<svg[^>]*)>(.*)", picture, re.S).groups()
                      for picture in re.findall(r"<svg.*?</svg>", report, re.S) if 'class="line' in picture)
    xmlns = "" if "xmlns" in head else ' xmlns="http://www.w3.org/2000/svg"'
    return f'{head}{xmlns}>{style}<rect width="100%" height="100%" fill="white"/>{rest}\n'


X_LABELS = {"class_imbalance": "class", "stalled_training_rule": "seconds", "confusion": "prediction",
            "check_input_images": "images"}


def make_run(rule, folder):
    script, words = RUNS[rule]
    if rule == "similar_across_runs":
        capture(folder / "beside", script, [])
    capture(folder / "run", script, ["--rule", rule, *words])
    run = Run(folder / "run", rule)
    if rule != "create_xgboost_report" and not run.findings:
        raise SystemExit(f"{rule}: the run does not trip it: {run.status}")
    return run


def capture(directory, script, flags):
    subprocess.run([TDBG, "run", "--quiet", "--dir", directory, *flags, "--", sys.executable, script], check=True,
                   stdout=subprocess.DEVNULL)


def draw(rule, run):
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": rule, "font.size": 9, "axes.edgecolor": DIM,
                         "axes.spines.top": False, "axes.spines.right": False, "path.simplify_threshold": 0.5})
    figure, ax = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
    others = [Run(pathlib.Path(run.path).parent / "beside", rule)] if rule == "similar_across_runs" else []
    globals()[rule](ax, run, *others)
    if rule not in X_LABELS:
        mark(ax, run)
    ax.set_xlabel(X_LABELS.get(rule, "step"))
    with io.StringIO() as out:
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        # Digits beyond a hundredth of a point are bytes for nobody.
        return re.sub(r"(\d+\.\d\d)\d+", r"\1", out.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rules", nargs="+", metavar="RULE", help="rules, or all")
    given = parser.parse_args().rules
    for rule in RUNS if given == ["all"] else given:
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(rule, pathlib.Path(folder))
            text = of_report(run) if rule == "create_xgboost_report" else draw(rule, run)
        path = ROOT / "src" / "rules" / "builtin" / rule / "picture.svg"
        path.write_text(re.sub(r"[ \t]+\n", "\n", text))
        print(path.relative_to(ROOT), path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
