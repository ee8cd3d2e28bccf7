"""What notebooks show of a run: its objects as tables, and its page. Names are somebody's data and never markup."""

from __future__ import annotations

import html
import math
import os
import pathlib
import subprocess
import tempfile
from typing import TYPE_CHECKING

from ..errors import NotFoundError, TdbgError
from ..program import program
from ..words import counted, printable

if TYPE_CHECKING:
    from .tensor import Tensor
    from .trial import Trial

_MOST_POINTS = 400
_MOST_NAME = 300


def text(name: object) -> str:
    """As text of a document: no markup, nothing that steers a screen, not without end."""
    shown = printable(str(name))
    return html.escape(shown if len(shown) <= _MOST_NAME else shown[:_MOST_NAME] + "…")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Of cells that are markup already."""
    top = "".join(f"<th style='text-align:left'>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td style=text-align:left>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{top}</tr>' if head else ''}{body}</table>"


def line(values: list[float]) -> str:
    """A small picture of a series; what is not finite is a bar from top to bottom."""
    if len(values) > _MOST_POINTS:
        # Extremes stay: of each piece its least and its greatest, and what is not finite.
        width = -(-len(values) // (_MOST_POINTS // 2))
        pieces = [values[i:i + width] for i in range(0, len(values), width)]
        values = [v for piece in pieces
                  for v in ([math.nan] if any(not math.isfinite(x) for x in piece) else [min(piece), max(piece)])]
    finite = [v for v in values if math.isfinite(v)]
    if not values:
        return ""
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    step = 236 / max(1, len(values) - 1)
    marks, points = [], []
    for i, value in enumerate(values):
        x = 2 + i * step
        if not math.isfinite(value):
            marks.append(f"<rect x='{x - 1:.1f}' y='0' width='2.5' height='40' fill='#d6006e'/>")
        else:
            points.append(f"{x:.1f},{38 - 36 * (value - low) / ((high - low) or 1):.1f}")
    return (f"<svg width='240' height='40' role='img'>{''.join(marks)}"
            f"<polyline points='{' '.join(points)}' fill='none' stroke='#1f6fb2' stroke-width='1.5'/></svg>")


def of_trial(trial: Trial) -> str:
    """A run: its state, its steps, its first loss, its incidents."""
    steps = trial.steps()
    rows = [["state", text(trial.state)],
            ["steps", f"{len(steps)}" + (f" ({steps[0]} to {steps[-1]})" if steps else "")],
            ["tensors", str(len(trial.tensor_names()))], ["workers", text(", ".join(trial.workers()[:16]))]]
    losses = trial.tensor_names(collection="losses") if "losses" in trial.collections() else []
    for name in losses[:1]:
        rows.append([text(name), line(list(trial._raw.series(name, "value", "")[1]))])
    if damage := trial.damage():
        rows.append(["damaged", text("; ".join(damage[:3]))])
    incidents = trial.incidents()
    found = incidents._repr_html_() if incidents else ""
    return f"<div><b>{text(trial.name)}</b>{table([], rows)}{found}</div>"


def of_tensor(tensor: Tensor) -> str:
    """A tensor: what it is, its statistics at its last step, and over the steps."""
    steps = tensor.steps()
    rows = [["kind", text(" ".join(filter(None, [tensor.kind, tensor.module_kind])))],
            ["type", text(f"{tensor.dtype} {tuple(tensor.shape)}")],
            ["steps", f"{len(steps)}" + (f" ({steps[0]} to {steps[-1]})" if steps else "")]]
    field = "value" if all(extent == 1 for extent in tensor.shape) else "mean_abs"
    try:
        values = list(tensor._raw.series(tensor.name, field, "")[1])
        if values:
            rows.append([field, f"{line(values)} last {values[-1]:.4g}"])
    except TdbgError:
        pass  # a text, say
    if steps:
        try:
            s = tensor.summary(steps[-1])
            rows.append([f"step {steps[-1]}",
                         f"mean {s.mean:.4g}, std {s.variance ** 0.5:.4g}, min {s.min:.4g}, max {s.max:.4g}, "
                         f"zeros {s.zero_count}, NaN {s.nan_count} of {s.count}"])
        except TdbgError:
            pass  # a text, or values without statistics
    return f"<div><b>{text(tensor.name)}</b>{table([], rows)}</div>"


class View:
    """A run's page, to be shown by a notebook: what `tdbg report` writes, in a frame of its own that can reach nothing
    around it. `page` is its document."""

    def __init__(self, page: str, height: int) -> None:
        self.page = page
        self._height = height

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; any browser opens it."""
        pathlib.Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        return (f"<iframe sandbox='allow-scripts' style='width:100%;height:{self._height}px;border:0' title='tdbg' "
                f"srcdoc=\"{html.escape(self.page)}\"></iframe>")

    def __repr__(self) -> str:
        return f"<tdbg page, {counted(len(self.page), 'byte')}: a notebook shows it, save(path) writes it>"


def show_page(trial: Trial, budget: str = "2MB", height: int = 760) -> View:
    """The run's page (docs/page.md) inside of a notebook, Jupyter's or VS Code's; it stays in the notebook's file.

    :param budget: at most so many bytes: "500kB", "5MB"; what is left out, the page says
    :param height: of the frame, in pixels
    :raises TdbgError: the budget is too small for what was found; the run cannot be read
    """
    with tempfile.TemporaryDirectory() as directory:
        page = os.path.join(directory, "page.html")
        try:
            done = subprocess.run([program(), "report", trial.path, "--output", page, "--budget", budget, "--json"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                  check=False)
        except OSError as error:
            raise NotFoundError(f"the tdbg program cannot be started ({error}); $TDBG_CLI names it") from error
        if not os.path.exists(page):
            raise TdbgError(done.stderr.strip() or f"tdbg report: exit code {done.returncode}")
        return View(pathlib.Path(page).read_text(encoding="utf-8"), height)
