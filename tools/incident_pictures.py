"""Draws docs/incidents/DETECTOR.svg: on the left a training that trips a detector of the profile, on the right its healthy twin.

    python tools/incident_pictures.py NAME ... | all      trains both (bench/verdicts), judges both, and draws
    python tools/incident_pictures.py --check             which detectors of docs/incidents.md have no picture, and which pictures are linked nowhere

Needs torch and tdbg installed, and the program ($TDBG_BIN). A training takes some seconds. To add one: a line in PICTURES.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
TDBG = os.environ.get("TDBG_BIN", str(ROOT / "build" / "tdbg"))
PAGE, FOLDER = ROOT / "docs" / "incidents.md", ROOT / "docs" / "incidents"
MOST_BYTES, MOST_LINES, MOST_POINTS = 15_000, 5, 100

Points = list[tuple[float, float]]


class Lines(NamedTuple):
    """What a panel shows. `lines`: name -> points, the one that the finding names first. `log`: of the upward axis."""

    title: str
    lines: dict[str, Points]
    log: bool = False


Evidence = Callable[[Any, dict[str, Any] | None], Lines]


# What of a run is drawn: (the run as tdbg.open gives it, the finding of the faulty one) -> Lines ------------------------------


def of(title: str, regex: str, field: str = "value", log: bool = False, mode: str = "TRAIN") -> Evidence:
    """A statistic of all tensors whose name has `regex` in it. Of a scalar its `value`."""
    def evidence(run: Any, finding: dict[str, Any] | None) -> Lines:
        named = finding["tensor"] if finding else ""
        names = sorted((n for n in run.tensor_names() if re.search(regex, n)), key=lambda n: (n != named, n))
        lines = {name: _points(run, name, field, mode) for name in names}
        return Lines(title, {n: p for n, p in lines.items() if p}, log)
    return evidence


def _points(run: Any, name: str, field: str, mode: str) -> Points:
    steps, values = run.tensor(name).series(field)
    return [(int(s), float(v)) for s, v in zip(steps, values) if mode in ("", run.mode(int(s)).name)]


def losses(log: bool = False, evaluation: bool = False) -> Evidence:
    def evidence(run: Any, finding: dict[str, Any] | None) -> Lines:
        name = next(n for n in run.tensor_names() if n.endswith("_output_0") and "oss" in n)
        lines = {"TRAIN": _points(run, name, "value", "TRAIN")}
        if evaluation:
            lines = {"EVAL": _points(run, name, "value", "EVAL"), **lines}
        return Lines("loss" + (", EVAL in colour" if evaluation else ""), lines, log)
    return evidence


def whole_norm(regex: str, title: str) -> Evidence:
    """Of all tensors together."""
    def evidence(run: Any, finding: dict[str, Any] | None) -> Lines:
        sums: dict[float, float] = {}
        for name in run.tensor_names():
            if re.search(regex, name):
                for step, value in _points(run, name, "l2", "TRAIN"):
                    sums[step] = sums.get(step, 0.0) + value ** 2
        return Lines(title, {title: [(s, math.sqrt(v)) for s, v in sorted(sums.items())]}, log=True)
    return evidence


def change_of(regex: str = r"weight$") -> Evidence:
    """How much the length of each weight changes in a step, of its length: less than the update itself, and as near as statistics say."""
    def evidence(run: Any, finding: dict[str, Any] | None) -> Lines:
        named = finding["tensor"].removeprefix("gradient/") if finding else ""
        names = sorted((n for n in run.tensor_names() if re.search(regex, n) and not n.startswith(("gradient/", "context/"))), key=lambda n: (n != named, n))
        lines = {}
        for name in names:
            kept = _points(run, name, "l2", "TRAIN")
            lines[name] = [(step, max(abs(b - a) / (a or 1), 1e-9)) for (_, a), (step, b) in zip(kept, kept[1:])]
        return Lines("change of each weight's length in a step, of its length", lines, log=True)
    return evidence


def share_of_zeros(regex: str = "^gradient/.*weight$") -> Evidence:
    def evidence(run: Any, finding: dict[str, Any] | None) -> Lines:
        zeros, counts = of("", regex, "zero_count")(run, finding).lines, of("", regex, "count")(run, finding).lines
        return Lines("zeros in each gradient, %", {n: [(s, 100 * z / c) for (s, z), (_, c) in zip(p, counts[n])] for n, p in zeros.items()})
    return evidence


def gradients_there(run: Any, finding: dict[str, Any] | None) -> Lines:
    """How many parameters got a gradient."""
    found: dict[float, float] = {s: 0 for s in run.steps() if run.mode(s).name == "TRAIN"}
    for name in run.tensor_names():
        if name.startswith("gradient/"):
            for step, _ in _points(run, name, "count", "TRAIN"):
                found[step] = found.get(step, 0) + 1
    return Lines("parameters with a gradient", {"gradients": sorted(found.items())})


def counted(title: str, regex: str, looked: str = "") -> Evidence:
    """Series that are there only where there is something to count: 0 at all other steps of training, or at those that the series
    `looked` has."""
    def evidence(run: Any, finding: dict[str, Any] | None) -> Lines:
        steps = [s for s, _ in _points(run, looked, "value", "TRAIN")] if looked else run.steps()
        sums: dict[float, float] = {s: 0.0 for s in steps if run.mode(int(s)).name == "TRAIN"}
        for name in run.tensor_names():
            if re.search(regex, name):
                for step, value in _points(run, name, "value", "TRAIN"):
                    sums[step] = sums.get(step, 0.0) + value
        return Lines(title, {title: sorted(sums.items())})
    return evidence


def not_finite(run: Any, finding: dict[str, Any] | None) -> Lines:
    """How many tensors have a NaN or an infinity in them."""
    found: dict[float, float] = {s: 0.0 for s in run.steps() if run.mode(s).name == "TRAIN"}
    for name in run.tensor_names():
        if not name.startswith("context/"):
            for step, value in _points(run, name, "nonfinite_count", "TRAIN"):
                found[step] = found.get(step, 0.0) + (value > 0)
    return Lines("tensors that are not finite", {"tensors": sorted(found.items())})


def repeats(run: Any, finding: dict[str, Any] | None) -> Lines:
    """Steps in a row with the same batch."""
    points, last, count = [], None, 0
    for step, value in _points(run, "context/batch_fingerprint", "value", "TRAIN"):
        count = count + 1 if value == last else 1
        last = value
        points.append((step, count))
    return Lines("steps in a row with this batch", {"repeats": points})


INPUT = r"^context/input/"
WEIGHTS = r"^(?!gradient/|context/).*weight$"
#: Detector -> (the kind of fault in bench/verdicts, its draw, what is drawn).
PICTURES: dict[str, tuple[str, int, Evidence]] = {
    "no_gradient": ("detach", 0, gradients_there),
    "no_optimizer": ("left_out_of_optimizer", 0, change_of(r"weight")),
    "loss_sign": ("negated_loss", 0, losses(log=True)),
    "zero_rate": ("rate_zero", 0, of("learning rate", "^context/lr/")),
    "rate_cut": ("rate_cut", 0, of("learning rate", "^context/lr/", log=True)),
    "rate_jump": ("rate_spike", 0, of("learning rate", "^context/lr/", log=True)),
    "rate_gone": ("decay_each_batch", 0, of("learning rate", "^context/lr/", log=True)),
    "decay_too_strong": ("decay_too_strong", 0, of("length of each weight", WEIGHTS, "l2", log=True)),
    "clipped_away": ("clip_to_nothing", 0, whole_norm("^gradient/", "norm of all gradients, clipped")),
    "same_batch": ("stuck_loader", 0, repeats),
    "gradients_kept": ("zero_grad_forgotten", 0, whole_norm("^gradient/", "norm of all gradients")),
    "loss_broadcast": ("target_broadcast", 0, losses()),
    "left_evaluating": ("train_forgotten", 0, counted("modules in evaluation mode, of a step of training", "^context/trained_in_evaluation$")),
    "norm_frozen": ("eval_left_on", 0, of("length of each running mean", "running_mean$", "l2")),
    "input_nonfinite": ("standardised_by_zero", 0, counted("NaN or infinite elements of the input", INPUT + "(nan|infinite)$", "context/input/same_rows")),
    "not_logits": ("softmax_in_the_model", 0, losses()),
    "labels_out_of_range": ("labels_of_minus_one", 0, of("smallest label", "^context/labels/min$")),
    "all_padding": ("padded_to_nothing", 0, of("padding in the input, share", INPUT + "(padding|zeros)$")),
    "input_constant": ("one_sample_for_all", 0, of("all rows of a batch are one", INPUT + "same_rows$")),
    "input_unscaled": ("images_in_bytes", 0, of("largest element of the input", INPUT + "max$")),
    "input_shifted": ("inputs_scaled_late", 0, of("deviation of the input", INPUT + "std$", log=True)),
    "labels_one_class": ("one_label_for_all", 0, of("classes in a batch", "^context/labels/distinct$")),
    "labels_sorted": ("never_shuffled", 0, of("classes in a batch", "^context/labels/distinct$")),
    "init_scale": ("wide_init", 0, of("deviation of each weight", WEIGHTS, "std", log=True)),
    "constant_weight": ("constant_init", 0, of("deviation of each weight", WEIGHTS, "std")),
    "first_loss": ("wide_init", 2, losses(log=True)),
    "nonfinite": ("log_of_zero", 0, not_finite),
    "weight_jump": ("weight_corrupted", 0, of("length of each weight", WEIGHTS, "l2", log=True)),
    "weights_replaced": ("weights_reset", 0, change_of()),
    "loss_jump": ("bad_batch", 0, losses(log=True)),
    "loss_back": ("weights_reset", 0, losses()),
    "gradient_jump": ("bit_flipped_in_gradient", 0, whole_norm("^gradient/", "norm of all gradients")),
    "loss_scale": ("scale_falls_for_ever", 0, of("loss scale", "^context/loss_scale$", log=True, mode="")),
    "gradient_underflow": ("halves_of_a_mean", 0, share_of_zeros()),
    "weights_unchanged": ("updates_lost", 0, change_of()),
    "update_lost": ("updates_below_bfloat16", 0, change_of()),
    "update_too_large": ("rate_too_high", 0, change_of()),
    "update_too_small": ("rate_tiny", 0, change_of()),
    "zero_gradient": ("zero_init", 0, share_of_zeros()),
    "vanishing_ratio": ("deep_sigmoid", 0, of("mean |gradient| of each weight", "^gradient/.*weight$", "mean_abs", log=True)),
    "dead_units": ("dying_relu", 0, share_of_zeros()),
    "diverging": ("momentum_above_one", 0, losses(log=True)),
    "no_improvement": ("random_labels", 0, losses()),
    "validation_rises": ("overfit", 0, losses(evaluation=True)),
    "evaluated_training": ("eval_forgotten", 0, counted("losses of an evaluation in training mode", "^context/evaluated_in_training$")),
}
#: Where what is drawn is what the finding measures: the finding's threshold is drawn, so many times as large.
BARS = {"same_batch": 1.0, "loss_jump": 1.0, "gradient_jump": 1.0, "diverging": 1.0, "dead_units": 100.0}
#: Whose faults bench/verdicts does not train: other ranks, a second run, a job.
WITHOUT = {"not_repeatable", "replica_differs", "rank_died", "stalled", "slow_steps"}


# Training and judging ------------------------------------------------------------------------------------------------------


def train(kind: str, draw: int, faulty: bool, run: pathlib.Path) -> None:
    """In a process of its own, as bench/verdicts does it."""
    sys.path.insert(0, str(ROOT / "bench" / "verdicts"))
    import run as bench  # noqa: PLC0415  which imports torch

    said = bench.train({"kind": kind, "draw": draw, "faulty": faulty}, run)
    if said.startswith("NOT TRAINED"):
        raise SystemExit(f"{kind}: {said}")


def findings(run: pathlib.Path) -> list[dict[str, Any]]:
    told = subprocess.run([TDBG, "check", str(run), "--rule", "Profile", "--json"], capture_output=True, text=True, check=False)
    return next(rule["findings"] for rule in json.loads(told.stdout)["rules"] if rule["rule"] == "Profile")


# Drawing -------------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM, GAP = 720, 208, 46, 40, 10, 42, 52
PANEL = (WIDTH - LEFT - RIGHT - GAP) / 2
MOST_WORDS = 130         # characters of the finding's sentence
STYLE = """<style>
.page{fill:#fff}.ink{fill:#1b1f24}.dim{fill:#66707b}.bad{fill:#c0392b}.good{fill:#2f6fb3}
text{font:11px system-ui,sans-serif}.small{font-size:10px}.axis{stroke:#8b95a0;fill:none}
.line{fill:none;stroke:#2f6fb3;stroke-width:1;opacity:.45}.named{stroke-width:1.8;opacity:1}.faulty .named{stroke:#c0392b}
.mark{stroke:#c0392b;stroke-dasharray:3 3}.bar{stroke:#66707b;stroke-dasharray:5 3}.expected{fill:#2f6fb3;opacity:.1}
@media(prefers-color-scheme:dark){.page{fill:#12161b}.ink{fill:#e6e9ed}.dim{fill:#98a3af}.bad{fill:#ff8371}.good{fill:#6fb1f2}
.line{stroke:#6fb1f2}.faulty .named,.mark{stroke:#ff8371}.bar{stroke:#98a3af}.expected{fill:#6fb1f2}}
</style>"""


def thinned(points: Points) -> Points:
    """Of each of MOST_POINTS pieces the lowest and the highest point: what stands out stays."""
    if len(points) <= MOST_POINTS:
        return points
    size, kept = math.ceil(2 * len(points) / MOST_POINTS), []
    for begin in range(0, len(points), size):
        piece = points[begin:begin + size]
        kept += sorted({min(piece, key=lambda p: p[1]), max(piece, key=lambda p: p[1])})
    return kept


class Scale:
    """Values to heights; both panels have one, so that they can be compared."""

    def __init__(self, values: list[float], log: bool) -> None:
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        self.log = log
        if log:
            low, high = max(low, high * 1e-24), max(high, 1e-30)
            low, high = math.log10(low) - 0.1, math.log10(high) + 0.1
        pad = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
        self.low, self.high = (low, high) if log and high - low > 0.3 else (low - pad, high + pad)

    def at(self, value: float) -> float:
        if value != value:
            value = math.inf
        height = (math.log10(value) if value > 0 else -math.inf) if self.log and value != math.inf else value
        share = min(max((height - self.low) / (self.high - self.low), 0.0), 1.0)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    def ticks(self) -> list[float]:
        values = [self.low + (self.high - self.low) * share for share in (0.08, 0.5, 0.92)]
        return [10 ** v if self.log else v for v in values]


def number(value: float) -> str:
    if 10 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.2g}".replace("e-0", "e-").replace("e+0", "e")


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def range_of(lines: dict[str, Points]) -> tuple[float, float] | None:
    """In which the twin's first line lies, but for one value in fifty at either end."""
    values = sorted(v for points in [*lines.values()][:1] for _, v in points if math.isfinite(v))
    return (values[len(values) // 50], values[-1 - len(values) // 50]) if values else None


def panel(begin: float, shown: Lines, scale: Scale, last: float, finding: dict[str, Any] | None, expected: tuple[float, float] | None,
          bar: float | None) -> str:
    """`finding`: of the faulty training; the twin has none."""
    def x(step: float) -> float:
        return begin + PANEL * step / max(last, 1)

    foot, faulty = HEIGHT - BOTTOM, finding is not None
    out = [f'<g class="{"faulty" if faulty else "twin"}">']
    out.append(f'<text x="{begin:.0f}" y="16" class="{"bad" if faulty else "good"}">{"faulty" if faulty else "its healthy twin"}</text>')
    out.append(f'<text x="{begin:.0f}" y="31" class="dim small">{escape(shown.title)}</text>')
    if expected is not None:
        top, low = scale.at(expected[1]), scale.at(expected[0])
        out.append(f'<rect class="expected" x="{begin:.0f}" y="{top - 2:.1f}" width="{PANEL:.0f}" height="{low - top + 4:.1f}"/>')
    out.append(f'<path class="axis" d="M{begin:.0f} {TOP}V{foot}H{begin + PANEL:.0f}"/>')
    for tick in scale.ticks():
        out.append(f'<text x="{begin - 4:.0f}" y="{scale.at(tick) + 3:.0f}" class="dim small" text-anchor="end">{number(tick)}</text>')
    out.append(f'<text x="{begin + PANEL:.0f}" y="{foot + 14}" class="dim small" text-anchor="end">step {last:,.0f}</text>')
    if not shown.lines:
        out.append(f'<text x="{begin + PANEL / 2:.0f}" y="{(TOP + foot) / 2:.0f}" class="dim" text-anchor="middle">it has none</text>')
    if bar is not None:
        out.append(f'<path class="bar" d="M{begin:.0f} {scale.at(bar):.1f}H{begin + PANEL:.0f}"/>')
    for n, points in reversed([*enumerate(shown.lines.values())][:MOST_LINES]):
        path = " ".join(f"{x(step):.1f},{scale.at(value):.1f}" for step, value in thinned(points))
        out.append(f'<polyline class="line{" named" if not n else ""}" points="{path}"/>')
    if finding:
        at = x(finding["global_step"])
        out.append(f'<path class="mark" d="M{at:.1f} {TOP - 2}V{foot}"/>')
        anchor, shift = ("end", -4) if at > begin + PANEL / 2 else ("start", 4)
        out.append(f'<text x="{at + shift:.0f}" y="{TOP + 7}" class="bad small" text-anchor="{anchor}">found at step {finding["global_step"]:,}</text>')
    return "".join(out) + "</g>"


def draw(name: str, faulty: Lines, twin: Lines, finding: dict[str, Any], bar: float | None) -> str:
    values = [v for shown in (faulty, twin) for points in [*shown.lines.values()][:MOST_LINES] for _, v in points]
    scale = Scale(values + ([bar] if bar is not None else []), faulty.log)
    last = max((s for shown in (faulty, twin) for points in shown.lines.values() for s, _ in points), default=1)
    said = finding["text"]
    words = escape(said if len(said) <= MOST_WORDS else said[:MOST_WORDS - 3] + "...")
    expected = range_of(twin.lines)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(f"{name}: {said}")}</title>{STYLE}'
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>'
            + panel(LEFT, faulty, scale, last, finding, expected, bar)
            + panel(LEFT + PANEL + GAP, twin, scale, last, None, expected, bar)
            + f'<text x="{LEFT}" y="{HEIGHT - 8}" class="ink small">{words}</text></svg>\n')


def make(name: str, folder: pathlib.Path) -> str:
    import tdbg  # noqa: PLC0415

    kind, draw_number, evidence = PICTURES[name]
    runs = [folder / f"{kind}-{draw_number}-{which}" for which in ("faulty", "twin")]
    for run, faulty in zip(runs, (True, False)):
        if not run.exists():
            train(kind, draw_number, faulty, run)
    finding = next((f for f in findings(runs[0]) if f.get("detector") == name), None)
    if finding is None:
        raise LookupError(f"{name}: {kind} does not trip it")
    if any(f.get("detector") == name for f in findings(runs[1])):
        raise LookupError(f"{name}: the twin of {kind} trips it, too")
    faulty, twin = (evidence(tdbg.open(str(run)), finding) for run in runs)
    if not any(faulty.lines.values()):
        raise LookupError(f"{name}: nothing to draw in {kind}")
    factor = BARS.get(name)
    return draw(name, faulty, twin, finding, None if factor is None else factor * finding["threshold"])


# The page ------------------------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """Detector -> its section's text."""
    text = PAGE.read_text()
    return {m[1]: m[2] for m in re.finditer(r"^### (\w+)\n(.*?)(?=^##)", text, re.S | re.M)}


def check() -> int:
    """Says what is missing. 1: a picture is linked nowhere, or a link leads nowhere, or one is too large."""
    wrong = 0
    told = sections()
    for path in sorted(FOLDER.glob("*.svg")):
        if f"incidents/{path.name}" not in told.get(path.stem, ""):
            print(f"{path.relative_to(ROOT)}: the section {path.stem} of docs/incidents.md does not show it")
            wrong = 1
        if path.stat().st_size > MOST_BYTES:
            print(f"{path.relative_to(ROOT)}: more than {MOST_BYTES:,} bytes")
            wrong = 1
    missing = [name for name in told if not (FOLDER / f"{name}.svg").exists()]
    if missing:
        print(f"without a picture: {', '.join(missing)}")
    return wrong


def link(name: str) -> None:
    """Under the section's text, once."""
    line = f"![{name}: a training that trips it, and its healthy twin](incidents/{name}.svg)\n"
    text = PAGE.read_text()
    if line not in text:
        PAGE.write_text(re.sub(rf"(^### {name}\n.*?\n)(?=\n##)", lambda m: m[1].rstrip("\n") + "\n\n" + line, text, count=1, flags=re.S | re.M))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="detectors, or all")
    parser.add_argument("--check", action="store_true", help="train nothing: which detectors have no picture?")
    parser.add_argument("--runs", type=pathlib.Path, metavar="DIR", help="keep the runs there, and take those that are there")
    given = parser.parse_args()
    if given.check:
        return check()
    FOLDER.mkdir(exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in PICTURES if given.names == ["all"] else given.names:
            try:
                text = make(name, given.runs or pathlib.Path(scratch))
            except LookupError as error:
                print(error, flush=True)
                failed = 1
                continue
            (FOLDER / f"{name}.svg").write_text(text)
            link(name)
            print(f"docs/incidents/{name}.svg {len(text):,} bytes", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
